"""Which of the known evidence attacks use: the first of each kind, or everything up to a number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tacit.auditing.attacks.evidence import Evidence, evidence, randomized_gradient
from tacit.auditing.symbolic.leakage import ABOUT_GRADIENTS, Leakage, Question
from tacit.record.transcript import Transcript

T = TypeVar("T")
ABOUT_VICTIM: tuple[Question, ...] = ("gradient", "update", "difference", "combination")
ABOUT_SEVERAL: tuple[Question, ...] = ("group", "sum")


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
    return [one for one in found if one is not None]


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
    return [one for one in found if one is not None and one.points is not None], len(pieces)


def noisy_gradients(
    leakage: Leakage, transcript: Transcript, *, most: int
) -> tuple[list[Evidence], int]:
    """The least noisy gradients with known points, and how many there are in all."""
    series = leakage.of("gradient")
    indices = sorted(series.indices("noisy"), key=lambda index: series.variances[index])
    found = [evidence(leakage, "gradient", index, transcript) for index in indices[:most]]
    return [one for one in found if one is not None and one.points is not None], len(indices)


def evenly(items: Sequence[T], most: int) -> list[T]:
    """At most so many of the items, at even distances."""
    if len(items) <= most:
        return list(items)
    return [items[k * len(items) // most] for k in range(most)]
