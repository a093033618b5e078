"""A run, and what its trained models tell of who was trained on: accuracy, rounds to a target, AUC of membership."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.auditing.attacks.membership import loss_score
from tacit.auditing.attacks.memberships import Candidates
from tacit.auditing.scoring.roc import Roc
from tacit.auditing.scoring.truth import Truth
from tacit.config.sections import Config
from tacit.core.errors import Misuse
from tacit.experiment.auditing import read_subject
from tacit.tasks.flat import ModuleLoss
from tacit.tasks.task import Task
from tacit_papers.framework.artifact import MeasureContext, Values
from tacit_papers.measures.training import Training

FALSE_POSITIVES = np.linspace(0.0, 1.0, 41)  # where the mean ROC curve is read off


@dataclass(frozen=True)
class AttackedTraining:
    """What `Training` gives, the first round with the target's accuracy, and the AUC against each client's model.

    Every client's trained model is taken to be known, as each neighbour is sent it. Candidates are samples of the
    client and as many of the test set, class by class, scored by their loss; the AUC is the mean over the clients.
    """

    config: Config
    target: float  # accuracy in percent

    def describe(self) -> dict[str, Any]:
        """The configuration, the target and how membership is scored."""
        return {**Training(self.config).describe(), "target": self.target, "membership": "loss"}

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """Train, then attack; a run that diverged has no model to attack."""
        values = Training(self.config)(seed, place)
        values["rounds"] = first_round(values["curve"], self.target)
        if "diverged" in values:
            return values | {"auc": None}
        subject = read_subject(
            place.scratch, data_folder=place.data_folder, dataset=place.dataset(self.config)
        )
        if subject.final is None:
            raise Misuse("The run left no trained models.", "Remove its folder and run it again.")
        return values | membership(subject.experiment.task, subject.final, seed, place)


def first_round(curve: dict[str, list[float]], target: float) -> float | None:
    """The first round recorded with at least this accuracy; None if there is none."""
    pairs = zip(curve["round"], curve["accuracy"], strict=True)
    return next(
        (when for when, accuracy in pairs if accuracy is not None and accuracy >= target), None
    )


def membership(task: Task, models: Tensor, seed: int, place: MeasureContext) -> Values:
    """The AUC of the loss and the ROC curve, both means over the clients; models [N, P]."""
    if not isinstance(task.loss, ModuleLoss):
        raise Misuse("Membership is asked of a task that trains no model.", "Give one with [data].")
    loss, truth = task.loss.to(place.device), Truth(task, seed)
    found = []
    for client in range(task.clients):
        place.said("membership inference", client + 1, task.clients)
        candidates = Candidates.of(truth.members(client), truth.outsiders(client), seed)
        if candidates is None:  # too few samples
            continue
        theta = models[client].to(place.device, loss.flat.dtype)
        scores = loss_score(
            loss, theta, candidates.x.to(place.device), candidates.y.to(place.device)
        )
        scores = torch.nan_to_num(scores.cpu().double(), nan=-torch.inf)
        found.append(Roc.from_scores(scores[candidates.members], scores[~candidates.members]))
    return {
        "auc": statistics.fmean(roc.auc for roc in found),
        "auc_of_clients": [roc.auc for roc in found],
        "roc": {"false": FALSE_POSITIVES.tolist(), "true": _mean_curve(found)},
    }


def _mean_curve(rocs: list[Roc]) -> list[float]:
    curves = [np.interp(FALSE_POSITIVES, roc.fpr, roc.tpr) for roc in rocs]
    return [round(float(value), 5) for value in np.mean(curves, axis=0)]
