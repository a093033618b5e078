"""Keyed noise per second, compared with torch's generator, which has one stream and no keys.

`here.noise` and `here.edge_noise` are called as algorithms call them. Torch fills a new tensor of
the same size, with `exponential_` for Laplace noise and with `normal_` for Gaussian noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec

import torch

from tacit.core.here import Here
from tacit.core.noise import Gaussian, Laplace, Noise
from tacit.engines.setting import Generator
from tacit_benches.benchmark import BenchOptions, BenchResult
from tacit_benches.workloads import W2

SUMMARY = "numbers of keyed noise per second / numbers per second of torch's own generator"
LAWS: dict[str, Noise] = {"laplace": Laplace(1.0), "gaussian": Gaussian(1.0)}
CASES: dict[str, tuple[Generator, str, bool]] = {
    f"{prg}-{law}{'-edges' if edges else ''}": (prg, law, edges)
    for prg in ("philox", "chacha20")
    for law in LAWS
    for edges in (False, True)
}
WORKLOADS = tuple(CASES)
PHILOX = tuple(name for name in CASES if name.startswith("philox"))
# Keystreams need the CPU and the package cryptography.
DEFAULTS = {"cpu": WORKLOADS if find_spec("cryptography") else PHILOX, "cuda": PHILOX}
CLIENTS, QUICK_CLIENTS = 20, 5
REPEATS, QUICK_REPEATS = 11, 3


def measure(options: BenchOptions) -> Iterator[BenchResult]:
    workload = replace(W2, clients=QUICK_CLIENTS if options.quick else CLIENTS)
    images = workload.images()
    for name in options.workloads:
        prg, law, edges = CASES[name]
        here = workload.simulation(images, options.device, prg=prg).here.at(0)
        yield _measure(name, here, law, edges, options)


def _measure(name: str, here: Here, law: str, edges: bool, options: BenchOptions) -> BenchResult:
    def ours() -> torch.Tensor:
        if edges:
            return here.edge_noise("bench", LAWS[law])[0].tensor()
        return here.noise("bench", LAWS[law])

    shape = ours().shape

    def with_torch() -> torch.Tensor:
        fresh = torch.empty(shape, device=options.device)
        return fresh.exponential_() if law == "laplace" else fresh.normal_()

    functions = {"ours": ours, "torch": with_torch}
    timings = options.time(f"noise {name}", functions, REPEATS, QUICK_REPEATS)
    count = shape.numel()
    return BenchResult(
        "noise",
        name,
        timings.ratio("torch", "ours"),
        timings.median("ours"),
        timings.median("torch"),
        f"draw of {count:,} numbers",
        timings.repeats,
        "our numbers per second / those of torch's own generator",
        "higher",
        {
            "ours_numbers_per_second": count / timings.median("ours"),
            "limit_numbers_per_second": count / timings.median("torch"),
        },
    )
