"""Everything known about a victim whose gradients are all of the same data, as one observation.

The M values vₘ = Σₖ Cₘₖ ∇L(θₖ; x_c(k)) involve K gradients of clients c(k). If every gradient of a
client is of one batch, the unknowns are one batch per client, however many values are known. Two
differences determine more than one; differences and a sum over clients separate the clients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.auditing.attacks.data_spec import DataSpec
from tacit.auditing.attacks.evidence import Evidence, Kind
from tacit.auditing.attacks.gradient_matching import MatchingProblems
from tacit.auditing.attacks.guesses import GuessLayout
from tacit.auditing.attacks.input_search import Guess, choose_search
from tacit.auditing.attacks.known_evidence import ABOUT_SEVERAL, ABOUT_VICTIM, exact_evidence
from tacit.auditing.attacks.observation import Observation
from tacit.auditing.symbolic.leakage import Leakage
from tacit.record.transcript import Transcript
from tacit.record.unknowns import Unknown
from tacit.tasks.flat import ModuleLoss

MAX_GRADIENTS = 8  # gradients of one client in the values, roughly
MAX_CLIENTS = 4  # clients whose batches are searched together


@dataclass(frozen=True, eq=False)
class JointEvidence:
    """Several exact pieces of evidence, with known points, about the same data."""

    victim: int
    parts: tuple[Evidence, ...]
    deviation: float = 0.0
    assumption: str = ""

    def __str__(self) -> str:
        return f"{len(self.parts)} values: " + "; ".join(str(part) for part in self.parts)

    @property
    def terms(self) -> tuple[Unknown, ...]:
        """All gradients, each once, those of the victim first."""
        every = dict.fromkeys(term for part in self.parts for term in part.terms)
        return tuple(sorted(every, key=lambda u: (u.client != self.victim, u.client, u.when)))

    @property
    def made_of(self) -> tuple[tuple[tuple[Unknown, ...], tuple[float, ...]], ...]:
        return tuple((part.terms, part.coefficients) for part in self.parts)

    @property
    def gain(self) -> float:
        return max(part.gain for part in self.parts)

    @property
    def rounding(self) -> float:
        return max(part.rounding for part in self.parts)

    def observation(self, device: torch.device | str, dtype: torch.dtype) -> Observation:
        """What is known, as one observation of one victim, whose batch is number 0."""
        terms = self.terms
        points: dict[Unknown, Tensor] = {}
        coefficients = torch.zeros(len(self.parts), len(terms), dtype=torch.float64)
        for m, part in enumerate(self.parts):
            assert part.points is not None  # so chosen by exact_evidence
            points |= dict(zip(part.terms, part.points, strict=True))
            for term, c in zip(part.terms, part.coefficients, strict=True):
                coefficients[m, terms.index(term)] = c
        clients = list(dict.fromkeys(term.client for term in terms))
        values = torch.stack([part.values for part in self.parts])
        weights = torch.stack([points[term] for term in terms])
        return Observation(
            weights[None].to(device, dtype),
            coefficients.to(device, dtype),
            values[None].to(device, dtype),
            tuple(clients.index(term.client) for term in terms),
        )


def joint_evidence(leakage: Leakage, transcript: Transcript) -> JointEvidence | None:
    """Everything exact about the victim, if it is more than one value.

    Several values about the victim's gradients alone are enough. If there is at most one, sums over
    clients are included, together with what is known about the other clients.
    """
    own, _ = exact_evidence(leakage, transcript, ABOUT_VICTIM, most=MAX_GRADIENTS)
    parts = list(own)
    others = leakage.honest_component - {leakage.victim}
    if len(own) < 2 and 0 < len(others) < MAX_CLIENTS:
        most = MAX_GRADIENTS * (len(others) + 1) // 2
        several, _ = exact_evidence(leakage, transcript, ABOUT_SEVERAL, most=most)
        parts += several
        for client in sorted(others) if several else ():
            theirs = Leakage(leakage.knowledge, client)
            found, _ = exact_evidence(theirs, transcript, ABOUT_VICTIM, most=MAX_GRADIENTS)
            parts += found
    about = any(term.client == leakage.victim for part in parts for term in part.terms)
    return JointEvidence(leakage.victim, tuple(parts)) if about and len(parts) > 1 else None


def best_guess(
    loss: ModuleLoss,
    observation: Observation,
    spec: DataSpec,
    searched: Guess,
    others: Sequence[tuple[Kind, Tensor, Tensor | None]],
    *,
    clipped: bool,
) -> Guess:
    """The guess with the smallest matching loss on everything known.

    Args:
        loss: The loss of the attacked model.
        observation: Everything known about one victim.
        spec: What the attacker knows about the data.
        searched: The guess of the joint inversion.
        others: The kind of evidence, the guess [b, *shape] and the labels [b] of inversions of
            single pieces. If labels are not known, all classes of one sample are tried.
        clipped: Whether gradients were multiplied by unknown factors.
    """
    shape = searched.inputs.shape[1:]
    options: list[tuple[str, Tensor, Tensor]] = []
    for kind, inputs, labels in others:
        if inputs.shape == shape and labels is not None:
            options.append((kind, inputs, labels))
        elif inputs.shape == shape and len(inputs) == 1:
            options += [(kind, inputs, torch.tensor([k])) for k in range(spec.classes)]
    assert searched.labels is not None  # a search has labels
    guesses = [("", searched.inputs[0], searched.labels[0]), *options]
    layout = GuessLayout(observation.batches, spec, soft=False)
    values = observation.values
    labels = torch.stack([one for _, _, one in guesses]).to(values.device)
    rows = torch.stack([one.flatten() for _, one, _ in guesses]).to(values)
    which = torch.arange(len(guesses), device=values.device)
    matching = MatchingProblems(
        loss.to(values.device),
        observation,
        choose_search(loss, observation, spec, clipped=clipped)[0],
        layout,
        labels.view(1, len(guesses), observation.batches, spec.batch, *labels.shape[2:]),
        which,
        len(guesses),
    )
    losses, _ = matching(rows, which)
    best = int(losses.nan_to_num(nan=torch.inf).argmin())
    source, inputs, own = guesses[best]
    remark = (
        f"best of {1 + len({name for name, *_ in options})} guesses by the matching loss of "
        f"everything known, {float(losses[best]):.3g}"
    )
    method = searched.method if best == 0 else f"as from the {source}"
    return replace(
        searched,
        inputs=inputs[None],
        labels=own[None],
        method=method,
        assumptions=[*searched.assumptions, remark],
    )
