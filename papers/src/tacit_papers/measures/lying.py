"""Accuracy of the honest clients while another one lies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch

from tacit.config.build import Experiment, build
from tacit.config.sections import Config
from tacit.data import Dataset
from tacit.engines.lying import Lie, Lying
from tacit.engines.simulation import Simulation
from tacit_papers.framework.cells import FieldDescription, MeasureContext, Values, rounded

LABELS: Literal["label-flip"] = "label-flip"
HONEST: Literal["none"] = "none"


@dataclass(frozen=True)
class LyingTraining(FieldDescription):
    """Mean and worst accuracy of the honest clients' own models at the end of a run.

    The lie is one of `tacit.engines.lying`, "none", or "label-flip": class c is trained as the last
    class − c.
    """

    label = ("training with a liar", "config")
    config: Config
    lie: Lie | Literal["label-flip", "none"] = HONEST
    scale: float = 1.0
    liar: int = 3

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        experiment = context.experiment(self.config, seed)
        setting = experiment.setting
        if self.lie == LABELS:
            setting = _with_flipped_labels(experiment, self.liar).setting
        elif self.lie != HONEST:
            lying = Lying(setting.algorithm, (self.liar,), self.lie, self.scale)
            setting = replace(setting, algorithm=lying)
        simulation = Simulation(
            setting, allow_divergence=True, round_length=experiment.round_length
        )
        simulation.start()
        while simulation.t < experiment.steps:
            simulation.step()
            context.progress("training", simulation.t, experiment.steps)
        honest = [client for client in range(experiment.graph.clients) if client != self.liar]
        evaluation = experiment.task.to(context.device).evaluation
        # What is not a number has the accuracy of a model that always gives one class.
        theta = torch.nan_to_num(simulation.state.theta[honest], 0.0, 0.0, 0.0)
        accuracy = evaluation.models(theta, honest).accuracy
        assert accuracy is not None
        return {
            "accuracy": rounded(float(accuracy.mean())),
            "worst": rounded(float(accuracy.min())),
        }


def _with_flipped_labels(experiment: Experiment, liar: int) -> Experiment:
    dataset, partition = experiment.dataset, experiment.partition
    assert isinstance(dataset, Dataset)
    assert partition is not None
    labels = dataset.train.y.clone()
    own = torch.as_tensor(partition.indices[liar])
    labels[own] = dataset.classes - 1 - labels[own]
    changed = replace(dataset, train=replace(dataset.train, y=labels))
    return build(experiment.config, dataset=changed)
