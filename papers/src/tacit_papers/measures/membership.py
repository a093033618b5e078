"""Measures of membership inference: from trained models, and from gradients during training."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.auditing.attacks.candidates import Candidates
from tacit.auditing.attacks.membership_scores import gradient_cosine_score, loss_score
from tacit.auditing.scoring.roc import Roc
from tacit.auditing.scoring.truth import Truth
from tacit.auditing.symbolic.leakage import Question
from tacit.config.sections import Config
from tacit.core.errors import Misuse
from tacit.tasks.flat import ModuleLoss
from tacit.tasks.objective import Objective
from tacit_papers.framework.cells import FieldDescription, MeasureContext, Values, rounded
from tacit_papers.measures.model_snapshots import ModelSnapshots
from tacit_papers.measures.recorded_run import nearest_clients
from tacit_papers.measures.training import Training, load_trained

FALSE_POSITIVES = np.linspace(0.0, 1.0, 41)  # where mean ROC curves are evaluated


@dataclass(frozen=True)
class LossMembership:
    """`Training`, the first round with the target accuracy, and the AUC against clients' models.

    Every client's trained model counts as known, since its neighbours receive it. Candidates are
    samples of the client and as many of the test set, class by class, scored by their loss. The AUC
    is the mean over the clients.
    """

    config: Config
    target: float  # accuracy in percent

    def describe(self) -> dict[str, Any]:
        return {**Training(self.config).describe(), "target": self.target, "membership": "loss"}

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        values = Training(self.config)(seed, context)
        values["rounds"] = first_round(values["curve"], self.target)
        # A run that diverged has no model to attack.
        if "diverged" in values:
            return values | {"auc": None}
        subject = load_trained(self.config, context)
        if subject.final is None:
            raise Misuse("The run left no trained models.", "Remove its folder and run it again.")
        return values | loss_membership(subject.experiment.task, subject.final, seed, context)


def first_round(curve: dict[str, list[float]], target: float) -> float | None:
    """The first round recorded with at least this accuracy; None if there is none."""
    pairs = zip(curve["round"], curve["accuracy"], strict=True)
    return next((number for number, found in pairs if found is not None and found >= target), None)


def loss_membership(task: Objective, models: Tensor, seed: int, context: MeasureContext) -> Values:
    """AUC and ROC curve of the loss for models [N, P], both means over the clients."""
    truth, rocs = Truth(task, seed), []
    for client in range(task.clients):
        context.progress("membership inference", client + 1, task.clients)
        candidates = Candidates.of(truth.members(client), truth.non_members(client), seed)
        # Skip clients with too few samples.
        if candidates is None:
            continue
        loss, x, y = _on_device(task, candidates, context)
        scores = loss_score(loss, models[client].to(context.device, loss.flat.dtype), x, y)
        scores = torch.nan_to_num(scores.cpu().double(), nan=-torch.inf)
        rocs.append(_roc(scores, candidates))
    curve = np.mean([_true_positives(roc) for roc in rocs], axis=0)
    return {
        "auc": statistics.fmean(roc.auc for roc in rocs),
        "auc_of_clients": [roc.auc for roc in rocs],
        "roc": {
            "false": FALSE_POSITIVES.tolist(),
            "true": [round(float(value), 5) for value in curve],
        },
    }


@dataclass(frozen=True)
class GradientMembership(FieldDescription):
    """AUC of the gradient cosine (Li, Li and Ribeiro 2022), against samples of the test set.

    The cosine of a candidate's gradient with the evidence is averaged over the iterations. The
    evidence is a gradient, or the sum over the victim's component of `honest` nodes.
    """

    label = ("membership by", "question")
    config: Config
    question: Question  # gradient or sum
    iterations: tuple[int, ...]
    honest: int = 1
    victims: int = 4

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        snapshots = ModelSnapshots.record(self.config, self.iterations, seed, context)
        rocs = [
            self._victim_roc(snapshots, victim, seed, context) for victim in range(self.victims)
        ]
        curves = torch.tensor([_true_positives(roc) for roc in rocs])
        areas = [roc.auc for roc in rocs]
        return {
            "auc": rounded(statistics.fmean(areas)),
            "auc_per_victim": [rounded(area) for area in areas],
            "curve": {
                "false positives": FALSE_POSITIVES.tolist(),
                "true positives": [rounded(value) for value in curves.mean(0).tolist()],
            },
        }

    def _victim_roc(
        self, snapshots: ModelSnapshots, victim: int, seed: int, context: MeasureContext
    ) -> Roc:
        truth = Truth(snapshots.task, seed)
        candidates = Candidates.of(truth.members(victim), truth.non_members(victim), seed)
        if candidates is None:
            raise Misuse("A client has too few samples for membership inference.", "Give it more.")
        loss, x, y = _on_device(snapshots.task, candidates, context)
        clients = [victim]
        if self.question == "sum":
            clients = nearest_clients(snapshots.graph, victim, self.honest)
        evidence = [snapshots.evidence(clients, self.question, t) for t in self.iterations]
        # Clients are sorted: the model of the victim is at its place among them.
        points = torch.stack(
            [one.points[clients.index(victim)] for one in evidence if one.points is not None]
        )
        values = torch.stack([one.values for one in evidence]).to(points)
        return _roc(gradient_cosine_score(loss, points, values, x, y).cpu(), candidates)


def _on_device(
    task: Objective, candidates: Candidates, context: MeasureContext
) -> tuple[ModuleLoss, Tensor, Tensor]:
    if not isinstance(task.loss, ModuleLoss):
        raise Misuse("Membership inference needs a task with a model.", "Give one with [data].")
    device = context.device
    return task.loss.to(device), candidates.x.to(device), candidates.y.to(device)


def _roc(scores: Tensor, candidates: Candidates) -> Roc:
    return Roc.from_scores(scores[candidates.members], scores[~candidates.members])


def _true_positives(roc: Roc) -> list[float]:
    return [float(value) for value in np.interp(FALSE_POSITIVES, roc.fpr, roc.tpr)]
