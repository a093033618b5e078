"""Inversion of what an adversary knows: from evidence to pictures, and their scores beside two baselines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tacit.auditing.attacks.evidence import Evidence, Kind, evidence
from tacit.auditing.attacks.inversion import invert
from tacit.auditing.attacks.layers import activations
from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.objectives import L2, CosineDistance
from tacit.auditing.attacks.observation import Observation
from tacit.auditing.attacks.shortcuts import read_inputs
from tacit.auditing.attacks.signed_adam import SignedAdam
from tacit.auditing.scoring.reconstruction import ReconstructionScore, score_reconstruction
from tacit.auditing.scoring.truth import Truth
from tacit.auditing.symbolic.findings import Findings, Question
from tacit.privacy.clipping import Clip
from tacit.record.transcript import Transcript
from tacit.record.unknowns import Unknown
from tacit.tasks.flat import ModuleLoss
from tacit.tasks.source import FullParts, SampledParts
from tacit.tasks.task import Task

Progress = Callable[[str, int, int], None]  # what, how far, of how much


@dataclass(frozen=True, eq=False)
class Effort:
    """How hard attacks try."""

    restarts: int = 8
    seconds: float = 60.0  # for each kind of evidence
    seed: int = 0
    device: torch.device | str = "cpu"


@dataclass(frozen=True, eq=False)
class Attack:
    """One inversion of evidence of one kind about several victims, and what came of it."""

    kind: Kind
    evidence: list[Evidence]  # per victim
    method: str
    guess: Tensor  # [V, b, *shape]
    truth: Tensor
    score: ReconstructionScore
    assumptions: list[str]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values, without the pictures."""
        return {
            "evidence": self.kind,
            "victims": [one.victim for one in self.evidence],
            "made_of": [str(one) for one in self.evidence],
            "noise_deviation": [one.deviation for one in self.evidence],
            "gain": [one.gain for one in self.evidence],
            "rounding": [one.rounding for one in self.evidence],
            "method": self.method,
            "score": self.score.as_dict(),
            "assumptions": self.assumptions,
            "seconds": self.seconds,
        }


@dataclass(frozen=True)
class Told:
    """What an attacker is told about the data."""

    shape: tuple[int, ...]
    batch: int
    classes: int
    box: tuple[float, float]

    @classmethod
    def of(cls, task: Task, victim: int, pool: tuple[Tensor, Tensor]) -> Told:
        """From the protocol and from public data of the same kind."""
        x, _ = pool
        assert isinstance(task.loss, ModuleLoss)  # see not_invertible
        flat = task.loss.flat
        classes = flat(flat.weights(), x[:1].to(flat.dtype)).shape[1]
        return cls(
            tuple(x.shape[1:]), batch_size(task, victim), classes, (float(x.min()), float(x.max()))
        )


EXACT_ONLY: tuple[Question, ...] = ("update", "difference")


def best_evidence(found: Findings, transcript: Transcript) -> list[Evidence]:
    """The first of each kind of evidence: an exact gradient, or else the least noisy one; a difference; a sum."""
    chosen: list[Evidence | None] = []
    gradients = found.of("gradient")
    if exact := gradients.places("exact"):
        chosen.append(evidence(found, "gradient", exact[0], transcript))
    elif noisy := gradients.places("noisy"):
        best = min(noisy, key=lambda place: float(gradients.variances[place]))
        chosen.append(evidence(found, "gradient", best, transcript))
    for question in EXACT_ONLY:
        if exact := found.of(question).places("exact"):
            chosen.append(evidence(found, question, exact[0], transcript))
    if len(found.component) > 1 and (exact := found.of("sum").places("exact")):
        chosen.append(evidence(found, "sum", exact[0], transcript))
    return [one for one in chosen if one is not None]


def not_invertible(task: Task) -> str | None:
    """Why gradients of a task are not inverted here; None if they are."""
    if not isinstance(task.loss, ModuleLoss):
        return "gradients are inverted where a model classifies inputs; this task has a loss of its own"
    if not isinstance(task.source, FullParts | SampledParts):
        return "gradients are inverted where clients hold data; this task is a stream"
    truth = Truth(task, 0)
    pool = truth.outsiders(0)
    if pool is None:
        return "there is no public data of the same kind to compare with"
    if pool[1].is_floating_point() or pool[1].ndim != 1:
        return "gradients are inverted where a model classifies inputs; the targets here are not classes"
    held = [truth.members(client) for client in range(task.clients)]
    classes = {label for part in held if part is not None for label in part[1].tolist()}
    if missing := sorted(classes - set(pool[1].tolist())):
        return f"the public data to compare with have no sample of class {missing[0]}"
    return None


class Inversions:
    """Attacks on one run: what is exactly known is inverted once, whoever knows it."""

    def __init__(
        self, task: Task, truth: Truth, effort: Effort, progress: Progress | None = None
    ) -> None:
        self._task, self._truth, self._effort, self._progress = task, truth, effort, progress
        self._done: dict[tuple[tuple[Unknown, ...], ...], Attack] = {}

    def of(self, held: list[Evidence]) -> list[Attack]:
        """Invert all evidence, that of one kind and size together in one batch."""
        groups: dict[tuple[Kind, int, int], list[Evidence]] = {}
        for one in held:
            if one.points is not None and self.passes_over(one) is None:
                size = batch_size(self._task, one.terms[0].client)
                groups.setdefault((one.kind, len(one.points), size), []).append(one)
        return [self._attack(kind, group) for (kind, *_), group in groups.items()]

    def passes_over(self, one: Evidence) -> str | None:
        """Why evidence is not inverted; None if it is."""
        if one.points is None:
            return "where its gradients were taken is not known"
        if len({batch_size(self._task, term.client) for term in one.terms}) > 1:
            return "its gradients are of batches of different sizes"
        return None

    def _attack(self, kind: Kind, held: list[Evidence]) -> Attack:
        what = tuple(one.terms for one in held)
        exact = not any(one.deviation for one in held)
        if exact and what in self._done:
            return replace(self._done[what], evidence=held)
        attack = _invert(self._task, self._truth, kind, held, self._effort, self._progress)
        if exact:
            self._done[what] = attack
        return attack


def _invert(
    task: Task,
    truth: Truth,
    kind: Kind,
    held: list[Evidence],
    effort: Effort,
    progress: Progress | None,
) -> Attack:
    loss = task.loss
    assert isinstance(loss, ModuleLoss)
    pool = truth.outsiders(held[0].victim)
    assert pool is not None  # see not_invertible
    told = Told.of(task, held[0].victim, pool)
    dtype = loss.flat.dtype
    points = torch.stack([one.points for one in held if one.points is not None])
    values = torch.stack([one.values for one in held])
    coefficients = torch.tensor(held[0].coefficients)
    one_batch = kind != "sum" and (len(coefficients) == 1 or repeats(task))
    where, what, value = (
        array.to(effort.device, dtype) for array in (points, coefficients, values)
    )
    observation = Observation(where, what, value, one_batch)
    terms = [one.terms[: 1 if one_batch else None] for one in held]
    guess, guessed, method, assumptions, seconds = _guess(
        loss, observation, told, task.clip, effort, progress, kind
    )
    assumptions = [*assumptions, *_said_of(held, task)]
    true = [torch.cat([truth.batch(u.client, u.when)[0] for u in each]) for each in terms]
    labels = [torch.cat([truth.batch(u.client, u.when)[1] for u in each]) for each in terms]
    score = score_reconstruction(
        guess,
        torch.stack(true),
        torch.stack(labels),
        *pool,
        effort.seed,
        guess_labels=None if guessed is None else guessed.reshape(guess.shape[:2]),
    )
    return Attack(kind, held, method, guess, torch.stack(true), score, assumptions, seconds)


def _said_of(held: list[Evidence], task: Task) -> list[str]:
    """What else a reader must know about the evidence."""
    said = []
    if noise := max(one.deviation for one in held):
        said.append(
            f"noise of deviation {noise:.3g} is on every coordinate; the attack does not model it"
        )
    if task.clip is not None:
        said.append(
            "gradients were clipped by factors that are not known; the attack matches directions"
        )
    if (lost := max(one.rounding for one in held)) > 0.01:
        said.append(f"the rounding of messages is about {lost:.0%} of the evidence")
    return said


def _guess(
    loss: ModuleLoss,
    observation: Observation,
    told: Told,
    clip: Clip | None,
    effort: Effort,
    progress: Progress | None,
    kind: Kind,
) -> tuple[Tensor, Tensor | None, str, list[str], float]:
    """Inputs [V, b, *shape], labels, how they were found and under which assumptions: the attacker's part."""
    shape, batch = told.shape, told.batch
    victims = len(observation.values)
    short = read_inputs(loss.flat, observation, shape=shape, batch=batch)
    if short.inputs is not None and bool(short.exact().all()):
        return (
            short.inputs.cpu(),
            None,
            "exact shortcut",
            [short.note, f"batch size known: {batch}"],
            0.0,
        )
    single = batch == 1 and observation.batches == 1
    smooth = 0.0 if single or len(shape) != 3 else 1e-2  # total variation is for pictures
    plain = clip is None and (
        single or "ReLU" not in activations(loss.flat.module)
    )  # L-BFGS wants it smooth
    found = invert(
        loss,
        observation,
        shape=shape,
        batch=batch,
        classes=told.classes,
        objective=L2() if plain else CosineDistance(total_variation=smooth),
        optimiser=LBFGS() if plain or single else SignedAdam(),
        restarts=effort.restarts,
        seed=effort.seed,
        box=told.box,
        budget_seconds=effort.seconds,
        progress=None
        if progress is None
        else lambda i, of, _: progress(f"inverting the {kind}", i, of),
    )
    search = "L-BFGS" if plain or single else "signed Adam"
    search = f"total variation, {search}" if smooth and not plain else search
    method = f"{'L2' if plain else 'cosine'}, {search}"
    guess = found.inputs.reshape(victims, -1, *shape).cpu()
    return guess, found.labels.cpu(), method, found.assumptions, found.seconds


def batch_size(task: Task, client: int) -> int:
    """How many samples a gradient of a client sees; the protocol says so."""
    source = task.source
    if isinstance(source, SampledParts):
        return source.batch_size
    return len(source.parts[client][0]) if isinstance(source, FullParts) else 0


def repeats(task: Task) -> bool:
    """Whether every gradient of a client sees the same data."""
    source = task.source
    if isinstance(source, SampledParts):
        return bool((source.parts.sizes == source.batch_size).all())
    return isinstance(source, FullParts)
