"""What peers cost, on loopback: bytes on the wire, the speed of a large letter, the time of an iteration.

bytes      what goes through the sockets, TLS, HTTP/2, questions and answers included, against the bytes of the
           numbers alone: 2·P·4·degree per node and iteration
speed      a letter pulled over mutual TLS against the same bytes through a plain TLS socket
overhead   an iteration of five nodes on a ring against the same iteration in the simulator
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from statistics import median

import torch

from tacit.bench.result import Asked, Result
from tacit.bench.stopwatch import Quartiles, Stopwatch, Timings
from tacit.bench.workloads import MASKED_RULE, PLAIN_RULE
from tacit.core.errors import Misuse

SUMMARY = "bytes / those of the numbers; speed / that of a plain TLS socket; an iteration / the simulator's"
EXTRA = ("cryptography", "google.protobuf", "grpc")  # what tacit[peer] installs
LETTER, QUICK_LETTER = 100_000_000, 10_000_000  # bytes


def offered(device: torch.device) -> tuple[str, ...]:
    """Peers train on the CPU here."""
    return WORKLOADS if device.type == "cpu" else ()


def measure(asked: Asked) -> Iterator[Result]:
    """What is asked for, if peers can run here."""
    _refuse_without_extra()
    for name in asked.workloads:
        asked.progress(f"peer {name}: preparing", 0, 1)
        yield MEASURES[name](asked)


def _bytes(asked: Asked) -> Result:
    from tacit.bench.peer_ring import DEGREE, PARAMETERS, bytes_per_iteration

    rounds = 2 if asked.quick else 20
    plain = bytes_per_iteration(PLAIN_RULE, rounds)
    masked = bytes_per_iteration(MASKED_RULE, rounds)
    numbers = 2 * PARAMETERS * 4 * DEGREE
    ratio = masked / numbers
    return Result(
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


def _speed(asked: Asked) -> Result:
    from tacit.bench.peer_message import pulls

    size = QUICK_LETTER if asked.quick else LETTER
    repeats = asked.repeats or (2 if asked.quick else 7)
    with pulls(size) as works:
        timings = Stopwatch().interleaved(works, repeats, turns=asked.turns_of("peer speed"))
    ours, plain = timings.median("letter"), timings.median("plain")
    return Result(
        "peer",
        "speed",
        timings.ratio("plain", "letter"),
        ours,
        plain,
        f"letter of {size / 1e6:.0f} MB",
        repeats,
        "speed of a letter / that of a plain TLS socket",
        "higher",
        {
            "ours_megabytes_per_second": size / ours / 1e6,
            "limit_megabytes_per_second": size / plain / 1e6,
        },
    )


def _overhead(asked: Asked) -> Result:
    from tacit.bench.peer_ring import peer_iterations, simulator_iterations

    rounds = 5 if asked.quick else 20
    repeats = asked.repeats or (1 if asked.quick else 3)
    seconds: dict[str, list[float]] = {"peers": [], "simulator": []}
    for turn in range(repeats):
        seconds["peers"].append(median(peer_iterations(MASKED_RULE, rounds)))
        seconds["simulator"].append(median(simulator_iterations(MASKED_RULE, rounds)))
        asked.progress("peer overhead", turn + 1, repeats)
    timings = Timings(seconds)
    return Result(
        "peer",
        "overhead",
        timings.ratio("peers", "simulator"),
        timings.median("peers"),
        timings.median("simulator"),
        "iteration of five clients",
        repeats,
        "an iteration of five nodes / that of the simulator",
        details={"seconds_on_top": timings.median("peers") - timings.median("simulator")},
    )


MEASURES: dict[str, Callable[[Asked], Result]] = {
    "bytes": _bytes,
    "speed": _speed,
    "overhead": _overhead,
}
WORKLOADS = tuple(MEASURES)


def _refuse_without_extra() -> None:
    for package in EXTRA:
        try:
            missing = find_spec(package) is None
        except ModuleNotFoundError:  # not even its parent is there
            missing = True
        if missing:
            raise Misuse(
                f"The bench of peers needs the package {package}, which is not installed.",
                "Install it: pip install 'tacit[peer]'.",
            )
