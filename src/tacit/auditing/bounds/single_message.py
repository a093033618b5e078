"""What the first message with a gradient of the victim would reveal if it were the only one.

This is a comparison with papers that account for one message, not a guarantee. It counts the noise
terms that the adversary does not know and applies the distribution of their sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit.auditing.adversary import Adversary
from tacit.auditing.bounds.threat import Threat
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.core.noise import Laplace
from tacit.privacy.accounting.laplace import sum_pure_epsilon
from tacit.privacy.accounting.loss_distribution import PrivacyLoss
from tacit.record.unknowns import Unknown


@dataclass(frozen=True)
class SingleMessageBound:
    """ε from one message, and a smaller one at δ; infinite if the adversary knows all noise."""

    tag: str
    tick: int
    unknown_terms: int
    ratio: float  # Δ/β
    epsilon: float
    epsilon_at_delta: float
    delta: float

    def __str__(self) -> str:
        terms = f"{self.unknown_terms} unknown noise terms"
        message = f"{self.tag}({self.tick}) as the only message, with {terms}"
        if math.isinf(self.epsilon):
            return f"{message}: no guarantee"
        less = ""
        if self.epsilon_at_delta < 0.999 * self.epsilon:
            less = f", or {self.epsilon_at_delta:.4g} at δ = {self.delta:g}"
        return f"{message}: ε = {self.epsilon:.4g}{less} (Laplace, Δ/β = {self.ratio:.4g})"

    def as_dict(self) -> dict[str, Any]:
        smaller = self.epsilon_at_delta
        return {
            "message": f"{self.tag}({self.tick})",
            "unknown_terms": self.unknown_terms,
            "epsilon": None if math.isinf(self.epsilon) else self.epsilon,
            "epsilon_at_delta": None if math.isinf(smaller) else smaller,
            "delta": self.delta,
        }


def single_message_bound(run: SymbolicRun, threat: Threat) -> SingleMessageBound | None:
    """The bound for the first message that contains a gradient of the victim.

    None unless gradients are clipped in the L1 norm and the message is a gradient with Laplace
    noise of one scale added.

    Args:
        run: The run on symbols.
        threat: What the bound is about. Noise terms of the adversary itself do not count.
    """
    adversary, victim, clip, delta = threat.adversary, threat.victim, threat.clip, threat.delta
    first_message = _first_message(run, adversary, victim)
    if first_message is None or clip is None or clip.norm != "l1":
        return None
    tag, tick, content = first_message
    if not _is_only_added(run, victim, [u for u, _ in content]):
        return None
    signal = sum(abs(x) for u, x in content if u.kind == "gradient" and u.client == victim)
    terms = [(u, abs(x)) for u, x in content if u.kind == "noise" and not adversary.knows(u)]
    if not terms:
        return SingleMessageBound(tag, tick, 0, math.inf, math.inf, math.inf, delta)
    (first, size), count = terms[0], len(terms)
    law = run.laws[first]
    same = all(run.laws[u] == law and math.isclose(x, size, rel_tol=1e-9) for u, x in terms)
    if not same or type(law) is not Laplace:
        return None
    ratio = signal * clip.sensitivity / (size * law.scale)
    smaller = PrivacyLoss.laplace(ratio, count).epsilon(delta)
    pure = sum_pure_epsilon(ratio, count)
    return SingleMessageBound(tag, tick, count, ratio, pure, smaller, delta)


def _first_message(
    run: SymbolicRun, adversary: Adversary, victim: int
) -> tuple[str, int, list[tuple[Unknown, float]]] | None:
    """Tag, tick and terms of the first visible message of the victim with a gradient of its own."""
    for index, seen in adversary.view(run.transcript):
        message = run.transcript.messages[index]
        for row in seen[message.source[seen] == victim].tolist():
            nonzero = np.flatnonzero(message.rows[row].numpy())
            content = [(run.unknowns[k], float(message.rows[row, k])) for k in nonzero]
            if any(u.kind == "gradient" and u.client == victim for u, _ in content):
                return message.tag, message.tick, content
    return None


def _is_only_added(run: SymbolicRun, victim: int, content: list[Unknown]) -> bool:
    """Whether noise is only added: no non-linear step, and gradients at points without secrets."""
    points = [run.points[u.when][u.client] for u in content if u.kind == "gradient"]
    inputs = [run.unknowns[k] for point in points for k in np.flatnonzero(point.numpy())]
    of_victim = any(u.kind == "gradient" and u.client == victim for u in inputs)
    secret = of_victim or any(u.kind in ("noise", "nonlinear") for u in inputs)
    return not secret and not any(u.kind == "nonlinear" for u in content)
