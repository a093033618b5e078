"""Measure of training with the squared norm of the full gradient at the average model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor
from torch.func import grad

from tacit.auditing.scoring.truth import Truth
from tacit.config.build import Experiment
from tacit.config.sections import Config
from tacit.core.devices import float32_products
from tacit.core.errors import Misuse
from tacit.core.storage import write_json
from tacit.engines.simulation import Simulation
from tacit.record.history import decibels
from tacit.tasks.flat import Loss, ModuleLoss
from tacit.tasks.parts import Part
from tacit_papers.framework.cells import FieldDescription, MeasureContext, Values, rounded
from tacit_papers.measures.training import Training

CHUNK = 1_000  # samples whose gradient is taken at a time


@dataclass(frozen=True)
class GradientNorms(FieldDescription):
    """`Training`, and the mean of ‖∇J(w̄)‖² over all iterations, and over the second half (`late`).

    J is the mean of all clients' losses, each over all of its data, or its first `samples`; w̄ is
    the average of their models. It falls steeply at first: norms are taken after 0, 1, 2, 4, …
    iterations and after every `every`-th, and means are those of the lines between them.
    """

    label = ("gradient_norms", "config")
    config: Config
    every: int = 100
    samples: int | None = None

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        context.scratch.mkdir(parents=True, exist_ok=True)
        recorder = _NormRecorder(context.scratch / "norms.json", self.samples)
        listener = context.listener

        def on_start(experiment: Experiment, simulation: Simulation) -> None:
            recorder.start(simulation)
            listener.on_start(experiment, simulation)

        def on_step(simulation: Simulation) -> None:
            t = simulation.t
            if t % self.every == 0 or (t < self.every and t.bit_count() == 1):
                recorder.record(t, simulation.state.theta)
            listener.on_step(simulation)

        recording = replace(listener, on_start=on_start, on_step=on_step)
        inner = replace(context, scratch=context.scratch / "run", listener=recording)
        values = Training(self.config)(seed, inner)
        steps = sorted(recorder.norms)
        norms = [recorder.norms[t] for t in steps]
        means = [mean_over_time(steps[: n + 1], norms[: n + 1]) for n in range(len(steps))]
        half = next(n for n, t in enumerate(steps) if 2 * t >= steps[-1])
        late = mean_over_time(steps[half:], norms[half:])
        return values | {
            "gradient_norm_db": rounded(decibels(means[-1])),
            "late_gradient_norm_db": rounded(decibels(late)),
            "gradient_norms": {
                "step": steps,
                "norm": [rounded(norm) for norm in norms],
                "mean": [rounded(mean) for mean in means],
            },
        }


class _NormRecorder:
    """Squared norms by iteration, also in a file, for a run that is continued."""

    def __init__(self, path: Path, samples: int | None) -> None:
        self._path, self._samples = path, samples
        stored: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
        self.norms = {int(t): norm for t, norm in stored.items()}

    def start(self, simulation: Simulation) -> None:
        task, device = simulation.task, simulation.device
        loss, truth = task.loss, Truth(task, 0)
        parts = [truth.members(client) for client in range(task.clients)]
        if not isinstance(loss, ModuleLoss) or any(part is None for part in parts):
            raise Misuse("This task has no stored data.", "Name a dataset and a model.")
        self._loss = loss.to(device)
        self._parts = [
            tuple(array[: self._samples].to(device) for array in part)
            for part in parts
            if part is not None
        ]
        if simulation.state is None:
            self.norms = {}
            self.record(0, simulation.here.theta0)

    def record(self, t: int, theta: Tensor) -> None:
        """The norm at the average of the models theta [N, P] after iteration t."""
        gradient = full_gradient(self._loss, self._parts, theta.mean(0))
        self.norms[t] = float(gradient.square().sum())
        write_json(self._path, self.norms)


def mean_over_time(steps: Sequence[int], values: Sequence[float]) -> float:
    """The mean of the lines between values at some steps."""
    if len(steps) == 1:
        return values[0]
    areas = [(t - s) * (a + b) / 2 for (s, a), (t, b) in pairwise(zip(steps, values, strict=True))]
    return sum(areas) / (steps[-1] - steps[0])


@float32_products()
def full_gradient(loss: Loss, parts: Sequence[Part], weights: Tensor) -> Tensor:
    """∇ (1/K) Σₖ (1/Nₖ) Σₙ loss of sample n of client k [P], in float64."""
    total = torch.zeros_like(weights, dtype=torch.float64)
    for arrays in parts:
        for pieces in zip(*(torch.split(array, CHUNK) for array in arrays), strict=True):
            share = len(pieces[0]) / len(arrays[0]) / len(parts)
            total += share * grad(loss)(weights, *pieces).detach()
    return total
