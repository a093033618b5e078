"""Deep leakage from gradients (DLG) on the first tracker that a client sends, taken for its gradient.

That is the attack of the LPPA paper's Table 2: a neighbour has θ⁰ and γ⁰ of a client, and searches an input and a label
whose gradient at θ⁰ is γ⁰. Without noise γ⁰ is the gradient; with noise the search goes astray, the farther the more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.auditing.attacks.inversion import invert
from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.observation import Observation
from tacit.auditing.scoring.images import mse
from tacit.auditing.scoring.truth import Truth
from tacit.config.build import build
from tacit.config.loading import with_keys
from tacit.config.sections import Config
from tacit.record.transcript import Keep, Transcript
from tacit.simulation import Setting, Simulation
from tacit.tasks.flat import ModuleLoss
from tacit_papers.framework.artifact import MeasureContext, Values


@dataclass(frozen=True)
class FirstMessageInversion:
    """Mean square error per number of the inputs that DLG finds, over all clients; each client has a batch of one."""

    config: Config
    iterations: int = 300

    def describe(self) -> dict[str, Any]:
        """The experiment and the search."""
        return {"first message inverted": self.config.as_dict(), "iterations": self.iterations}

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """Attack every client of a run with this seed."""
        experiment = build(
            with_keys(self.config, "run", seed=seed, device=place.device),
            dataset=place.dataset(self.config),
        )
        task = experiment.task
        loss = task.loss
        assert isinstance(loss, ModuleLoss)
        transcript = Transcript(Keep(ticks=(0, 1)))
        run = Simulation(Setting(experiment.algorithm, task, experiment.graph, seed=seed, device=place.device), transcript=transcript)
        run.start()
        run.step()
        theta, gamma = (transcript.of(tag)[0].rows.float() for tag in ("theta", "gamma"))
        truth = Truth(task, seed)
        batches = [truth.batch(client, 0) for client in range(task.clients)]
        inputs = torch.stack([batch[0] for batch in batches])  # [V, 1, *shape]
        classes = loss.flat(loss.flat.weights(), inputs[0].to(loss.flat.dtype)).shape[1]
        found = invert(
            loss,
            Observation.gradient(theta, gamma),
            shape=tuple(inputs.shape[2:]),
            batch=1,
            classes=classes,
            labels="optimise",
            optimiser=LBFGS(iterations=self.iterations),
            restarts=1,
            seed=seed,
            box=None,
            progress=lambda done, of, _: place.said("inverting the first message", done, of),
        )
        guess = found.inputs.cpu()
        errors = mse(guess.flatten(0, 1), inputs.to(guess).flatten(0, 1))
        labels = torch.stack([batch[1] for batch in batches])
        return {
            "mse": float(errors.mean()),
            "median_mse": float(errors.median()),
            "errors": [float(error) for error in errors],
            "labels_found": float((found.labels.cpu() == labels).double().mean()),
            "pictures": _pictures(inputs[:, 0], guess[:, 0]) if inputs.ndim == 5 else None,
        }


def _pictures(truth: Tensor, guess: Tensor) -> list[list[list[float]]]:
    """Truth and guess of the first client, the mean over colours, for the figure."""
    return [
        [[round(float(x), 2) for x in row] for row in one[0].mean(0).tolist()]
        for one in (truth, guess)
    ]
