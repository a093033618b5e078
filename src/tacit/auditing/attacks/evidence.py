"""Evidence: the combinations that the symbolic audit found, applied to the recorded numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from tacit.auditing.symbolic.leakage import Leakage, Question
from tacit.auditing.symbolic.linear_knowledge import Combination, Derivation, LinearKnowledge
from tacit.auditing.symbolic.replay import outline
from tacit.core.errors import Misuse
from tacit.core.here import LogDensity
from tacit.record.transcript import Transcript
from tacit.record.unknowns import Unknown

FIXED_POINT_STEPS = 400
Kind = (
    Question
    | Literal["noisy gradient", "approximate gradient", "randomized gradient", "everything known"]
)


@dataclass(frozen=True, eq=False)
class RandomStep:
    """A random step with a known density, taken on a gradient and a known shift."""

    tag: str
    log_density: LogDensity
    mean: float = 1.0  # the expected result is `mean` times the row
    shift: Tensor | None = None  # [P], added to the gradient before


@dataclass(frozen=True, eq=False)
class Evidence:
    """Numbers that an adversary computed: Σₖ cₖ gₖ, a model, or what a random step made of g."""

    kind: Kind
    victim: int
    terms: tuple[Unknown, ...]  # the K gradients; none for a model
    coefficients: tuple[float, ...]  # K; those of everything known are in its parts
    values: Tensor  # [P], or [M, P] of M parts
    points: Tensor | None  # [K, P] models at which the gradients were taken; None: not known
    deviation: float  # standard deviation of the noise in each coordinate; 0 if exact
    gain: float  # factor by which the combination multiplies the rounding of messages, at most
    rounding: float  # approximate error from the rounding of messages, relative to the values
    assumption: str = ""  # what the numbers rest on besides the messages
    step: RandomStep | None = None  # whose result on the one gradient the values are
    parts: tuple[Evidence, ...] = ()  # M pieces about the same data that are known together

    @classmethod
    def together(cls, victim: int, parts: tuple[Evidence, ...]) -> Evidence:
        """Exact pieces with known points, as one: all gradients, each once, the victim's first."""
        points: dict[Unknown, Tensor] = {}
        for part in parts:
            assert part.points is not None  # so chosen by exact_evidence
            points |= dict(zip(part.terms, part.points, strict=True))
        terms = sorted(points, key=lambda u: (u.client != victim, u.client, u.when))
        return cls(
            "everything known",
            victim,
            tuple(terms),
            (),
            torch.stack([part.values for part in parts]),
            torch.stack([points[term] for term in terms]),
            deviation=0.0,
            gain=max(part.gain for part in parts),
            rounding=max(part.rounding for part in parts),
            parts=parts,
        )

    @property
    def made_of(self) -> tuple[tuple[tuple[Unknown, ...], tuple[float, ...]], ...]:
        """The gradients and coefficients of each value."""
        return tuple((part.terms, part.coefficients) for part in self.parts or (self,))

    @property
    def matrix(self) -> list[list[float]]:
        """The coefficients [M, K] of all gradients in each value."""
        rows = [dict(zip(*pair, strict=True)) for pair in self.made_of]
        return [[row.get(term, 0.0) for term in self.terms] for row in rows]

    @property
    def is_exact(self) -> bool:
        """Whether the values are the gradients or models themselves, but for rounding."""
        return not self.deviation and self.step is None

    def __str__(self) -> str:
        if self.parts:
            return f"{len(self.parts)} values: " + "; ".join(map(str, self.parts))
        if not self.terms:
            return f"{self.kind} of client {self.victim}"
        if self.step is not None:
            return f"{self.kind} {self.step.tag}({self.terms[0]})"
        made = " ".join(f"{c:+g}·{u}" for c, u in zip(self.coefficients, self.terms, strict=True))
        noise = f" with noise of deviation {self.deviation:.3g}" if self.deviation else ", exactly"
        noise += f", assuming that {self.assumption}" if self.assumption else ""
        return f"{self.kind} {made}{noise}"


def apply_combination(
    combination: Combination, knowledge: LinearKnowledge, transcript: Transcript
) -> Tensor:
    """Σ coefficients · messages − Σ coefficients · own rows, [P] in float64.

    Messages of masked sums are known up to multiples of their modulus. So is their combination,
    whose coefficients are then whole numbers: the value closest to zero is taken.
    """
    _check_same_run(knowledge.run.transcript, transcript)
    parts = [
        a * transcript.messages[message].rows[row].double()
        for (message, row), a in combination.messages
    ]
    parts += [a * _derived(each, knowledge, transcript) for each, a in combination.derived]
    parts += [-a * transcript.held_row(unknown).double() for unknown, a in combination.own]
    if not parts:
        return torch.zeros(())
    total = torch.stack(parts).sum(0)
    used = (transcript.messages[message].modulus for (message, _), _ in combination.messages)
    if modulus := next((number for number in used if number is not None), None):
        total = total - modulus * (total / modulus).round()
    return total


def _derived(derivation: Derivation, knowledge: LinearKnowledge, transcript: Transcript) -> Tensor:
    """The numbers [P] of a derivation."""
    sources = [apply_combination(each, knowledge, transcript)[None] for each in derivation.sources]
    step = knowledge.run.nonlinear_steps[derivation.unknown].declared
    if derivation.how == "function":
        return step.of_client(derivation.unknown.client, *sources)[0]
    (source,) = sources
    if derivation.how == "inverse":
        assert step.inverse is not None
        return step.inverse(source)[0]
    x = source
    for _ in range(FIXED_POINT_STEPS):
        x = source - derivation.ratio * step.function(x)
    return x[0]


def evidence(
    leakage: Leakage, question: Question, index: int, transcript: Transcript
) -> Evidence | None:
    """The numbers behind one answer of a series; None if it is hidden."""
    knowledge, victim = leakage.knowledge, leakage.victim
    estimate = leakage.of(question).estimate(index)
    if estimate.combination is None:
        return None
    values = apply_combination(estimate.combination, knowledge, transcript)
    deviation = float(estimate.variance or 0.0) ** 0.5
    gain, rounding = (
        estimate.combination.gain,
        relative_rounding(estimate.combination, values, transcript),
    )
    if question in ("model", "image"):
        return Evidence(question, victim, (), (), values, None, deviation, gain, rounding)
    noisy = question == "gradient" and estimate.status == "noisy"
    kind: Kind = "noisy gradient" if noisy else question
    terms, coefficients = leakage.terms(question, index)
    points = [known_point(knowledge, term, transcript) for term in terms]
    known = [point for point in points if point is not None]
    stacked = torch.stack(known) if len(known) == len(points) else None
    return Evidence(kind, victim, terms, coefficients, values, stacked, deviation, gain, rounding)


def randomized_gradient(leakage: Leakage, transcript: Transcript) -> Evidence | None:
    """The first exact result of a random step on one gradient, whose density is declared.

    What is added to the gradient before, such as weight decay, must be known.
    """
    knowledge, gradients = leakage.knowledge, set(leakage.gradients)
    run = knowledge.run
    for index in leakage.of("image").indices("exact"):
        step = run.nonlinear_steps[leakage.images[index]]
        declared = step.declared
        if declared.log_density is None:
            continue
        (row,) = step.inputs
        terms = [run.unknowns[column] for column in row.nonzero()[:, 0].tolist()]
        taken_on = [term for term in terms if term in gradients]
        if len(taken_on) != 1 or float(row[run.columns[taken_on[0]]]) != 1.0:
            continue
        rest = row.clone()
        rest[run.columns[taken_on[0]]] = 0.0
        shift = _known_row(knowledge, rest, transcript) if len(terms) > 1 else None
        image = evidence(leakage, "image", index, transcript)
        point = known_point(knowledge, taken_on[0], transcript)
        if image is None or point is None or (len(terms) > 1 and shift is None):
            continue
        mean = 1.0 if declared.mean is None else declared.mean
        return replace(
            image,
            kind="randomized gradient",
            terms=tuple(taken_on),
            coefficients=(1.0,),
            points=point[None],
            step=RandomStep(declared.tag, declared.log_density, mean, shift),
            assumption=f"the distribution of {declared.tag} is known",
        )
    return None


def relative_rounding(combination: Combination, values: Tensor, transcript: Transcript) -> float:
    """√Σ (a ‖message‖)² times the precision of messages, relative to the norm of the values."""
    rows = [
        (a, transcript.messages[message].rows[row]) for (message, row), a in combination.messages
    ]
    if not rows:
        return 0.0
    size = math.sqrt(sum((a * float(row.double().norm())) ** 2 for a, row in rows))
    return size * torch.finfo(rows[0][1].dtype).eps / max(float(values.norm()), 1e-300)


def known_point(
    knowledge: LinearKnowledge, gradient: Unknown, transcript: Transcript
) -> Tensor | None:
    """The model at which a gradient was taken, if it is exactly known."""
    point = knowledge.run.points[gradient.when][gradient.client]
    return _known_row(knowledge, point, transcript)


def _known_row(knowledge: LinearKnowledge, row: Tensor, transcript: Transcript) -> Tensor | None:
    """The numbers of a row of coefficients, if it is exactly known."""
    estimate = knowledge.estimate(knowledge.pad(row))
    if estimate.status != "exact" or estimate.combination is None:
        return None
    return apply_combination(estimate.combination, knowledge, transcript)


def _check_same_run(symbolic: Transcript, recorded: Transcript) -> None:
    """Raise Misuse if the numbers are not from the run that was audited."""

    def outlines(transcript: Transcript) -> tuple[object, ...]:
        return transcript.clients, transcript.edges, list(map(outline, transcript.messages))

    if outlines(symbolic) != outlines(recorded):
        raise Misuse(
            "The transcript has other messages than a run of this algorithm on this graph.",
            "Give the transcript and the configuration of the same run, recorded with the same "
            "bounds.",
        )
