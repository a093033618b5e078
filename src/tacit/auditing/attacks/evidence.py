"""Evidence: the combination that the knowledge audit found, applied to the numbers that were recorded."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from tacit.auditing.symbolic.findings import Findings, Question
from tacit.auditing.symbolic.knowledge import Combination, Knowledge
from tacit.core.errors import Misuse
from tacit.record.transcript import Message, Transcript
from tacit.record.unknowns import Unknown

Kind = Literal["gradient", "noisy gradient", "update", "difference", "sum", "model", "image"]


@dataclass(frozen=True, eq=False)
class Evidence:
    """Numbers an adversary computed: Σₖ cₖ gₖ, or a model.

    `points` [K, P] are where the gradients were taken, as far as it knows; None if it does not.
    """

    kind: Kind
    victim: int
    terms: tuple[Unknown, ...]  # the gradients in it, in the order of `points`; none for a model
    coefficients: tuple[float, ...]
    values: Tensor  # [P]
    points: Tensor | None
    deviation: float  # of the noise in every coordinate; 0 if exact
    gain: float  # what the rounding of messages was multiplied with, at most
    rounding: float  # about how large, relative to the values, the rounding of messages is in them

    def __str__(self) -> str:
        if not self.terms:
            return f"{self.kind} of client {self.victim}"
        made = " ".join(f"{c:+g}·{u}" for c, u in zip(self.coefficients, self.terms, strict=True))
        noise = f" with noise of deviation {self.deviation:.3g}" if self.deviation else ", exactly"
        return f"{self.kind} {made}{noise}"


def applied(combination: Combination, know: Knowledge, transcript: Transcript) -> Tensor:
    """Σ coefficients · messages − Σ coefficients · own [P], in float64."""
    _refuse_other_messages(know.run.transcript, transcript)
    parts = [
        a * transcript.messages[message].rows[row].double()
        for (message, row), a in combination.messages
    ]
    for unknown, coefficient in combination.own:
        if unknown not in transcript.held:
            raise Misuse(
                f"The adversary knows {unknown}, but the transcript does not have it.",
                "Record what corrupt clients hold: name them in `insides`; and first models: set `theta0`.",
            )
        parts.append(-coefficient * transcript.held[unknown].double())
    return torch.stack(parts).sum(0) if parts else torch.zeros(())


def evidence(
    found: Findings, question: Question, place: int, transcript: Transcript
) -> Evidence | None:
    """The numbers behind the answer at a place of a series; None where it is hidden."""
    know, victim = found.knowledge, found.victim
    answer = found.of(question).ask(place)
    if answer.combination is None:
        return None
    values = applied(answer.combination, know, transcript)
    deviation = float(answer.variance or 0.0) ** 0.5
    gain, rounding = answer.combination.gain, _rounding(answer.combination, values, transcript)
    if question in ("model", "image"):
        return Evidence(question, victim, (), (), values, None, deviation, gain, rounding)
    kind: Kind = (
        "noisy gradient" if question == "gradient" and answer.status == "noisy" else question
    )
    terms, coefficients = found.terms(question, place)
    points = [_point(know, term, transcript) for term in terms]
    known = [point for point in points if point is not None]
    stacked = torch.stack(known) if len(known) == len(points) else None
    return Evidence(kind, victim, terms, coefficients, values, stacked, deviation, gain, rounding)


def telescoped(found: Findings, transcript: Transcript) -> Evidence | None:
    """−Σ of all known differences = g⁰ − gᵀ: the first gradient, off by the last, which training makes small.

    The first unbroken run of exact differences is summed; None if there is none.
    """
    series = found.of("difference")
    exact = series.places("exact")
    run = [place for k, place in enumerate(exact) if place == exact[0] + k]
    if not run:
        return None
    parts = [evidence(found, "difference", place, transcript) for place in run]
    pieces = [part for part in parts if part is not None]
    first, last = found.taken[run[0]], found.taken[run[-1] + 1]
    first_points, last_points = pieces[0].points, pieces[-1].points
    return Evidence(
        "difference",
        found.victim,
        (first, last),
        (1.0, -1.0),
        -torch.stack([piece.values for piece in pieces]).sum(0),
        None
        if first_points is None or last_points is None
        else torch.stack((first_points[1], last_points[0])),
        0.0,
        sum(piece.gain for piece in pieces),
        sum(piece.rounding for piece in pieces),
    )


def _rounding(combination: Combination, values: Tensor, transcript: Transcript) -> float:
    """Σ (a ‖message‖)² as a root, times the precision of what is sent, relative to the size of the values."""
    rows = [(a, transcript.messages[place].rows[row]) for (place, row), a in combination.messages]
    if not rows:
        return 0.0
    size = math.sqrt(sum((a * float(row.double().norm())) ** 2 for a, row in rows))
    return size * torch.finfo(rows[0][1].dtype).eps / max(float(values.norm()), 1e-300)


def _point(know: Knowledge, gradient: Unknown, transcript: Transcript) -> Tensor | None:
    """Where a gradient was taken, if that is exactly known."""
    answer = know.ask(know.widened(know.run.points[gradient.when][gradient.client]))
    if answer.status != "exact" or answer.combination is None:
        return None
    return applied(answer.combination, know, transcript)


def _refuse_other_messages(symbolic: Transcript, recorded: Transcript) -> None:
    """Refuse numbers of another run than the one that was audited."""

    def outline(message: Message) -> tuple[object, ...]:
        target = None if message.target is None else message.target.tolist()
        return message.tick, message.verb, message.tag, message.source.tolist(), target

    same_graph = (symbolic.clients, symbolic.edges) == (recorded.clients, recorded.edges)
    if not same_graph or [outline(m) for m in symbolic.messages] != [
        outline(m) for m in recorded.messages
    ]:
        raise Misuse(
            "The transcript has other messages than a run of this algorithm on this graph.",
            "Give the transcript and the configuration of the same run, recorded with the same bounds.",
        )
