"""Membership attacks: which samples a model or gradients were trained on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from tacit.auditing.attacks.evidence import Evidence
from tacit.auditing.attacks.membership_scores import (
    gradient_cosine_score,
    gradient_norm_score,
    loss_score,
)
from tacit.auditing.attacks.reconstruction_attacks import AttackOptions, Progress
from tacit.auditing.attacks.shadow import ShadowModels, likelihood_ratio_score, train_shadow_models
from tacit.auditing.scoring.lower_bound import LowerBound, lower_bound
from tacit.auditing.scoring.roc import Roc
from tacit.auditing.scoring.truth import Truth
from tacit.core.errors import Misuse
from tacit.tasks.flat import ModuleLoss
from tacit.tasks.parts import Part

MAX_MEMBERS = 400
MIN_MEMBERS = 20
SHADOW_MODELS = 16


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

    def as_dict(self) -> dict[str, Any]:
        return {
            "victim": self.victim,
            "score": self.score,
            **self.roc.as_dict(),
            "epsilon_at_least": self.lower.epsilon,
            "confidence": self.lower.confidence,
            "assumptions": self.assumptions,
        }


@dataclass(frozen=True, eq=False)
class Candidates:
    """Samples that may be the victim's; only the scorer uses `members`."""

    x: Tensor
    y: Tensor
    members: Tensor  # bool [n]

    @classmethod
    def of(
        cls, held: Part | None, others: tuple[Tensor, Tensor] | None, seed: int
    ) -> Candidates | None:
        """Members from `held` and as many others of the same classes; None if there are too few."""
        if held is None or others is None or len(held) != 2 or held[1].is_floating_point():
            return None
        generator = torch.Generator().manual_seed(seed)
        inside, outside = [], []
        for label in sorted(set(held[1].tolist())):
            (a,), (b,) = torch.where(held[1] == label), torch.where(others[1] == label)
            count = min(len(a), len(b), max(1, MAX_MEMBERS * len(a) // len(held[1])))
            inside.append(a[torch.randperm(len(a), generator=generator)[:count]])
            outside.append(b[torch.randperm(len(b), generator=generator)[:count]])
        a, b = torch.cat(inside), torch.cat(outside)
        if len(a) < MIN_MEMBERS:
            return None
        x, y = torch.cat((held[0][a], others[0][b])), torch.cat((held[1][a], others[1][b]))
        return cls(x, y, torch.arange(len(x)) < len(a))

    def to(self, device: torch.device | str) -> tuple[Tensor, Tensor]:
        return self.x.to(device), self.y.to(device)


class MembershipAttacks:
    """Attacks on the membership of one victim's samples.

    All adversaries share one set of shadow models.

    Args:
        truth: The victims' data; only scores are computed from it.
        victim: The client whose samples are at stake.
        delta: Lower bounds on ε are for this δ.
        options: Seed, device and limits of the attacks.
        progress: Called with what is done, how far, and of how many.
    """

    def __init__(
        self, truth: Truth, victim: int, delta: float, options: AttackOptions, progress: Progress
    ) -> None:
        assert isinstance(truth.task.loss, ModuleLoss)  # checked by why_not_invertible
        self._loss = truth.task.loss.to(options.device)
        self.victim, self._truth, self._delta = victim, truth, delta
        self._options, self._progress = options, progress
        self.candidates = Candidates.of(
            truth.members(victim), truth.non_members(victim), options.seed
        )

    @cached_property
    def _shadows(self) -> ShadowModels | None:
        """None if they diverge: then there is no likelihood to compare."""
        assert self.candidates is not None
        try:
            return train_shadow_models(
                self._loss,
                *self.candidates.to(self._options.device),
                seed=self._options.seed,
                models=SHADOW_MODELS,
                budget_seconds=self._options.seconds,
                progress=partial(self._progress, "training shadow models"),
            )
        except Misuse:
            return None

    def on_model(
        self, theta: Tensor, description: str, *, comparable: bool
    ) -> list[MembershipResult]:
        """Attacks by a model [P] that the adversary has; empty if there are too few samples."""
        if self.candidates is None:
            return []
        loss, (x, y) = self._loss, self.candidates.to(self._options.device)
        theta = theta.to(self._options.device, loss.flat.dtype)
        found = [
            ("loss", loss_score(loss, theta, x, y), [description]),
            ("gradient norm", gradient_norm_score(loss, theta, x, y), [description]),
        ]
        if (shadows := self._shadows) is not None:
            end = "" if shadows.finished else "; stopped by the budget"
            trained = (
                f"{SHADOW_MODELS} shadow models on halves of the candidates, {shadows.steps} steps "
                f"of plain descent, not trained as the run was{end}"
            )
            ratios = likelihood_ratio_score(loss, theta, shadows, x, y)
            found.append(("likelihood ratio", ratios, [description, trained]))
        return [self._result(self.candidates, comparable, *one) for one in found]

    def on_gradients(self, gradients: list[Evidence]) -> list[MembershipResult]:
        """Attacks by batch gradients: was a sample in one of their batches?"""
        usable = [(one, one.points) for one in gradients if one.points is not None]
        if not usable:
            return []
        batches = [self._truth.batch(self.victim, one.terms[0].when) for one, _ in usable]
        held = tuple(torch.cat(arrays) for arrays in zip(*batches, strict=True))
        others = self._truth.non_members(self.victim)
        candidates = Candidates.of(held, others, self._options.seed)
        if candidates is None:
            return []
        dtype, device = self._loss.flat.dtype, self._options.device
        points = torch.cat([points for _, points in usable]).to(device, dtype)
        values = torch.stack([one.values for one, _ in usable]).to(device, dtype)
        scores = gradient_cosine_score(
            self._loss, points, values, *candidates.to(device), over="max"
        )
        noisy = "with noise" if any(one.deviation for one, _ in usable) else "exactly"
        known = (
            f"{len(usable)} gradients known {noisy}; the question is whether a sample was in one "
            "of their batches"
        )
        return [self._result(candidates, True, "gradient cosine", scores, [known])]

    def _result(
        self, candidates: Candidates, comparable: bool, name: str, scores: Tensor, known: list[str]
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
        )
