"""Numbers of keyed noise per second against torch's own generator, which has one stream and no keys.

`here.noise` and `here.edge_noise` as an algorithm calls them; torch fills a new tensor of as many numbers by
`exponential_` where ours is Laplace, and by `normal_` where it is Gaussian.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import Literal

import torch

from tacit.bench.result import Asked, Result
from tacit.bench.stopwatch import Stopwatch, Work
from tacit.bench.workloads import W2
from tacit.core.here import Here
from tacit.core.noise import Gaussian, Laplace, Noise

SUMMARY = "numbers of keyed noise per second / numbers per second of torch's own generator"
Generator = Literal["philox", "chacha20"]
LAWS: dict[str, Noise] = {"laplace": Laplace(1.0), "gaussian": Gaussian(1.0)}
CASES: dict[str, tuple[Generator, str, bool]] = {
    f"{prg}-{law}{'-edges' if edges else ''}": (prg, law, edges)
    for prg in ("philox", "chacha20")
    for law in LAWS
    for edges in (False, True)
}
WORKLOADS = tuple(CASES)
CLIENTS, QUICK_CLIENTS = 20, 5
REPEATS, QUICK_REPEATS = 11, 3


def offered(device: torch.device) -> tuple[str, ...]:
    """Keystreams are made on the CPU, and only where the package for them is."""
    keystreams = device.type == "cpu" and find_spec("cryptography") is not None
    return tuple(name for name, (prg, _, _) in CASES.items() if prg == "philox" or keystreams)


def measure(asked: Asked) -> Iterator[Result]:
    """One generator and law after the other."""
    workload = replace(W2, clients=QUICK_CLIENTS if asked.quick else CLIENTS)
    images = workload.images()
    for name in asked.workloads:
        prg, law, edges = CASES[name]
        here = workload.simulation(images, asked.device, prg=prg).here.at(0)
        yield _measure(name, here, law, edges, asked)


def _measure(name: str, here: Here, law: str, edges: bool, asked: Asked) -> Result:
    def own() -> torch.Tensor:
        return here.noise("bench", LAWS[law])

    def shared() -> torch.Tensor:
        return here.edge_noise("bench", LAWS[law])[0].tensor()

    ours: Work = shared if edges else own
    shape = (shared() if edges else own()).shape

    def torchs() -> torch.Tensor:
        fresh = torch.empty(shape, device=asked.device)
        return fresh.exponential_() if law == "laplace" else fresh.normal_()

    repeats = asked.repeats or (QUICK_REPEATS if asked.quick else REPEATS)
    works = {"ours": ours, "torch": torchs}
    turns = asked.turns_of(f"noise {name}")
    timings = Stopwatch.on(asked.device).interleaved(works, repeats, turns=turns)
    count = shape.numel()
    return Result(
        "noise",
        name,
        timings.ratio("torch", "ours"),
        timings.median("ours"),
        timings.median("torch"),
        f"draw of {count:,} numbers",
        repeats,
        "our numbers per second / those of torch's own generator",
        "higher",
        {
            "ours_numbers_per_second": count / timings.median("ours"),
            "limit_numbers_per_second": count / timings.median("torch"),
        },
    )
