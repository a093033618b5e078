"""Membership of single samples: what the model and the gradients that an adversary knows say of who was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from tacit.auditing.attacks.evidence import Evidence
from tacit.auditing.attacks.membership import gradient_cosine_score, gradient_norm_score, loss_score
from tacit.auditing.attacks.reconstructions import Effort, Progress
from tacit.auditing.attacks.shadow import Shadows, likelihood_ratio_score, train_shadows
from tacit.auditing.scoring.lower_bound import LowerBound, lower_bound
from tacit.auditing.scoring.roc import Roc
from tacit.auditing.scoring.truth import Truth
from tacit.core.errors import Misuse
from tacit.tasks.flat import ModuleLoss
from tacit.tasks.parts import Part

MOST = 400  # samples on each side
LEAST = 20
SHADOWS = 16


@dataclass(frozen=True, eq=False)
class Membership:
    """One score's curve, and the ε that its success rules out."""

    victim: int
    score: str
    roc: Roc
    lower: LowerBound
    assumptions: list[str]
    comparable: bool  # with a bound for the iterations audited: not if later models were attacked

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
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
    """Samples of which an attacker asks whether the victim has them; who has which is known to the scorer only."""

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
        draw = torch.Generator().manual_seed(seed)
        inside, outside = [], []
        for label in sorted(set(held[1].tolist())):
            (a,), (b,) = torch.where(held[1] == label), torch.where(others[1] == label)
            count = min(len(a), len(b), max(1, MOST * len(a) // len(held[1])))
            inside.append(a[torch.randperm(len(a), generator=draw)[:count]])
            outside.append(b[torch.randperm(len(b), generator=draw)[:count]])
        a, b = torch.cat(inside), torch.cat(outside)
        if len(a) < LEAST:
            return None
        x, y = torch.cat((held[0][a], others[0][b])), torch.cat((held[1][a], others[1][b]))
        return cls(x, y, torch.arange(len(x)) < len(a))


class MembershipAttacks:
    """All attacks on the membership of one victim's samples; shadow models are trained once, for all adversaries."""

    def __init__(
        self,
        loss: ModuleLoss,
        truth: Truth,
        victim: int,
        *,
        delta: float,
        effort: Effort,
        progress: Progress | None = None,
    ) -> None:
        self.victim = victim
        self._loss, self._truth, self._delta = loss.to(effort.device), truth, delta
        self._effort, self._progress = effort, progress
        self.candidates = Candidates.of(truth.members(victim), truth.outsiders(victim), effort.seed)

    @cached_property
    def _shadows(self) -> Shadows | None:
        """None if they diverge: then there is no likelihood to compare."""
        assert self.candidates is not None
        told = self._progress
        try:
            return train_shadows(
                self._loss,
                *self._there(self.candidates),
                seed=self._effort.seed,
                models=SHADOWS,
                budget_seconds=self._effort.seconds,
                progress=None
                if told is None
                else lambda i, of: told("training shadow models", i, of),
            )
        except Misuse:
            return None

    def on_model(self, theta: Tensor, known: str, *, comparable: bool) -> list[Membership]:
        """By a model [P] that the adversary has; `known` says which. None if there are too few samples."""
        if self.candidates is None:
            return []
        x, y = self._there(self.candidates)
        theta = theta.to(self._effort.device, self._loss.flat.dtype)
        by = {
            "loss": (loss_score(self._loss, theta, x, y), [known]),
            "gradient norm": (gradient_norm_score(self._loss, theta, x, y), [known]),
        }
        shadows = self._shadows
        if shadows is not None:
            ended = "" if shadows.finished else "; stopped by the budget"
            trained = (
                f"{SHADOWS} shadow models on halves of the candidates, {shadows.steps} steps of plain descent, not "
                f"trained as the run was{ended}"
            )
            by["likelihood ratio"] = (
                likelihood_ratio_score(self._loss, theta, shadows, x, y),
                [known, trained],
            )
        return [
            self._judged(name, scores, self.candidates, said, comparable)
            for name, (scores, said) in by.items()
        ]

    def on_gradients(self, gradients: list[Evidence]) -> list[Membership]:
        """By gradients of batches: were these samples in one of them?"""
        usable = [(one, one.points) for one in gradients if one.points is not None]
        if not usable:
            return []
        batches = [self._truth.batch(self.victim, one.terms[0].when) for one, _ in usable]
        held = tuple(torch.cat(arrays) for arrays in zip(*batches, strict=True))
        candidates = Candidates.of(held, self._truth.outsiders(self.victim), self._effort.seed)
        if candidates is None:
            return []
        dtype, device = self._loss.flat.dtype, self._effort.device
        points = torch.cat([points for _, points in usable]).to(device, dtype)
        values = torch.stack([one.values for one, _ in usable]).to(device, dtype)
        scores = gradient_cosine_score(
            self._loss, points, values, *self._there(candidates), over="max"
        )
        noisy = "with noise" if any(one.deviation for one, _ in usable) else "exactly"
        known = f"{len(usable)} gradients known {noisy}; asked is whether a sample was in one of their batches"
        return [self._judged("gradient cosine", scores, candidates, [known], comparable=True)]

    def _there(self, candidates: Candidates) -> tuple[Tensor, Tensor]:
        return candidates.x.to(self._effort.device), candidates.y.to(self._effort.device)

    def _judged(
        self, name: str, scores: Tensor, candidates: Candidates, said: list[str], comparable: bool
    ) -> Membership:
        members, scores = candidates.members, scores.cpu()
        inside, outside = scores[members].double().numpy(), scores[~members].double().numpy()
        assumptions = ["half of the candidates are members, classes balanced", *said]
        if not self._truth.has_test_set:
            assumptions.append(
                "the others are data of other clients, which trained the shared model as well"
            )
        return Membership(
            self.victim,
            name,
            Roc.from_scores(inside, outside),
            lower_bound(inside, outside, self._delta),
            assumptions,
            comparable and self._truth.has_test_set,
        )
