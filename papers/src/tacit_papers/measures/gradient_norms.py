"""A measure: training, with the squared norm of the whole gradient at the average model on the way."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.func import grad

from tacit.auditing.scoring.truth import Truth
from tacit.config.build import Experiment
from tacit.config.sections import Config
from tacit.core.errors import Misuse
from tacit.core.storage import write_json
from tacit.record.history import decibels
from tacit.simulation import Simulation
from tacit.tasks import Task
from tacit.tasks.flat import Loss, ModuleLoss
from tacit.tasks.parts import Part
from tacit_papers.framework.artifact import MeasureContext, Values
from tacit_papers.measures.training import Training, rounded

SAMPLES = 1_000  # whose gradient is taken at a time


@dataclass(frozen=True)
class GradientNorms:
    """What `Training` gives, and the mean of ‖∇J(w̄)‖² over all iterations so far; `late` is over the second half.

    J is the mean of all clients' losses, each over all of its data, or the first `samples` of it; w̄ is the average of
    their models. It falls steeply at first: norms are taken after 0, 1, 2, 4, … iterations, later after every
    `every`-th, and means are those of the lines between them.
    """

    config: Config
    every: int = 100
    samples: int | None = None

    def describe(self) -> dict[str, Any]:
        """The configuration, how often, and on how many samples."""
        return {
            "gradient_norms": self.config.as_dict(),
            "every": self.every,
            "samples": self.samples,
        }

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """Run; norms found before an interruption are kept beside the run."""
        place.scratch.mkdir(parents=True, exist_ok=True)
        norms = _Norms(place.scratch / "norms.json", self.every, self.samples)

        def on_start(experiment: Experiment, simulation: Simulation) -> None:
            norms.begin(simulation)
            place.watcher.on_start(experiment, simulation)

        def on_step(simulation: Simulation) -> None:
            if norms.due(simulation.t):
                norms.look(simulation.t, simulation.state.theta)
            place.watcher.on_step(simulation)

        watcher = replace(place.watcher, on_start=on_start, on_step=on_step)
        values = Training(self.config)(
            seed, replace(place, scratch=place.scratch / "run", watcher=watcher)
        )
        steps = sorted(norms.found)
        found = [norms.found[t] for t in steps]
        means = [mean_over_time(steps[: n + 1], found[: n + 1]) for n in range(len(steps))]
        half = next(n for n, t in enumerate(steps) if 2 * t >= steps[-1])
        return values | {
            "gradient_norm_db": rounded(decibels(means[-1])),
            "late_gradient_norm_db": rounded(decibels(mean_over_time(steps[half:], found[half:]))),
            "gradient_norms": {
                "step": steps,
                "norm": [rounded(norm) for norm in found],
                "mean": [rounded(mean) for mean in means],
            },
        }


class _Norms:
    """Squared norms by iteration, in a file as well."""

    def __init__(self, path: Path, every: int, samples: int | None) -> None:
        self.path, self.every, self.samples = path, every, samples
        kept: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
        self.found = {int(t): norm for t, norm in kept.items()}

    def begin(self, simulation: Simulation) -> None:
        """Before a run begins, or goes on."""
        self.loss, self.parts = _data(simulation.task, self.samples, simulation.device)
        if simulation.state is None:
            self.found = {}
            self.look(0, simulation.here.theta0)

    def due(self, t: int) -> bool:
        """Whether the models after iteration t are looked at."""
        return t % self.every == 0 or (t < self.every and t.bit_count() == 1)  # a power of two

    def look(self, t: int, theta: Tensor) -> None:
        """At models theta [N, P] after iteration t."""
        self.found[t] = float(whole_gradient(self.loss, self.parts, theta.mean(0)).square().sum())
        write_json(self.path, self.found)


def mean_over_time(steps: Sequence[int], values: Sequence[float]) -> float:
    """Of the lines between values at some steps."""
    if len(steps) == 1:
        return values[0]
    areas = [(t - s) * (a + b) / 2 for (s, a), (t, b) in pairwise(zip(steps, values, strict=True))]
    return sum(areas) / (steps[-1] - steps[0])


def whole_gradient(loss: Loss, parts: Sequence[Part], weights: Tensor) -> Tensor:
    """∇ (1/K) Σₖ (1/Nₖ) Σₙ loss of sample n of client k [P], in float64; the loss is a mean over samples."""
    total = torch.zeros_like(weights, dtype=torch.float64)
    for arrays in parts:
        for pieces in zip(*(torch.split(array, SAMPLES) for array in arrays), strict=True):
            share = len(pieces[0]) / len(arrays[0]) / len(parts)
            total += share * grad(loss)(weights, *pieces).detach()
    return total


def _data(task: Task, samples: int | None, device: torch.device | str) -> tuple[Loss, list[Part]]:
    """The loss, and all clients' data or the first samples of them."""
    loss, truth = task.loss, Truth(task, 0)
    held = [truth.members(client) for client in range(task.clients)]
    if not isinstance(loss, ModuleLoss) or any(part is None for part in held):
        raise Misuse("This task has no data of its own.", "Name a dataset and a model.")
    return loss.to(device), [
        tuple(array[:samples].to(device) for array in part) for part in held if part is not None
    ]
