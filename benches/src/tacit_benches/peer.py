"""The cost of a federation on loopback: bytes, speed of a large message, time of an iteration.

bytes      all bytes through the sockets (TLS, HTTP/2, requests) / the bytes of the numbers alone,
           which are 2·P·4·degree per node and iteration
speed      of one message over mutual TLS / that of the same bytes through a plain TLS socket
overhead   an iteration of five nodes on a ring / the same iteration in the simulator
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from statistics import median

from tacit.core.errors import INSTALL_PEER, Misuse
from tacit_benches.benchmark import BenchOptions, BenchResult, Quartiles, Timings
from tacit_benches.workloads import MASKED_ALGORITHM, PLAIN_ALGORITHM

SUMMARY = "bytes / bytes of the numbers; speed / plain TLS socket; iteration / simulator"
EXTRA = ("cryptography", "google.protobuf", "grpc")  # what tacit-learn[peer] installs
MESSAGE, QUICK_MESSAGE = 100_000_000, 10_000_000  # bytes


def measure(options: BenchOptions) -> Iterator[BenchResult]:
    _check_installed()
    for name in options.workloads:
        options.progress(f"peer {name}: preparing", 0, 1)
        yield MEASUREMENTS[name](options)


def _bytes(options: BenchOptions) -> BenchResult:
    from tacit_benches.peer_ring import DEGREE, PARAMETERS, bytes_per_iteration

    rounds = 2 if options.quick else 20
    plain = bytes_per_iteration(PLAIN_ALGORITHM, rounds)
    masked = bytes_per_iteration(MASKED_ALGORITHM, rounds)
    numbers = 2 * PARAMETERS * 4 * DEGREE
    ratio = masked / numbers
    return BenchResult(
        "peer",
        "bytes",
        Quartiles(ratio, ratio, ratio),
        None,
        None,
        "node and iteration",
        1,
        "bytes through the sockets / bytes of the numbers",
        details={
            "bytes_per_iteration": masked,
            "masked_vs_plain": masked / plain,
            "plain_ratio": plain / numbers,
        },
    )


def _speed(options: BenchOptions) -> BenchResult:
    from tacit_benches.peer_message import transfers

    size = QUICK_MESSAGE if options.quick else MESSAGE
    with transfers(size) as functions:
        timings = options.time("peer speed", functions, 7, 2)
    ours, plain = timings.median("message"), timings.median("plain")
    return BenchResult(
        "peer",
        "speed",
        timings.ratio("plain", "message"),
        ours,
        plain,
        f"message of {size / 1e6:.0f} MB",
        timings.repeats,
        "speed of a message / speed of a plain TLS socket",
        "higher",
        {
            "ours_megabytes_per_second": size / ours / 1e6,
            "limit_megabytes_per_second": size / plain / 1e6,
        },
    )


def _overhead(options: BenchOptions) -> BenchResult:
    from tacit_benches.peer_ring import peer_iterations, simulator_iterations

    rounds = 5 if options.quick else 20
    repeats = options.repeats or (1 if options.quick else 3)
    seconds: dict[str, list[float]] = {"peers": [], "simulator": []}
    for turn in range(repeats):
        seconds["peers"].append(median(peer_iterations(MASKED_ALGORITHM, rounds)))
        seconds["simulator"].append(median(simulator_iterations(MASKED_ALGORITHM, rounds)))
        options.progress("peer overhead", turn + 1, repeats)
    timings = Timings(seconds)
    ours, simulator = timings.median("peers"), timings.median("simulator")
    return BenchResult(
        "peer",
        "overhead",
        timings.ratio("peers", "simulator"),
        ours,
        simulator,
        "iteration of five clients",
        repeats,
        "iteration of five nodes / iteration of the simulator",
        details={"seconds_on_top": ours - simulator},
    )


MEASUREMENTS: dict[str, Callable[[BenchOptions], BenchResult]] = {
    "bytes": _bytes,
    "speed": _speed,
    "overhead": _overhead,
}
WORKLOADS = tuple(MEASUREMENTS)
DEFAULTS = {"cpu": WORKLOADS, "cuda": ()}


def _check_installed() -> None:
    for package in EXTRA:
        try:
            found = find_spec(package)
        except ModuleNotFoundError:  # of the package it is in
            found = None
        if found is None:
            raise Misuse(
                f"The bench `peer` needs the package {package}, which is not installed.",
                INSTALL_PEER,
            )
