"""Which of the known evidence attacks use: the first of each kind, or everything up to a number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeVar

from tacit.auditing.attacks.evidence import (
    Evidence,
    apply_combination,
    evidence,
    known_point,
    randomized_gradient,
    relative_rounding,
)
from tacit.auditing.symbolic.leakage import ABOUT_GRADIENTS, Leakage, Question
from tacit.auditing.symbolic.linear_knowledge import LinearKnowledge
from tacit.auditing.symbolic.slow_gradients import with_slow_gradients
from tacit.record.transcript import Transcript

T = TypeVar("T")
ABOUT_VICTIM: tuple[Question, ...] = ("gradient", "update", "difference", "combination")
ABOUT_SEVERAL: tuple[Question, ...] = ("group", "sum")
WORST = 2.0  # estimated error, relative to the estimate, above which inversion is not tried
MAX_GRADIENTS = 8  # gradients of one client in everything known, roughly
MAX_CLIENTS = 4  # clients whose batches are searched together


def best_evidence(leakage: Leakage, transcript: Transcript) -> list[Evidence]:
    """The first of each kind of evidence: a gradient (the least noisy), a difference, a sum.

    Without an exact gradient also what a random step with a known density made of one.
    """
    found = []
    for question in ABOUT_GRADIENTS:
        if question == "sum" and len(leakage.honest_component) == 1:
            continue
        series = leakage.of(question)
        indices = series.indices("exact")
        if question == "gradient" and not indices:
            indices = sorted(series.indices("noisy"), key=lambda index: series.variances[index])
        if indices:
            found.append(evidence(leakage, question, indices[0], transcript))
    if not leakage.of("gradient").indices("exact"):
        found.append(randomized_gradient(leakage, transcript))
    return [piece for piece in found if piece is not None]


def exact_evidence(
    leakage: Leakage,
    transcript: Transcript,
    questions: Sequence[Question],
    *,
    most: int,
) -> tuple[list[Evidence], int]:
    """Exact evidence with known points, and how many pieces there are in all.

    The pieces have at most about `most` gradients together, chosen evenly over time. Combinations
    of gradients that are known themselves are left out, as they add nothing.
    """
    series = leakage.of("gradient")
    single = {leakage.terms("gradient", index)[0][0] for index in series.indices("exact")}
    pieces = [
        (question, index)
        for question in questions
        if not (question == "sum" and len(leakage.honest_component) == 1)
        for index in leakage.of(question).indices("exact")
        if question == "gradient" or not single.issuperset(leakage.terms(question, index)[0])
    ]
    lengths = [len(leakage.terms(*piece)[0]) for piece in pieces]
    count = max(1, most * len(pieces) // max(1, sum(lengths)))
    found = [evidence(leakage, *piece, transcript) for piece in evenly(pieces, count)]
    return _with_points(found), len(pieces)


def noisy_gradients(
    leakage: Leakage, transcript: Transcript, *, most: int
) -> tuple[list[Evidence], int]:
    """The least noisy gradients with known points, and how many there are in all."""
    series = leakage.of("gradient")
    indices = sorted(series.indices("noisy"), key=lambda index: series.variances[index])
    found = [evidence(leakage, "gradient", index, transcript) for index in indices[:most]]
    return _with_points(found), len(indices)


def _with_points(found: Sequence[Evidence | None]) -> list[Evidence]:
    return [piece for piece in found if piece is not None and piece.points is not None]


def evenly(items: Sequence[T], most: int) -> list[T]:
    """At most so many of the items, at even distances."""
    if len(items) <= most:
        return list(items)
    return [items[k * len(items) // most] for k in range(most)]


def joint_evidence(leakage: Leakage, transcript: Transcript) -> Evidence | None:
    """Everything exact about the victim, if it is more than one value.

    For victims whose gradients are all of the same data. Then the unknowns are one batch per
    client, however many values are known: two differences determine more than one, and differences
    and a sum over clients separate the clients.

    Several values about the victim's gradients alone are enough. If there is at most one, sums over
    clients are included, together with what is known about the other clients.
    """
    parts, _ = exact_evidence(leakage, transcript, ABOUT_VICTIM, most=MAX_GRADIENTS)
    others = leakage.honest_component - {leakage.victim}
    if len(parts) < 2 and 0 < len(others) < MAX_CLIENTS:
        most = MAX_GRADIENTS * (len(others) + 1) // 2
        several, _ = exact_evidence(leakage, transcript, ABOUT_SEVERAL, most=most)
        parts += several
        for client in sorted(others) if several else ():
            theirs = Leakage(leakage.knowledge, client)
            parts += exact_evidence(theirs, transcript, ABOUT_VICTIM, most=MAX_GRADIENTS)[0]
    about = any(term.client == leakage.victim for part in parts for term in part.terms)
    return Evidence.together(leakage.victim, tuple(parts)) if about and len(parts) > 1 else None


def approximate_gradients(leakages: list[Leakage], transcript: Transcript) -> list[Evidence]:
    """First gradients that are not exactly known but follow if gradients change little."""
    hidden = [leakage for leakage in leakages if not _knows_first(leakage)]
    if not hidden:
        return []
    exact = hidden[0].knowledge
    knowledge = LinearKnowledge(with_slow_gradients(exact.run, exact.adversary), exact.adversary)
    scale = _scale(knowledge, transcript)
    found = []
    for leakage in hidden:
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
