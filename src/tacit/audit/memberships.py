"""Membership of single samples: what the model and the gradients that an adversary knows say of who was trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.audit.attacks.membership import gradient_cosine_score, gradient_norm_score, loss_score
from tacit.audit.attacks.shadow import likelihood_ratio_score, train_shadows
from tacit.audit.evidence import Evidence
from tacit.audit.reconstructions import Progress
from tacit.audit.scoring.lower_bound import LowerBound, lower_bound
from tacit.audit.scoring.roc import Roc
from tacit.audit.scoring.truth import Truth
from tacit.tasks.flat import ModuleLoss

MOST = 400  # samples on each side
LEAST = 20


@dataclass(frozen=True, eq=False)
class Membership:
    """One score's curve, and the ε that its success rules out."""

    victim: int
    score: str
    roc: Roc
    lower: LowerBound
    assumptions: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "victim": self.victim,
            "score": self.score,
            **self.roc.as_dict(),
            "epsilon_at_least": self.lower.epsilon,
            "assumptions": self.assumptions,
        }


@dataclass(frozen=True, eq=False)
class Candidates:
    """Samples of which an attacker asks whether the victim has them; who has which is known to the scorer only."""

    x: Tensor
    y: Tensor
    members: Tensor  # bool [n]

    @classmethod
    def of(cls, truth: Truth, victim: int, seed: int) -> Candidates | None:
        """Members and as many outsiders of the same classes; None if there are too few."""
        held, others = truth.members(victim), truth.outsiders(victim)
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


def infer_membership(
    loss: ModuleLoss,
    theta: Tensor,
    known: str,
    gradients: list[Evidence],
    candidates: Candidates,
    victim: int,
    *,
    delta: float,
    seed: int = 0,
    shadows: int = 16,
    seconds: float = 60.0,
    progress: Progress | None = None,
) -> list[Membership]:
    """Attack with every score; `theta` [P] is a model the adversary has, `known` says which."""
    x, y, theta = candidates.x, candidates.y, theta.to(loss.flat.dtype)
    scores: dict[str, tuple[Tensor, list[str]]] = {
        "loss": (loss_score(loss, theta, x, y), [known]),
        "gradient norm": (gradient_norm_score(loss, theta, x, y), [known]),
    }
    usable = [
        one for one in gradients if one.kind in ("gradient", "noisy gradient") and one.points is not None
    ]
    if usable:
        points = torch.cat([one.points for one in usable if one.points is not None]).to(theta.dtype)
        values = torch.stack([one.values for one in usable]).to(theta.dtype)
        words = f"{len(usable)} gradients known, {'exactly' if not any(e.deviation for e in usable) else 'with noise'}"
        scores["gradient cosine"] = (gradient_cosine_score(loss, points, values, x, y, over="max"), [words])
    if shadows:
        trained = train_shadows(
            loss,
            x,
            y,
            seed=seed,
            models=shadows,
            budget_seconds=seconds,
            progress=None if progress is None else lambda i, of: progress("training shadow models", i, of),
        )
        ended = (
            [] if trained.finished else [f"shadow models stopped by the budget after {trained.steps} steps"]
        )
        ratio = likelihood_ratio_score(loss, theta, trained, x, y)
        scores["likelihood ratio"] = (
            ratio,
            [known, f"{shadows} shadow models on halves of the candidates", *ended],
        )
    return [_judged(victim, name, *given, candidates.members, delta) for name, given in scores.items()]


def _judged(
    victim: int, name: str, scores: Tensor, assumptions: list[str], members: Tensor, delta: float
) -> Membership:
    inside, outside = scores[members].double().numpy(), scores[~members].double().numpy()
    return Membership(
        victim,
        name,
        Roc.from_scores(inside, outside),
        lower_bound(inside, outside, delta),
        ["half of the candidates are members, classes balanced", *assumptions],
    )
