"""How many samples of a victim's batches an adversary recovers, by any attack."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.auditing.active.imprint import read_samples
from tacit.auditing.attacks.evidence import Evidence, Kind, evidence
from tacit.auditing.attacks.linear_layers import first_linear
from tacit.auditing.attacks.reconstruction_attacks import ReconstructionResult
from tacit.auditing.scoring.truth import Truth
from tacit.auditing.symbolic.leakage import ABOUT_GRADIENTS, Leakage
from tacit.record.transcript import Transcript
from tacit.record.unknowns import Unknown
from tacit.tasks.flat import ModuleLoss

MAX_MSE = 1e-3  # of a sample that counts as recovered
MAX_VALUES = 5  # of one kind that are read, the first ones


@dataclass(frozen=True)
class RecoveredSamples:
    """Samples that one kind of evidence revealed."""

    kind: Kind
    values: int  # pieces of evidence that were read
    samples: int  # behind them
    recovered: int  # with a mean squared error below MAX_MSE

    def as_dict(self) -> dict[str, Any]:
        plain = {"evidence": self.kind, "values": self.values, "samples": self.samples}
        return {**plain, "recovered": self.recovered, "mse_below": MAX_MSE}


def count_recovered(
    leakage: Leakage,
    transcript: Transcript,
    truth: Truth,
    inversions: Sequence[ReconstructionResult] = (),
) -> list[RecoveredSamples]:
    """The samples that each kind of evidence revealed, read from the first layer or inverted.

    Evidence is exact, or noisy where none of its kind is exact. Nothing is counted where gradients
    are sums over samples drawn at random: which ones is not known.

    Args:
        leakage: What the adversary knows about the victim.
        transcript: The recorded messages.
        truth: Only to count.
        inversions: Further guesses of the adversary.
    """
    counts: list[RecoveredSamples] = []
    if leakage.knowledge.run.samplings:
        return counts
    for question in ABOUT_GRADIENTS:
        series = leakage.of(question)
        indices = (series.indices("exact") or series.indices("noisy"))[:MAX_VALUES]
        if question == "sum" and len(leakage.honest_component) == 1:
            continue
        found = [evidence(leakage, question, index, transcript) for index in indices]
        if known := [piece for piece in found if piece is not None]:
            guesses = [
                inversion.guess[index].flatten(1).double()
                for inversion in inversions
                for index, piece in enumerate(inversion.evidence)
                if inversion.kind == known[0].kind and piece.victim == leakage.victim
            ]
            counts.append(_count(known, truth, guesses))
    return counts


def _count(known: list[Evidence], truth: Truth, guesses: list[Tensor]) -> RecoveredSamples:
    samples = _samples((term for piece in known for term in piece.terms), truth)
    if isinstance(truth.task.loss, ModuleLoss):
        layer = first_linear(truth.task.loss.flat, samples.shape[1:])
        if layer is not None and layer.bias is not None:
            guesses = [*guesses, *(read_samples(layer, piece.values.cpu()) for piece in known)]
    recovered = 0
    if guesses:
        guessed, true = torch.cat(guesses), samples.flatten(1).double()
        guessed = guessed[guessed.isfinite().all(1)]
        if len(guessed):
            errors = torch.cdist(true, guessed).square() / true.shape[1]
            recovered = int((errors.min(1).values < MAX_MSE).sum())
    return RecoveredSamples(known[0].kind, len(known), len(samples), recovered)


def _samples(terms: Iterable[Unknown], truth: Truth) -> Tensor:
    """The inputs of all batches behind the gradients, each once."""
    batches = [truth.batch(term.client, term.when)[0] for term in dict.fromkeys(terms)]
    samples: Tensor = torch.unique(torch.cat(batches), dim=0)
    return samples
