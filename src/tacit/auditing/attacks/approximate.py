"""Evidence that rests on an assumption: the victim's first gradient, if gradients change little."""

from __future__ import annotations

import math

from tacit.auditing.attacks.evidence import (
    Evidence,
    apply_combination,
    known_point,
    relative_rounding,
)
from tacit.auditing.symbolic.leakage import Leakage
from tacit.auditing.symbolic.linear_knowledge import LinearKnowledge
from tacit.auditing.symbolic.slow_gradients import with_slow_gradients
from tacit.record.transcript import Transcript

WORST = 2.0  # estimated error, relative to the estimate, above which inversion is not tried


def approximate_gradients(leakages: list[Leakage], transcript: Transcript) -> list[Evidence]:
    """First gradients that are not exactly known but follow if gradients change little."""
    open_ones = [one for one in leakages if not _knows_first(one)]
    if not open_ones:
        return []
    exact = open_ones[0].knowledge
    knowledge = LinearKnowledge(with_slow_gradients(exact.run, exact.adversary), exact.adversary)
    scale = _scale(knowledge, transcript)
    found = []
    for leakage in open_ones:
        gradient = leakage.gradients[0]
        estimate = knowledge.estimate(knowledge.vector((gradient, 1.0)))
        if estimate.combination is None or estimate.variance is None:
            continue
        values = apply_combination(estimate.combination, knowledge, transcript)
        deviation = scale * math.sqrt(estimate.variance)
        error, size = deviation * math.sqrt(len(values)), float(values.norm())
        if error > WORST * size:
            continue
        point = known_point(exact, gradient, transcript)
        found.append(
            Evidence(
                "approximate gradient",
                leakage.victim,
                (gradient,),
                (1.0,),
                values,
                None if point is None else point[None],
                deviation,
                estimate.combination.gain,
                relative_rounding(estimate.combination, values, transcript),
                f"gradients change little from iteration to iteration; by what the messages do "
                f"not fit, the estimate is off by {error / size:.0%} or more",
            )
        )
    return found


def _knows_first(leakage: Leakage) -> bool:
    return not leakage.gradients or bool(
        leakage.knowledge.exact(leakage.of("gradient").vectors[:1])[0]
    )


def _scale(knowledge: LinearKnowledge, transcript: Transcript) -> float:
    """How large steps and noise are at most, relative to what was assumed.

    Measured on combinations of messages without secrets, beyond the rounding of messages.
    """
    largest = 0.0
    combinations = knowledge.noise_alone()
    for combination, variance in combinations:
        values = apply_combination(combination, knowledge, transcript)
        rounded = relative_rounding(combination, values, transcript)
        square = float(values.square().mean()) * max(0.0, 1 - rounded**2)
        largest = max(largest, square / variance)
    return math.sqrt(largest) if combinations else math.inf
