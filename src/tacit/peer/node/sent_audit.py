"""What neighbours can compute from what a node really sent: attacks on its own transcript.

The algorithm runs on symbols for the iterations in the transcript, which shows what combinations of
messages each neighbour, and all of them together, can compute. The same combinations of the
recorded numbers are then compared with the node's true gradients, which only this machine can
compute: it has the data.

The transcript has the messages of this node and its neighbours. A coalition is therefore given what
it sees of these messages, the noise and masks that it shares with this node (derived from the
node's keys), and the first model, if all start from one. All neighbours together need no more: what
a node sends depends on nothing else but its own data and noise. A single neighbour may know more,
from messages that others sent to it: see what is proved from the manifest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.evidence import Evidence, known_point
from tacit.auditing.attacks.known_evidence import ABOUT_VICTIM, approximate_gradients, best_evidence
from tacit.auditing.attacks.reconstruction_attacks import ReconstructionAttacks, why_not_attackable
from tacit.auditing.options import AttackOptions, Progress
from tacit.auditing.scoring.truth import Truth
from tacit.auditing.statements import reconstruction
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.core.errors import Misuse
from tacit.peer.federation.folders import NodeFolder
from tacit.peer.node.audited_node import AuditedNode
from tacit.peer.node.kept_messages import KeptMessages, transcript_folder
from tacit.peer.node.transcript_log import segment_paths
from tacit.record.transcript import Transcript
from tacit.record.unknowns import Unknown

ITERATIONS = 10  # attacked, by default


@dataclass(frozen=True)
class Recovered:
    """A value that a coalition computed from the messages.

    Attributes:
        kind: What it is: a gradient, a difference of two, a noisy gradient, …
        what: Of which gradients it is made.
        exact: Whether it is exact but for rounding.
        error: ‖value − truth‖ / ‖truth‖; None if it was not compared.
        inputs: How close the inputs are that were reconstructed from it; empty if none were.
    """

    kind: str
    what: str
    exact: bool
    error: float | None
    inputs: str = ""

    def __str__(self) -> str:
        error = "not compared" if self.error is None else f"relative error {self.error:.2g}"
        inputs = f"; {self.inputs}" if self.inputs else ""
        return f"{self.what}: {error}{inputs}"


@dataclass(frozen=True)
class CoalitionFindings:
    """What one coalition computed.

    Attributes:
        members: The names of the neighbours.
        known: By question, how many quantities are known exactly, and how many there are.
        recovered: The first value of each kind, compared with the truth.
    """

    members: tuple[str, ...]
    known: dict[str, tuple[int, int]]
    recovered: list[Recovered]

    @property
    def who(self) -> str:
        *others, last = self.members
        return f"{', '.join(others)} and {last} together" if others else last

    def _verb(self, verb: str) -> str:
        return verb if len(self.members) > 1 else f"{verb}s"

    @property
    def summary(self) -> str:
        """What the coalition computes, as one sentence."""
        exact = [
            f"{count} of {of} {question}s" for question, (count, of) in self.known.items() if count
        ]
        who = f"{self.who} {self._verb('compute')}"
        if exact:
            return f"{who} {', '.join(exact)} exactly"
        kinds = {one.kind for one in self.recovered}
        if "noisy gradient" in kinds:
            return f"{who} gradients only with noise"
        if "randomized gradient" in kinds:
            return f"{who} gradients only as a random step changed them"
        return f"{who} no gradient"


@dataclass(frozen=True)
class SentAudit:
    """The result: what was attacked, and what each coalition computed.

    Attributes:
        kept: The transcript.
        first: The first iteration attacked.
        last: The last iteration attacked.
        coalitions: Each neighbour, and all of them together.
        notes: What was not measured, and why.
    """

    node: str
    kept: KeptMessages
    first: int
    last: int
    coalitions: list[CoalitionFindings]
    notes: list[str]

    @property
    def lines(self) -> list[str]:
        """The result as text: coverage, what each coalition computes, what was not measured."""
        text = [f"{self.coverage[0].upper()}{self.coverage[1:]}."]
        for one in self.coalitions:
            text.append(f"{one.summary}.")
            text += [f"  {value}" for value in one.recovered]
        return text + [f"Not measured: {note.rstrip('.')}." for note in self.notes]

    @property
    def coverage(self) -> str:
        """Which iterations the transcript has, and which were attacked."""
        kept = self.kept
        every = "all" if kept.is_start and kept.last == kept.ended else "part"
        return (
            f"the transcript of {self.node} has iterations {kept.first} to {kept.last} of "
            f"{kept.ended} ({every} of what was sent under this roster); iterations {self.first} "
            f"to {self.last} were attacked. {kept.sent} of its messages equal the record that it "
            "made when it sent them"
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "generation": self.kept.manifest.number,
            "complete": [self.kept.first, self.kept.last],
            "sent_until": self.kept.ended,
            "attacked": [self.first, self.last],
            "compared_with_record": self.kept.sent,
            "coalitions": [
                {
                    "members": list(one.members),
                    "summary": one.summary,
                    "exact": {question: list(pair) for question, pair in one.known.items()},
                    "recovered": [vars(value) for value in one.recovered],
                }
                for one in self.coalitions
            ],
            "notes": self.notes,
        }


def audit_sent(
    folder: NodeFolder,
    *,
    iterations: int = ITERATIONS,
    data: str | None = None,
    attacks: AttackOptions | None = None,
    allowed_code: Sequence[str] = (),
    progress: Progress = lambda activity, done, of: None,
) -> SentAudit | None:
    """Attack a node's own transcript; None if it has no complete iteration of the newest roster.

    Args:
        folder: The node's folder.
        iterations: How many iterations are attacked, at most.
        data: The node's option --data. Without its data, errors are not measured.
        attacks: How hard to try to reconstruct inputs from what is computed; None: not at all.
        allowed_code: Code of the manifest that may run; see `check_allowed`.
        progress: Called with a description, the steps done and the steps in all.

    Raises:
        Misuse: The transcript is damaged, or is not what was sent, or the data are others.
    """
    if not segment_paths(transcript_folder(folder)):
        return None
    notes: list[str] = []
    subject = AuditedNode.load(folder, data, allowed_code)
    if subject is None:
        return None
    if subject.local is None:
        notes.append("errors, which need the node's data: give --data")
    totals = subject.algorithm.needs_total
    kept = KeptMessages.load(folder, subject.manifest, totals=totals)
    if kept is None:
        return None
    last = min(kept.last, kept.first + iterations - 1)
    run = subject.run_on_symbols(kept, last)
    coalitions: list[CoalitionFindings] = []
    try:
        transcript = kept.transcript(run.transcript)
    except Misuse as problem:
        notes.append(str(problem))
    else:
        truth = _TrueGradients(subject, run, transcript)
        invert = None if attacks is None else _inversion(subject, attacks, notes, progress)
        neighbours = subject.neighbours
        sets = [[one] for one in neighbours] + ([neighbours] if len(neighbours) > 1 else [])
        for done, members in enumerate(sets):
            progress("computing what neighbours know", done, len(sets))
            adversary = replace(Adversary.curious(*members), shares_with=subject.own)
            seen = replace(transcript, held=subject.held_rows(run, adversary))
            leakage = Leakage(Knowledge(run, adversary), subject.own)
            names = tuple(subject.manifest.names[one] for one in members)
            coalitions.append(_findings(names, leakage, seen, truth, invert))
    return SentAudit(folder.name, kept, kept.first, last, coalitions, notes)


def _findings(
    names: tuple[str, ...],
    leakage: Leakage,
    transcript: Transcript,
    truth: _TrueGradients,
    invert: Callable[[Evidence], str] | None,
) -> CoalitionFindings:
    """What a coalition computes, compared with the truth."""
    known = {}
    for question in ABOUT_VICTIM:
        if (series := leakage.of(question)).when:
            known[str(question)] = (len(series.indices("exact")), len(series.when))
    found = best_evidence(leakage, transcript)
    # Masked sums are known up to multiples of a number: no small change follows from them.
    if all(message.modulus is None for message in transcript.messages):
        found += approximate_gradients([leakage], transcript)
    recovered = []
    for one in found:
        # Of sums with others, this machine does not know the truth.
        if all(term.client == leakage.victim for term in one.terms):
            what = str(one).replace(f"g[{leakage.victim}]", "g")
            inputs = "" if invert is None else invert(one)
            recovered.append(Recovered(one.kind, what, one.is_exact, truth.error(one), inputs))
    return CoalitionFindings(names, known, recovered)


class _TrueGradients:
    """The node's gradients in the attacked iterations, from its own data."""

    def __init__(self, subject: AuditedNode, run: SymbolicRun, transcript: Transcript) -> None:
        # The node knows its own noise, so it knows its own models.
        itself = Adversary(corrupt=frozenset({subject.own}), shares_with=subject.own)
        self._subject, self._run = subject, run
        self._knowledge = Knowledge(run, itself)
        self._transcript = replace(transcript, held=subject.held_rows(run, itself))
        self._known: dict[Unknown, Tensor | None] = {}

    def error(self, found: Evidence) -> float | None:
        """‖value − truth‖ / ‖truth‖; None if the truth is not known."""
        gradients = [self._gradient(term) for term in found.terms]
        parts = [
            coefficient * gradient
            for coefficient, gradient in zip(found.coefficients, gradients, strict=True)
            if gradient is not None
        ]
        if not parts or len(parts) < len(gradients):
            return None
        truth = torch.stack(parts).sum(0)
        return float((found.values - truth).norm() / truth.norm().clamp(min=1e-300))

    def _gradient(self, term: Unknown) -> Tensor | None:
        if term not in self._known:
            self._known[term] = self._compute(term)
        return self._known[term]

    def _compute(self, term: Unknown) -> Tensor | None:
        # Which samples were drawn for a sum is not known here.
        if self._subject.local is None or term.when in self._run.samplings:
            return None
        try:
            point = known_point(self._knowledge, term, self._transcript)
        except Misuse:
            return None
        if point is None:
            return None
        theta = point[None].to(self._subject.task.dtype)
        return self._subject.objective.grad(theta, term.when)[0].double()


def _inversion(
    subject: AuditedNode, options: AttackOptions, notes: list[str], progress: Progress
) -> Callable[[Evidence], str] | None:
    """What reconstructs inputs from evidence and says how close they are; None if nothing can."""
    if subject.local is None:
        raise Misuse("Reconstructed inputs are compared with the node's data.", "Give --data.")
    task, index = subject.local.task, subject.local.index
    if (reason := why_not_attackable(task)) is not None:
        notes.append(reason)
        return None
    truth = Truth(task, subject.manifest.config.run.seed, subject.number)
    attacks = ReconstructionAttacks(truth, options, progress)

    def invert(found: Evidence) -> str:
        terms = tuple(term._replace(client=index) for term in found.terms)
        results = attacks.run([replace(found, victim=index, terms=terms)])
        return reconstruction(results[0], 0) if results else ""

    return invert
