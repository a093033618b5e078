"""What an adversary learns about one victim, question by question and iteration by iteration.

gradient     gᵢᵏ, for each batch k
update       Σ gᵢᵏ over the batches of one iteration, if it has several: the sum of local steps
difference   gᵢᵏ⁺¹ − gᵢᵏ
combination  any other combination of the victim's gradients, in a basis of short ones
group        a short combination of gradients of the victim and one or two other honest clients
sum          Σⱼ gⱼᵏ over the victim's honest component
model        θᵢᵗ after each iteration t
image        the result of a declared non-linear step on rows that contain a gradient of the victim;
             what it reveals about the gradient depends on the step and is not judged here
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal, get_args

import numpy as np

from tacit.auditing.symbolic.linear_knowledge import HIDDEN, Estimate, LinearKnowledge, Status
from tacit.auditing.symbolic.row_space import Matrix
from tacit.auditing.symbolic.subspace import KnownSubspace, known_group_sums, known_subspace
from tacit.core.checks import is_count
from tacit.core.errors import Misuse
from tacit.record.unknowns import Unknown

Question = Literal[
    "gradient", "update", "difference", "combination", "group", "sum", "model", "image"
]
QUESTIONS: tuple[Question, ...] = get_args(Question)
ABOUT_GRADIENTS = QUESTIONS[:6]  # the most revealing first
LONGEST_SUM = 6  # gradients in a combination of several clients
Terms = tuple[tuple[Unknown, ...], tuple[float, ...]]  # unknowns and their coefficients


@dataclass(frozen=True, eq=False)
class Estimates:
    """The answers to one question over time."""

    knowledge: LinearKnowledge
    when: list[int]  # number of the batch (the later one of a difference), or iteration
    vectors: Matrix  # the quantities [c, U]
    terms: list[Terms]  # the same as unknowns and their coefficients; none for models

    @cached_property
    def variances(self) -> Matrix:
        """Variances [c] of the best estimates; 0 if exact, infinite if hidden."""
        return self.knowledge.variances(self.vectors)

    @property
    def statuses(self) -> list[Status]:
        return ["exact" if v == 0 else "hidden" if np.isinf(v) else "noisy" for v in self.variances]

    def indices(self, status: Status) -> list[int]:
        return [index for index, answer in enumerate(self.statuses) if answer == status]

    def estimate(self, index: int) -> Estimate:
        """The answer at an index, with its combination."""
        return self.knowledge.estimate(self.vectors[index]) if self.when else HIDDEN

    def as_dict(self) -> dict[str, Any]:
        deviations = [None if np.isinf(v) else float(np.sqrt(v)) for v in self.variances]
        return {"when": self.when, "status": self.statuses, "noise_deviation": deviations}


@dataclass(frozen=True, eq=False)
class Leakage:
    """The answers to all questions about one victim."""

    knowledge: LinearKnowledge
    victim: int
    _series: dict[Question, Estimates] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        check_victim(self.victim, self.knowledge.run.clients)
        adversary = self.knowledge.adversary
        if self.victim in adversary.corrupt:
            who = f"Client {adversary.name_of(self.victim)}"
            raise Misuse(
                f"{who} is corrupt: it cannot be the victim of {adversary}.",
                "Name an honest client.",
            )

    @property
    def victim_text(self) -> str:
        """The victim in a sentence, such as "client 0"."""
        return f"client {self.knowledge.adversary.name_of(self.victim)}"

    @cached_property
    def honest_component(self) -> frozenset[int]:
        """The victim and the honest clients it stays connected to."""
        return self.knowledge.adversary.honest_component(self.victim, self.knowledge.run.transcript)

    @cached_property
    def gradients(self) -> list[Unknown]:
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
            inputs = {k for one in step.inputs for k in one.nonzero()[:, 0].tolist()}
            if unknown.client == self.victim and not relevant.isdisjoint(inputs):
                relevant.add(run.columns[unknown])
                images.append(unknown)
        return images

    def of(self, question: Question) -> Estimates:
        if question not in self._series:
            know, terms = self.knowledge, self._terms(question)
            if question == "model":
                vectors = [know.pad(rows[self.victim]) for rows in know.run.models]
                when = list(range(len(vectors)))
            else:
                vectors = [know.vector(*zip(*pair, strict=True)) for pair in terms]
                when = [unknowns[0].when for unknowns, _ in terms]
            stacked = np.array(vectors).reshape(len(when), len(know.run.unknowns))
            self._series[question] = Estimates(know, when, stacked, terms)
        return self._series[question]

    @cached_property
    def strongest(self) -> tuple[Question, Status] | None:
        """The question with the most revealing answers, and their best status; None if hidden."""
        for question in ABOUT_GRADIENTS:
            if self.knowledge.exact(self.of(question).vectors).any():
                return question, "exact"
        if self.of("gradient").indices("noisy"):
            return "gradient", "noisy"
        return ("image", "exact") if self.of("image").indices("exact") else None

    def terms(self, question: Question, index: int) -> Terms:
        """The unknowns that an answer is about and their coefficients; none for a model."""
        return self.of(question).terms[index]

    def _terms(self, question: Question) -> list[Terms]:
        gradients = self.gradients
        match question:
            case "gradient":
                return _sums((u,) for u in gradients)
            case "update":
                return _sums(self.updates)
            case "difference":
                return [((b, a), (1.0, -1.0)) for a, b in pairwise(gradients)]
            case "combination":
                known = (self.subspace.terms(k) for k in range(self.subspace.dimension))
                differences = self.of("difference").terms
                return [terms for terms in known if len(terms[0]) > 1 and terms not in differences]
            case "group":
                return self._group_terms()
            case "sum":
                clients = sorted(self.honest_component)
                return _sums(tuple(u._replace(client=i) for i in clients) for u in gradients)
            case "image":
                return _sums((u,) for u in self.images)
            case "model":
                return [((), ())] * len(self.knowledge.run.models)

    @cached_property
    def subspace(self) -> KnownSubspace:
        """All combinations of the victim's gradients that are exactly known."""
        return known_subspace(self.knowledge, self.gradients)

    def _group_terms(self) -> list[Terms]:
        others = self.honest_component - {self.victim}
        if len(others) < 2 or self.subspace.dimension == len(self.gradients):
            return []  # The only group is the whole component, or everything is known anyway.
        run = self.knowledge.run
        gradients = {client: run.gradients(client) for client in self.honest_component}
        sums = known_group_sums(self.knowledge, gradients, self.victim)
        return [
            (unknowns, coefficients)
            for unknowns, coefficients in sums
            if len(unknowns) <= LONGEST_SUM and len({u.client for u in unknowns}) <= len(others)
        ]

    def as_dict(self) -> dict[str, Any]:
        return {
            "victim": self.victim,
            "honest_component": sorted(self.honest_component),
            "known_dimension": self.subspace.dimension,
            **{
                question: self.of(question).as_dict() | {"proof": self.proof(question)}
                for question in QUESTIONS
            },
        }

    def proof(self, question: Question) -> dict[str, Any] | None:
        """The combination of messages that proves the first exact answer, as plain values."""
        series = self.of(question)
        exact = series.indices("exact")
        if not exact or (combination := series.estimate(exact[0]).combination) is None:
            return None
        messages = self.knowledge.run.transcript.messages
        names = self.knowledge.adversary.names
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
        own = [{"coefficient": -x, "holds": unknown.text(names)} for unknown, x in combination.own]
        when, gain = series.when[exact[0]], combination.gain
        return {"of": when, "messages": terms, "own": own, "gain": gain}


def _sums(groups: Iterable[tuple[Unknown, ...]]) -> list[Terms]:
    return [(unknowns, (1.0,) * len(unknowns)) for unknowns in groups]


def check_victim(victim: int, clients: int) -> None:
    """Raise Misuse unless there is such a client."""
    if not is_count(victim, 0) or victim >= clients:
        raise Misuse(
            f"There is no client {victim!r} to be the victim.", f"Name one from 0 to {clients - 1}."
        )


def format_terms(
    terms: Sequence[Unknown],
    coefficients: Sequence[float],
    names: Sequence[str],
    most: int = 6,
) -> str:
    """A combination of unknowns as text; terms after the first `most` are left out."""
    shown = list(zip(coefficients, terms, strict=True))[:most]
    text = " ".join(f"{coefficient:+.3g}·{unknown.text(names)}" for coefficient, unknown in shown)
    return text + (" + …" if len(terms) > most else "")
