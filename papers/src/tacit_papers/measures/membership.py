"""Was a sample among those that a node trains on? Asked of its gradients, or of their sum over an honest component."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tacit.auditing.attacks.membership import gradient_cosine_score
from tacit.auditing.attacks.memberships import Candidates
from tacit.auditing.scoring.roc import Roc
from tacit.auditing.scoring.truth import Truth
from tacit.auditing.symbolic.findings import Question
from tacit.config.sections import Config
from tacit.core.errors import Misuse
from tacit.tasks.flat import ModuleLoss
from tacit_papers.framework.artifact import MeasureContext, Values
from tacit_papers.measures.later_evidence import LaterEvidence
from tacit_papers.measures.overheard import component
from tacit_papers.measures.training import rounded

POINTS = 40  # of a ROC curve that are kept


@dataclass(frozen=True)
class MembershipMeasure:
    """AUC of the gradient cosine (Li, Li and Ribeiro 2022): members of the victim's data against the test set.

    The cosine of a candidate's gradient with the evidence is averaged over the iterations at which there is evidence.
    """

    config: Config
    question: Question  # gradient or sum
    iterations: tuple[int, ...]
    honest: int = 1
    victims: int = 4

    def describe(self) -> dict[str, Any]:
        """Configuration, evidence and when."""
        return {
            "membership by": self.question,
            "config": self.config.as_dict(),
            "iterations": list(self.iterations),
            "honest": self.honest,
            "victims": self.victims,
        }

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """Train, listen, score."""
        later = LaterEvidence.of(self.config, self.iterations, seed, place)
        curves = [self._roc(later, victim, seed, place) for victim in range(self.victims)]
        fpr = [k / POINTS for k in range(POINTS + 1)]
        shown = torch.tensor([_read(roc, fpr) for roc in curves]).mean(0).tolist()
        areas = [roc.auc for roc in curves]
        return {
            "auc": rounded(statistics.fmean(areas)),
            "auc_per_victim": [rounded(area) for area in areas],
            "curve": {
                "false positives": fpr,
                "true positives": [rounded(value) for value in shown],
            },
        }

    def _roc(self, later: LaterEvidence, victim: int, seed: int, place: MeasureContext) -> Roc:
        truth = Truth(later.task, seed)
        candidates = Candidates.of(truth.members(victim), truth.outsiders(victim), seed)
        loss = later.task.loss
        if candidates is None or not isinstance(loss, ModuleLoss):
            raise Misuse("A client has too few samples to ask for members.", "Give it more.")
        clients = (
            component(later.graph, victim, self.honest) if self.question == "sum" else [victim]
        )
        held = [later.held(clients, self.question, iteration) for iteration in self.iterations]
        own = [one.terms.index(next(u for u in one.terms if u.client == victim)) for one in held]
        points = torch.stack(
            [one.points[k] for one, k in zip(held, own, strict=True) if one.points is not None]
        )
        values = torch.stack([one.values for one in held]).to(points)
        x, y = candidates.x.to(place.device), candidates.y.to(place.device)
        scores = gradient_cosine_score(loss.to(place.device), points, values, x, y).cpu()
        return Roc.from_scores(scores[candidates.members], scores[~candidates.members])


def _read(roc: Roc, fpr: list[float]) -> list[float]:
    """The true positives at given false ones, along the lines of the curve."""
    return [float(value) for value in np.interp(fpr, roc.fpr, roc.tpr)]
