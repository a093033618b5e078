"""The first message with a gradient of the victim in it, as if it were the only one: no guarantee, but a comparison.

Papers account for one message. Here it is counted how many of its noise terms an adversary lacks, and what the law of
their sum would give if nothing else were seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.auditing.adversary import Adversary
from tacit.auditing.symbolic.symbols import SymbolicRun
from tacit.core.noise import Laplace
from tacit.privacy.accounting.laplace import sum_pure_epsilon
from tacit.privacy.accounting.loss_distribution import PrivacyLoss
from tacit.privacy.clipping import Clip
from tacit.record.unknowns import Unknown


@dataclass(frozen=True)
class OneMessage:
    """What one message would tell alone: ε, and a smaller one at δ; infinite if no noise term is unknown."""

    tag: str
    tick: int
    unknown_terms: int
    ratio: float  # Δ/β
    epsilon: float
    epsilon_at_delta: float
    delta: float

    @property
    def words(self) -> str:
        """In a sentence."""
        what = f"if {self.tag}({self.tick}) were all that is seen, {self.unknown_terms} of its noise terms unknown"
        if math.isinf(self.epsilon):
            return f"{what}: no guarantee"
        less = ""
        if self.epsilon_at_delta < 0.999 * self.epsilon:
            less = f", or {self.epsilon_at_delta:.4g} at δ = {self.delta:g}"
        return f"{what}: ε = {self.epsilon:.4g}{less} (Laplace, Δ/β = {self.ratio:.4g})"

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "message": f"{self.tag}({self.tick})",
            "unknown_terms": self.unknown_terms,
            "epsilon": None if math.isinf(self.epsilon) else self.epsilon,
            "epsilon_at_delta": None
            if math.isinf(self.epsilon_at_delta)
            else self.epsilon_at_delta,
            "delta": self.delta,
        }


def one_message(
    run: SymbolicRun, adversary: Adversary, victim: int, clip: Clip | None, delta: float
) -> OneMessage | None:
    """None where the message is not a gradient with Laplace noise added, of one size, and clipped in the L1 norm."""
    found = _first(run, adversary, victim)
    if found is None or clip is None or clip.norm != "l1":
        return None
    tag, tick, said = found
    own = sum(abs(x) for u, x in said if u.kind == "gradient" and u.client == victim)
    terms = [(u, abs(x)) for u, x in said if u.kind == "noise" and not adversary.knows(u)]
    if not _only_added(run, victim, [u for u, _ in said]):
        return None
    if not terms:
        return OneMessage(tag, tick, 0, math.inf, math.inf, math.inf, delta)
    laws, size = {run.laws[u] for u, _ in terms}, terms[0][1]
    law = next(iter(laws))
    alike = all(math.isclose(x, size, rel_tol=1e-9) for _, x in terms)
    if len(laws) > 1 or not alike or type(law) is not Laplace:
        return None
    ratio = own * clip.sensitivity / (size * law.scale)
    within = PrivacyLoss.laplace(ratio, len(terms)).epsilon(delta)
    return OneMessage(
        tag, tick, len(terms), ratio, sum_pure_epsilon(ratio, len(terms)), within, delta
    )


def _first(
    run: SymbolicRun, adversary: Adversary, victim: int
) -> tuple[str, int, list[tuple[Unknown, float]]] | None:
    """The first message of the victim that is seen and has a gradient of its own in it, as terms."""
    for message in run.transcript.messages:
        sees = adversary.sees(message, run.transcript.edges)
        for row, source in enumerate(message.source.tolist()):
            if source != victim or not bool(sees[row]):
                continue
            filled = np.flatnonzero(message.rows[row].numpy())
            said = [(run.unknowns[k], float(message.rows[row, k])) for k in filled]
            if any(u.kind == "gradient" and u.client == victim for u, _ in said):
                return message.tag, message.tick, said
    return None


def _only_added(run: SymbolicRun, victim: int, said: list[Unknown]) -> bool:
    """Whether noise is only added: no non-linear step in the message, and nothing secret behind its gradients."""
    points = [run.points[u.when][u.client] for u in said if u.kind == "gradient"]
    behind = [run.unknowns[k] for point in points for k in np.flatnonzero(point.numpy())]
    secret = [
        u
        for u in behind
        if u.kind in ("noise", "nonlinear") or (u.kind == "gradient" and u.client == victim)
    ]
    return not secret and not any(u.kind == "nonlinear" for u in said)
