"""Times the private gradient: Poisson sample, gradients per sample, clipping, sum per client.

    python benches/scripts/private_step.py                            # CPU
    python benches/scripts/private_step.py --device cuda --repeats 50

All cases process the same expected number of samples with the same network, and take turns, so that
a busy machine slows all alike. Prints the median time per batch of each case and the median of its
ratio to the plain gradient, turn by turn. Opacus is included if it is installed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

import tacit
from tacit.core.randomness import Philox
from tacit.core.workers import WorkerPool
from tacit.engines.gradients.objective import HostedObjective
from tacit.tasks.parts import Parts

SAMPLES, BOUND = 60_000, 0.1
# Does one batch and returns its number of samples.
Case = Callable[[int], int]


def network() -> nn.Module:
    """The convolutional network of 26,010 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 8, stride=2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, stride=2), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10),
    )  # fmt: skip


def hosted(
    clients: int, batch: int, images: Tensor, labels: Tensor, device: str, pool: WorkerPool
) -> HostedObjective:
    """All clients with equal parts of the data; `batch` samples in all per plain gradient."""
    parts = Parts.split((images, labels), torch.arange(SAMPLES).tensor_split(clients))
    task = tacit.Task(network(), parts, batch_size=max(1, batch // clients)).to(device)
    ids = torch.arange(clients)
    loader = task.loader(ids, 0, device)
    return HostedObjective(task, range(clients), loader, "stacked", 0, device, pool)


def plain_case(objective: HostedObjective) -> Case:
    theta = objective.theta0()
    out = torch.empty_like(theta)

    def run(turn: int) -> int:
        objective.grad(theta, turn, out)
        return len(theta) * (objective.task.batch_size or 0)

    return run


def private_case(objective: HostedObjective, batch: int, shared: bool, draw: bool) -> Case:
    """Sums of clipped gradients, of one model or of one per client."""
    theta = objective.theta0()
    theta = theta[:1].expand_as(theta) if shared else theta
    out = torch.empty(theta.shape, device=theta.device)
    randomness = Philox(0, theta.shape[1])

    def sample(turn: int) -> tacit.tasks.poisson.PoissonSample:
        return objective.poisson_sample(
            batch / SAMPLES, lambda ids, width: randomness.words("sample", turn, ids, width)
        )

    drawn = [sample(turn) for turn in range(8)]

    def run(turn: int) -> int:
        now = sample(turn) if draw else drawn[turn % len(drawn)]
        objective.clipped_sum_of(theta, now, BOUND, out)
        return len(now.index)

    return run


def draw_case(objective: HostedObjective, batch: int) -> Case:
    randomness = Philox(0, 1)

    def run(turn: int) -> int:
        sample = objective.poisson_sample(
            batch / SAMPLES, lambda ids, width: randomness.words("sample", turn, ids, width)
        )
        return len(sample.index)

    return run


def with_workers(run: Case, pool: WorkerPool) -> Case:
    """The case while torch itself has one thread, as in a simulation."""

    def exclusive(turn: int) -> int:
        with pool.exclusive():
            return run(turn)

    return exclusive


def opacus_cases(batch: int, images: Tensor, labels: Tensor, device: str) -> dict[str, Case]:
    """Gradients per sample, clipped and summed, by Opacus; none if it is not installed."""
    try:
        from opacus import GradSampleModule
        from opacus.grad_sample import GradSampleModuleFastGradientClipping
        from opacus.optimizers import DPOptimizerFastGradientClipping
        from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
    except ModuleNotFoundError:
        return {}
    warnings.filterwarnings("ignore", module="torch")
    x, y = images[:batch].to(device), labels[:batch].to(device)
    default = GradSampleModule(network().to(device), loss_reduction="sum")
    ghost = GradSampleModuleFastGradientClipping(
        network().to(device), max_grad_norm=BOUND, use_ghost_clipping=True, loss_reduction="sum"
    )
    optimizer = DPOptimizerFastGradientClipping(
        torch.optim.SGD(ghost.parameters(), lr=0.1), noise_multiplier=0.0, max_grad_norm=BOUND,
        expected_batch_size=batch, loss_reduction="sum",
    )  # fmt: skip
    criterion = DPLossFastGradientClipping(
        ghost, optimizer, nn.CrossEntropyLoss(reduction="sum"), loss_reduction="sum"
    )

    def run_default(turn: int) -> int:
        default.zero_grad()
        functional.cross_entropy(default(x), y, reduction="sum").backward()
        weights = [p.grad_sample.flatten(1) for p in default.parameters()]
        norms = torch.stack([w.norm(dim=1) for w in weights]).norm(dim=0)
        factors = (BOUND / (norms + 1e-6)).clamp(max=1.0)
        for parameter, own in zip(default.parameters(), weights, strict=True):
            parameter.grad = (factors @ own).view_as(parameter)
        return batch

    def run_ghost(turn: int) -> int:
        optimizer.zero_grad()
        criterion(ghost(x), y).backward()
        return batch

    return {"Opacus": run_default, "Opacus, ghost clipping": run_ghost}


def measured(cases: dict[str, Case], repeats: int, batch: int, device: str) -> list[dict]:
    """Seconds per `batch` samples of each case in each turn."""
    turns = []
    for turn in range(-2, repeats):
        seconds = {}
        for name, run in cases.items():
            begin = time.perf_counter()
            samples = run(turn + 2)
            if device == "cuda":
                torch.cuda.synchronize()
            seconds[name] = (time.perf_counter() - begin) / samples * batch
        if turn >= 0:
            turns.append(seconds)
    return turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=2048, help="expected samples per gradient")
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--many", type=int, default=1000, help="clients in the case of many")
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--no-opacus", action="store_true")
    options = parser.parse_args()
    batch, device = options.batch, options.device
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(SAMPLES, 1, 28, 28, generator=generator)
    labels = torch.randint(10, (SAMPLES,), generator=generator)
    pool = WorkerPool.for_device(device)
    some, one, many = (
        hosted(clients, batch, images, labels, device, pool)
        for clients in (options.clients, 1, options.many)
    )
    cases: dict[str, Case] = {
        "plain": plain_case(some),
        "private": private_case(some, batch, shared=True, draw=False),
        "private, with the draw": private_case(some, batch, shared=True, draw=True),
        "private, a model each": private_case(some, batch, shared=False, draw=False),
        "private, one client": private_case(one, batch, shared=True, draw=False),
        f"private, {options.many} clients": private_case(many, batch, shared=True, draw=False),
        "draw": draw_case(some, batch),
    }
    cases = {name: with_workers(run, pool) for name, run in cases.items()}
    if not options.no_opacus:
        cases |= opacus_cases(batch, images, labels, device)
    turns = measured(cases, options.repeats, batch, device)
    for name in turns[0]:
        seconds = [turn[name] for turn in turns]
        ratios = [turn[name] / turn["plain"] for turn in turns]
        print(
            json.dumps(
                {"case": name, "milliseconds": round(1e3 * statistics.median(seconds), 3),
                 "ratio": round(statistics.median(ratios), 3)}
            )
        )  # fmt: skip


if __name__ == "__main__":
    main()
