"""Membership attacks: which samples a model or gradients were trained on."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tacit.auditing.attacks.candidates import Candidates, distinct
from tacit.auditing.attacks.confidence_scores import (
    GAMMA,
    choose_interpolation,
    confidence,
    likelihood_ratio_score,
    rmia_score,
)
from tacit.auditing.attacks.data_spec import batch_size, reuses_batches
from tacit.auditing.attacks.evidence import Evidence
from tacit.auditing.attacks.membership_scores import (
    gradient_cosine_score,
    gradient_norm_score,
    loss_score,
)
from tacit.auditing.attacks.sample_weights import sample_weight_score
from tacit.auditing.attacks.shadow_models import MIN_POPULATION, ModelId, ShadowModels
from tacit.auditing.options import AttackOptions, Progress
from tacit.auditing.scoring.lower_bound import LowerBound, lower_bound
from tacit.auditing.scoring.roc import Roc
from tacit.auditing.scoring.truth import Truth
from tacit.engines.setting import Setting
from tacit.tasks.flat import ModuleLoss


@dataclass(frozen=True, eq=False)
class MembershipResult:
    """The ROC curve of one score, and a lower bound on ε that follows from it."""

    victim: int
    score: str
    roc: Roc
    lower: LowerBound
    assumptions: list[str]
    # With a guarantee for the audited iterations; False if a later model was attacked.
    comparable: bool
    cut_short: bool = False  # stopped by the time budget

    def as_dict(self) -> dict[str, Any]:
        return {
            "victim": self.victim,
            "score": self.score,
            **self.roc.as_dict(),
            "epsilon_at_least": self.lower.epsilon,
            "confidence": self.lower.confidence,
            "assumptions": self.assumptions,
            "cut_short": self.cut_short,
        }


@dataclass(frozen=True, eq=False)
class KnownModels:
    """Models of one client that an adversary has; their scores are averaged."""

    theta: Tensor  # [T, P]
    ids: tuple[ModelId, ...]  # T
    description: str
    audited: bool  # whether they are of the audited iterations


class MembershipAttacks:
    """Attacks on the membership of one victim's samples.

    All adversaries share one set of shadow models.

    Args:
        setting: The attacked run.
        truth: The victims' data; only scores are computed from it.
        victim: The client whose samples are at stake.
        record: Models that may be attacked, as shadow federations have to record them.
        delta: Lower bounds on ε are for this δ.
        options: How hard attacks try.
        progress: Called with the activity, the steps done and the steps in all.
    """

    def __init__(
        self,
        setting: Setting,
        truth: Truth,
        victim: int,
        record: Sequence[ModelId],
        delta: float,
        options: AttackOptions,
        progress: Progress,
    ) -> None:
        assert isinstance(truth.task.loss, ModuleLoss)  # checked by why_not_attackable
        self._loss = truth.task.loss.evaluated().to(options.device)
        self.victim, self._truth, self._delta = victim, truth, delta
        self._options = options
        members, others = truth.members(victim), truth.non_members(victim)
        self.candidates = Candidates.of(members, others, options.seed)
        self._shadows = None
        if self.candidates is not None:
            self._shadows = ShadowModels(
                setting, victim, self.candidates, record, options, progress
            )

    def on_models(self, known: KnownModels) -> list[MembershipResult]:
        """Attacks by models that the adversary has; empty if there are too few samples."""
        candidates, shadows = self.candidates, self._shadows
        if candidates is None or shadows is None:
            return []
        loss, (x, y) = self._loss, candidates.to(self._options.device)
        models = known.theta.to(self._options.device, loss.flat.dtype)
        score = partial(self._result, candidates, known.audited)
        words = [known.description]
        results = [
            score(name, torch.stack([by(loss, theta, x, y) for theta in models]).mean(0), words)
            for name, by in (("loss", loss_score), ("gradient norm", gradient_norm_score))
        ]
        if (references := shadows.of(known.ids)) is None:
            return results
        cut, held = references.cut_short, references.held
        words = [*words, references.description]
        phi = confidence(loss, models, x, y).double().mean(0).cpu()
        ratios = likelihood_ratio_score(phi, references.phi, held)
        results.append(score("likelihood ratio", ratios, words, cut))
        population = [array.to(self._options.device) for array in shadows.population]
        if len(population[0]) < MIN_POPULATION:
            return results
        z = confidence(loss, models, *population).double().mean(0).cpu()
        others = references.phi, references.population, held
        a = choose_interpolation(*others)
        words = [
            *words,
            f"RMIA: {len(z)} samples of the population, γ = {GAMMA:g}, a = {a:g} chosen on shadow "
            "models",
        ]
        return [*results, score("RMIA", rmia_score(phi, z, *others, a=a), words, cut)]

    def on_evidence(self, found: list[Evidence], count: int, name: str) -> list[MembershipResult]:
        """Attacks by gradients or combinations of them: was a sample in one of their batches?

        Args:
            found: Evidence with known points, all exact or all noisy.
            count: How many such pieces the adversary has.
            name: What they are.
        """
        task, victim = self._truth.task, self.victim
        # Samples of the victim behind the evidence, each once.
        numbers = {u.when for piece in found for u in piece.terms if u.client == victim}
        if reuses_batches(task):
            numbers = set(list(numbers)[:1])
        held = distinct([self._truth.batch(victim, number) for number in sorted(numbers)])
        others = self._truth.non_members_as_seen(victim)
        candidates = Candidates.of(held, others, self._options.seed)
        if candidates is None:
            return []
        dtype, device = self._loss.flat.dtype, self._options.device
        x, y = candidates.to(device)
        words = [
            f"{name}: {len(found)} of {count} used; the question is whether a sample was in one "
            "of their batches"
        ]
        known = [
            replace(piece, values=piece.values.to(device), points=piece.points.to(device, dtype))
            for piece in found
            if piece.points is not None
        ]
        results = []
        if all(len(piece.terms) == 1 for piece in known):
            points = torch.cat([piece.points for piece in known if piece.points is not None])
            values = torch.stack([piece.values.to(dtype) for piece in known])
            scores = gradient_cosine_score(self._loss, points, values, x, y, over="max")
            results.append(self._result(candidates, True, "gradient cosine", scores, words))
        end = time.monotonic() + self._options.seconds
        scores, used = sample_weight_score(
            self._loss,
            known,
            x,
            y,
            batch=batch_size(task, victim),
            reused=reuses_batches(task),
            clipped=task.clip is not None,
            out_of_time=lambda: time.monotonic() > end,
        )
        words = [*words, *_caveats(known, len(x), used, task.clip is not None)]
        cut = used < len(known)
        results.append(self._result(candidates, True, "least squares", scores, words, cut))
        return results

    def _result(
        self,
        candidates: Candidates,
        comparable: bool,
        name: str,
        scores: Tensor,
        known: list[str],
        cut_short: bool = False,
    ) -> MembershipResult:
        members, scores = candidates.members, scores.cpu()
        inside, outside = scores[members].double().numpy(), scores[~members].double().numpy()
        assumptions = ["half of the candidates are members, classes balanced", *known]
        if not self._truth.has_test_set:
            assumptions.append(
                "the others are data of other clients, which trained the shared model as well"
            )
        return MembershipResult(
            self.victim,
            name,
            Roc.from_scores(inside, outside),
            lower_bound(inside, outside, self._delta),
            assumptions,
            comparable and self._truth.has_test_set,
            cut_short,
        )


def _caveats(known: Sequence[Evidence], count: int, used: int, clipped: bool) -> list[str]:
    """What a reader must know about weights by least squares."""
    caveats = []
    width = len(known[0].values)
    columns = max(len(piece.terms) for piece in known) * count
    if columns >= width:
        caveats.append(
            f"{columns} unknown weights and {width} parameters: the weights are not unique, and "
            "the smallest were taken"
        )
    if any(term.client != piece.victim for piece in known for term in piece.terms):
        caveats.append("the batches of the other clients are modelled by the candidates as well")
    if clipped:
        caveats.append("gradients were clipped by unknown factors: weights are relative")
    if used < len(known):
        caveats.append(f"stopped by the time budget after {used} of {len(known)}")
    return caveats
