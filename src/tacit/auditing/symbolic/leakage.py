"""What an adversary knows of one client, question by question and iteration by iteration.

gradient     gᵢᵏ, of each batch k
update       Σ gᵢᵏ over the batches of one iteration, where there are several: what local steps add up to
difference   gᵢᵏ⁺¹ − gᵢᵏ
sum          Σⱼ gⱼᵏ over the victim's honest component: all that is left of it when the corrupt are taken away
model        θᵢᵗ after each iteration t
image        what a declared non-linear step made of rows with a gradient of the victim in them: how much that tells of
             the gradient depends on the step, and is not judged here
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from tacit.auditing.symbolic.echelon import Matrix
from tacit.auditing.symbolic.knowledge import Answer, Knowledge, Status
from tacit.core.errors import Misuse
from tacit.record.unknowns import Unknown

Question = Literal["gradient", "update", "difference", "sum", "model", "image"]
QUESTIONS: tuple[Question, ...] = ("gradient", "update", "difference", "sum", "model", "image")


@dataclass(frozen=True, eq=False)
class AnswerSeries:
    """The answers to one question over time."""

    question: Question
    when: list[int]  # number of the batch (the later one of a difference), or iteration
    variances: Matrix  # of the best estimate; 0 exact, infinite hidden
    ask: Callable[[int], Answer]  # the answer at a place, with its combination

    @property
    def statuses(self) -> list[Status]:
        """exact, noisy or hidden."""
        return ["exact" if v == 0 else "hidden" if np.isinf(v) else "noisy" for v in self.variances]

    def places(self, status: Status) -> list[int]:
        """Where an answer has this status."""
        return [place for place, found in enumerate(self.statuses) if found == status]

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        deviations = [None if np.isinf(v) else float(np.sqrt(v)) for v in self.variances]
        return {"when": self.when, "status": self.statuses, "noise_deviation": deviations}


@dataclass(frozen=True, eq=False)
class Findings:
    """All questions about one victim."""

    knowledge: Knowledge
    victim: int

    def __post_init__(self) -> None:
        clients, adversary = self.knowledge.run.clients, self.knowledge.adversary
        if not 0 <= self.victim < clients:
            raise Misuse(
                f"There is no client {self.victim} to be the victim.",
                f"Name one from 0 to {clients - 1}.",
            )
        if self.victim in adversary.corrupt:
            raise Misuse(
                f"Client {self.victim} is corrupt itself, so it cannot be the victim of {adversary}.",
                "Name an honest client.",
            )

    @cached_property
    def component(self) -> frozenset[int]:
        """The victim and the honest clients it is connected with."""
        return self.knowledge.adversary.honest_component(self.victim, self.knowledge.run.transcript)

    @cached_property
    def taken(self) -> list[Unknown]:
        """The victim's gradients."""
        return self.knowledge.run.gradients(self.victim)

    @cached_property
    def updates(self) -> list[tuple[Unknown, ...]]:
        """The victim's gradients of each iteration, where an iteration takes several."""
        each = self.knowledge.run.gradients_per_step
        later = [u for u in self.taken if u.when > 0]  # the one of the start stands alone
        return [tuple(later[k : k + each]) for k in range(0, len(later), each)] if each > 1 else []

    @cached_property
    def images(self) -> list[Unknown]:
        """What non-linear steps made of the victim's gradients, or of what other steps had made of them."""
        run = self.knowledge.run
        made_of = {run.places[u] for u in self.taken}
        found = []
        for unknown, step in run.nonlinear_steps.items():  # in the order in which they were taken
            inputs = set(step.rows.nonzero()[:, 0].tolist())
            if unknown.client == self.victim and not made_of.isdisjoint(inputs):
                made_of.add(run.places[unknown])
                found.append(unknown)
        return found

    def of(self, question: Question) -> AnswerSeries:
        """The answers to one question."""
        return self._series[question]

    @cached_property
    def _series(self) -> dict[Question, AnswerSeries]:
        know = self.knowledge
        numbers = [u.when for u in self.taken]
        models = [know.widened(rows[self.victim]) for rows in know.run.models]
        series: dict[Question, AnswerSeries] = {
            "model": self._answers("model", list(range(know.run.steps + 1)), models)
        }
        asked: tuple[tuple[Question, list[int]], ...] = (
            ("gradient", numbers),
            ("update", [steps[0].when for steps in self.updates]),
            ("difference", numbers[1:]),
            ("sum", numbers),
            ("image", [u.when for u in self.images]),
        )
        for question, when in asked:
            terms = [self.terms(question, place) for place in range(len(when))]
            vectors = [know.vector(*zip(*pair, strict=True)) for pair in terms]
            series[question] = self._answers(question, when, vectors)
        return series

    def terms(
        self, question: Question, place: int
    ) -> tuple[tuple[Unknown, ...], tuple[float, ...]]:
        """The unknowns that a question is about, gradients or images of them, and their coefficients."""
        taken = self.taken
        if question == "gradient":
            return (taken[place],), (1.0,)
        if question == "update":
            return self.updates[place], (1.0,) * len(self.updates[place])
        if question == "difference":
            return (taken[place + 1], taken[place]), (1.0, -1.0)
        if question == "sum":
            everyone = tuple(taken[place]._replace(client=i) for i in sorted(self.component))
            return everyone, (1.0,) * len(everyone)
        if question == "image":
            return (self.images[place],), (1.0,)
        return (), ()

    def _answers(self, question: Question, when: list[int], vectors: list[Matrix]) -> AnswerSeries:
        know = self.knowledge
        if not vectors:
            return AnswerSeries(
                question, [], np.zeros(0), lambda place: Answer("hidden", None, None)
            )
        stacked = np.stack(vectors)
        return AnswerSeries(
            question, when, know.variances(stacked), lambda place: know.ask(stacked[place])
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "victim": self.victim,
            "honest_component": sorted(self.component),
            **{
                question: self.of(question).as_dict() | {"proof": self.proof(question)}
                for question in QUESTIONS
            },
        }

    def proof(self, question: Question) -> dict[str, Any] | None:
        """The combination of messages that gives the first exact answer to a question, as plain values."""
        series = self.of(question)
        exact = series.places("exact")
        if not exact or (combination := series.ask(exact[0]).combination) is None:
            return None
        messages = self.knowledge.run.transcript.messages
        terms = [
            {
                "coefficient": coefficient,
                "message": messages[place].tag,
                "tick": messages[place].tick,
                "source": int(messages[place].source[row]),
                "target": None if (to := messages[place].target) is None else int(to[row]),
            }
            for (place, row), coefficient in combination.messages
        ]
        own = [
            {"coefficient": -coefficient, "holds": str(unknown)}
            for unknown, coefficient in combination.own
        ]
        return {
            "of": series.when[exact[0]],
            "messages": terms,
            "own": own,
            "gain": combination.gain,
        }
