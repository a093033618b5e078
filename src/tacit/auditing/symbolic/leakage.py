"""What an adversary learns about one victim, question by question and iteration by iteration.

gradient     gᵢᵏ, for each batch k
update       Σ gᵢᵏ over the batches of one iteration, if it has several: the sum of local steps
difference   gᵢᵏ⁺¹ − gᵢᵏ
sum          Σⱼ gⱼᵏ over the victim's honest component
model        θᵢᵗ after each iteration t
image        the result of a declared non-linear step on rows that contain a gradient of the victim;
             what it reveals about the gradient depends on the step and is not judged here
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from tacit.auditing.symbolic.knowledge import HIDDEN, Answer, Knowledge, Status
from tacit.auditing.symbolic.row_space import Matrix
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
    answer: Callable[[int], Answer]  # the answer at an index, with its combination

    @property
    def statuses(self) -> list[Status]:
        return ["exact" if v == 0 else "hidden" if np.isinf(v) else "noisy" for v in self.variances]

    def indices(self, status: Status) -> list[int]:
        """The indices of the answers with this status."""
        return [index for index, found in enumerate(self.statuses) if found == status]

    def as_dict(self) -> dict[str, Any]:
        deviations = [None if np.isinf(v) else float(np.sqrt(v)) for v in self.variances]
        return {"when": self.when, "status": self.statuses, "noise_deviation": deviations}


@dataclass(frozen=True, eq=False)
class Leakage:
    """The answers to all questions about one victim."""

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
                f"Client {self.victim} is corrupt and cannot be the victim of {adversary}.",
                "Name an honest client.",
            )

    @cached_property
    def honest_component(self) -> frozenset[int]:
        """The victim and the honest clients it stays connected to."""
        return self.knowledge.adversary.honest_component(self.victim, self.knowledge.run.transcript)

    @cached_property
    def gradients(self) -> list[Unknown]:
        """The victim's gradients."""
        return self.knowledge.run.gradients(self.victim)

    @cached_property
    def updates(self) -> list[tuple[Unknown, ...]]:
        """The victim's gradients of each iteration, if iterations have several."""
        count = self.knowledge.run.gradients_per_step
        if count == 1:
            return []
        # `start` takes a single gradient, on batch 0.
        later = [u for u in self.gradients if u.when > 0]
        return [tuple(later[k : k + count]) for k in range(0, len(later), count)]

    @cached_property
    def images(self) -> list[Unknown]:
        """Results of non-linear steps on the victim's gradients, or on other such results."""
        run = self.knowledge.run
        relevant = {run.columns[u] for u in self.gradients}
        images = []
        # In the order in which the steps were taken.
        for unknown, step in run.nonlinear_steps.items():
            inputs = step.input.nonzero()[:, 0].tolist()
            if unknown.client == self.victim and not relevant.isdisjoint(inputs):
                relevant.add(run.columns[unknown])
                images.append(unknown)
        return images

    def of(self, question: Question) -> AnswerSeries:
        """The answers to one question."""
        return self._series[question]

    @cached_property
    def _series(self) -> dict[Question, AnswerSeries]:
        know = self.knowledge
        numbers = [u.when for u in self.gradients]
        when: dict[Question, list[int]] = {
            "gradient": numbers,
            "update": [batches[0].when for batches in self.updates],
            "difference": numbers[1:],
            "sum": numbers,
            "image": [u.when for u in self.images],
        }
        series = {}
        for question, moments in when.items():
            terms = [self.terms(question, index) for index in range(len(moments))]
            vectors = [know.vector(*zip(*pair, strict=True)) for pair in terms]
            series[question] = self._answers(question, moments, vectors)
        models = [know.pad(rows[self.victim]) for rows in know.run.models]
        series["model"] = self._answers("model", list(range(len(models))), models)
        return series

    def terms(
        self, question: Question, index: int
    ) -> tuple[tuple[Unknown, ...], tuple[float, ...]]:
        """The unknowns that an answer is about and their coefficients; none for a model."""
        gradients = self.gradients
        if question == "gradient":
            return (gradients[index],), (1.0,)
        if question == "update":
            return self.updates[index], (1.0,) * len(self.updates[index])
        if question == "difference":
            return (gradients[index + 1], gradients[index]), (1.0, -1.0)
        if question == "sum":
            clients = sorted(self.honest_component)
            return tuple(gradients[index]._replace(client=i) for i in clients), (1.0,) * len(
                clients
            )
        if question == "image":
            return (self.images[index],), (1.0,)
        return (), ()

    def _answers(self, question: Question, when: list[int], vectors: list[Matrix]) -> AnswerSeries:
        know = self.knowledge
        if not vectors:
            return AnswerSeries(question, [], np.zeros(0), lambda index: HIDDEN)
        variances = know.variances(np.stack(vectors))
        return AnswerSeries(question, when, variances, lambda index: know.answer(vectors[index]))

    def as_dict(self) -> dict[str, Any]:
        return {
            "victim": self.victim,
            "honest_component": sorted(self.honest_component),
            **{
                question: self.of(question).as_dict() | {"proof": self.proof(question)}
                for question in QUESTIONS
            },
        }

    def proof(self, question: Question) -> dict[str, Any] | None:
        """The combination of messages that proves the first exact answer, as plain values."""
        series = self.of(question)
        exact = series.indices("exact")
        if not exact or (combination := series.answer(exact[0]).combination) is None:
            return None
        messages = self.knowledge.run.transcript.messages
        terms = [
            {
                "coefficient": coefficient,
                "message": messages[index].tag,
                "tick": messages[index].tick,
                "source": int(messages[index].source[row]),
                "target": None if (to := messages[index].target) is None else int(to[row]),
            }
            for (index, row), coefficient in combination.messages
        ]
        own = [
            {"coefficient": -coefficient, "holds": str(unknown)}
            for unknown, coefficient in combination.own
        ]
        gain = combination.gain
        return {"of": series.when[exact[0]], "messages": terms, "own": own, "gain": gain}
