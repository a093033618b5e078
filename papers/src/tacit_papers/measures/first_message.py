"""Measure of deep leakage from gradients (DLG) on the first tracker that a client sends.

The attack of the LPPA paper's Table 2: a neighbour has θ⁰ and γ⁰ of a client, takes γ⁰ for the
gradient, and searches an input and a label whose gradient at θ⁰ is γ⁰. Without noise γ⁰ is the
gradient; the more noise, the farther the search goes astray.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tacit.auditing.attacks.data_spec import DataSpec
from tacit.auditing.attacks.inversion import invert
from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.observation import Observation
from tacit.auditing.scoring.images import mse
from tacit.auditing.scoring.truth import Truth
from tacit.config.sections import Config
from tacit.record.transcript import Keep, Transcript
from tacit.tasks.flat import ModuleLoss
from tacit_papers.framework.cells import FieldDescription, MeasureContext, Values
from tacit_papers.framework.stored_values import packed


@dataclass(frozen=True)
class FirstMessageInversion(FieldDescription):
    """Mean square error per number of the inputs that DLG finds, for batches of one."""

    label = ("first message inverted", "config")
    config: Config
    iterations: int = 300

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        experiment = context.experiment(self.config, seed)
        task, loss = experiment.task, experiment.task.loss
        assert isinstance(loss, ModuleLoss)
        transcript = Transcript(Keep(ticks=(0, 1)))
        simulation = experiment.simulation(transcript)
        simulation.start()
        simulation.step()
        theta, gamma = (transcript.of(tag)[0].rows.float() for tag in ("theta", "gamma"))
        truth = Truth(task, seed)
        batches = [truth.batch(client, 0) for client in range(task.clients)]
        inputs, labels = (torch.stack([batch[part] for batch in batches]) for part in (0, 1))
        classes = loss.flat(loss.flat.weights(), inputs[0].to(loss.flat.dtype)).shape[1]
        found = invert(
            loss,
            Observation.gradient(theta, gamma),
            DataSpec(tuple(inputs.shape[2:]), classes=classes, box=None),
            labels="optimise",
            optimiser=LBFGS(iterations=self.iterations),
            restarts=1,
            seed=seed,
            progress=lambda i, of, _: context.progress("inverting the first message", i, of),
        )
        guess = found.inputs.cpu()
        errors = mse(guess.flatten(0, 1), inputs.to(guess).flatten(0, 1))
        # Truth and guess of the first client, averaged over the channels.
        pictures = [
            picture
            for images in (inputs, guess)
            if inputs.ndim == 5
            for picture in packed(images[0, :1].mean(1))
        ]
        return {
            "mse": float(errors.mean()),
            "median_mse": float(errors.median()),
            "errors": [float(error) for error in errors],
            "labels_found": float((found.labels.cpu() == labels).double().mean()),
            "truth_and_guess": pictures or None,
        }
