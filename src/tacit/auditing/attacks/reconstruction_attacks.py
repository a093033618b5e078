"""Reconstruction attacks: from evidence to guessed inputs and their scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tacit.auditing.attacks.closed_forms import read_inputs
from tacit.auditing.attacks.evidence import Evidence, Kind
from tacit.auditing.attacks.gradient_matching import L2, CosineDistance
from tacit.auditing.attacks.inversion import invert
from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.linear_layers import activations
from tacit.auditing.attacks.observation import Observation
from tacit.auditing.attacks.optimiser import SignedAdam
from tacit.auditing.scoring.reconstruction import ReconstructionScore, score_reconstruction
from tacit.auditing.scoring.truth import Truth
from tacit.record.unknowns import Unknown
from tacit.tasks.batches import FullBatchSource, MiniBatchSource
from tacit.tasks.flat import ModuleLoss
from tacit.tasks.task import Task

SHORTCUT = (
    "computed from the first layer: exact for one sample per value; the residual shows whether it "
    "was one"
)
Progress = Callable[[str, int, int], None]  # (activity, steps done, steps in all)


@dataclass(frozen=True, eq=False)
class AttackOptions:
    """How hard attacks try."""

    restarts: int = 8
    seconds: float = 60.0  # for each kind of evidence
    seed: int = 0
    device: torch.device | str = "cpu"


@dataclass(frozen=True, eq=False)
class ReconstructionResult:
    """The inversion of one kind of evidence about several victims, and its scores."""

    kind: Kind
    evidence: list[Evidence]  # one per victim
    method: str
    guess: Tensor  # [V, b, *shape]
    truth: Tensor  # [V, b, *shape]
    score: ReconstructionScore
    assumptions: list[str]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """JSON values, without the images."""
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
class DataSpec:
    """What an attacker knows about the data."""

    shape: tuple[int, ...]
    batch: int
    classes: int
    box: tuple[float, float]  # lowest and highest value of an input

    @classmethod
    def of(cls, task: Task, victim: int, public: tuple[Tensor, Tensor]) -> DataSpec:
        """From the protocol and from public data of the same kind."""
        x, _ = public
        assert isinstance(task.loss, ModuleLoss)  # checked by why_not_invertible
        flat = task.loss.flat
        classes = flat(flat.weights(), x[:1].to(flat.dtype)).shape[1]
        box = float(x.min()), float(x.max())
        return cls(tuple(x.shape[1:]), batch_size(task, victim), classes, box)


def why_not_invertible(task: Task) -> str | None:
    """Why the gradients of a task cannot be inverted; None if they can."""
    if not isinstance(task.loss, ModuleLoss):
        return "inversion needs a model that classifies inputs; this task has a loss of its own"
    if not isinstance(task.source, FullBatchSource | MiniBatchSource):
        return "inversion needs clients that hold data; this task is a stream"
    truth = Truth(task, 0)
    public = truth.non_members(0)
    if public is None:
        return "there is no public data of the same kind to compare with"
    if public[1].is_floating_point() or public[1].ndim != 1:
        return "inversion needs a model that classifies inputs; the targets here are not classes"
    held = [truth.members(client) for client in range(task.clients)]
    classes = {label for part in held if part is not None for label in part[1].tolist()}
    if missing := sorted(classes - set(public[1].tolist())):
        return f"the public data to compare with have no sample of class {missing[0]}"
    return None


class ReconstructionAttacks:
    """Attacks on one run; the same exact evidence of several adversaries is inverted once."""

    def __init__(self, truth: Truth, options: AttackOptions, progress: Progress) -> None:
        assert isinstance(truth.task.loss, ModuleLoss)  # checked by why_not_invertible
        self._task, self._loss, self._truth = truth.task, truth.task.loss, truth
        self._options, self._progress = options, progress
        self._done: dict[tuple[tuple[Unknown, ...], ...], ReconstructionResult] = {}

    def run(self, found: list[Evidence]) -> list[ReconstructionResult]:
        """Invert all evidence, each kind and size as one batch."""
        groups: dict[tuple[Kind, int, int], list[Evidence]] = {}
        for one in found:
            if self.skip_reason(one) is None:
                size = batch_size(self._task, one.terms[0].client)
                groups.setdefault((one.kind, len(one.terms), size), []).append(one)
        return [self._attack(kind, group) for (kind, *_), group in groups.items()]

    def skip_reason(self, one: Evidence) -> str | None:
        """Why evidence is not inverted; None if it is."""
        if one.points is None:
            return "where its gradients were taken is not known"
        if len({batch_size(self._task, term.client) for term in one.terms}) > 1:
            return "its gradients are of batches of different sizes"
        return None

    def _attack(self, kind: Kind, group: list[Evidence]) -> ReconstructionResult:
        terms = tuple(one.terms for one in group)
        exact = not any(one.deviation for one in group)
        if exact and terms in self._done:
            return replace(self._done[terms], evidence=group)
        result = self._invert(kind, group)
        if exact:
            self._done[terms] = result
        return result

    def _invert(self, kind: Kind, group: list[Evidence]) -> ReconstructionResult:
        task, truth, options = self._task, self._truth, self._options
        public = truth.non_members(group[0].victim)
        assert public is not None  # checked by why_not_invertible
        spec = DataSpec.of(task, group[0].victim, public)
        points = torch.stack([one.points for one in group if one.points is not None])
        values = torch.stack([one.values for one in group])
        coefficients = torch.tensor(group[0].coefficients)
        one_batch = kind != "sum" and (len(coefficients) == 1 or reuses_batches(task))
        points, coefficients, values = (
            array.to(options.device, self._loss.flat.dtype)
            for array in (points, coefficients, values)
        )
        observation = Observation(points, coefficients, values, same_data=one_batch)
        guess, labels, method, assumptions, seconds = self._guess(observation, spec, kind)
        batches = [
            [truth.batch(u.client, u.when) for u in one.terms[: 1 if one_batch else None]]
            for one in group
        ]
        true, true_labels = (
            torch.stack([torch.cat([batch[array] for batch in each]) for each in batches])
            for array in (0, 1)
        )
        score = score_reconstruction(
            guess,
            true,
            true_labels,
            *public,
            options.seed,
            guess_labels=None if labels is None else labels.reshape(guess.shape[:2]),
        )
        assumptions = [*assumptions, *self._caveats(group)]
        return ReconstructionResult(kind, group, method, guess, true, score, assumptions, seconds)

    def _guess(
        self, observation: Observation, spec: DataSpec, kind: Kind
    ) -> tuple[Tensor, Tensor | None, str, list[str], float]:
        """Inputs [V, b, *shape], labels, method, assumptions and seconds, without the truth."""
        loss, options, progress = self._loss, self._options, self._progress
        shape, batch = spec.shape, spec.batch
        short = read_inputs(loss.flat, observation, shape=shape, batch=batch)
        if short is not None and bool(short.exact().all()):
            assumptions = [SHORTCUT, f"batch size known: {batch}"]
            return short.inputs.cpu(), None, "exact shortcut", assumptions, 0.0
        single = batch == 1 and observation.batches == 1
        # Total variation is defined for images only.
        smooth = 0.0 if single or len(shape) != 3 else 1e-2
        # L-BFGS on the squared distance needs a smooth loss and known lengths of gradients.
        plain = self._task.clip is None and (single or "ReLU" not in activations(loss.flat.module))
        found = invert(
            loss,
            observation,
            shape=shape,
            batch=batch,
            classes=spec.classes,
            matching_loss=L2() if plain else CosineDistance(total_variation=smooth),
            optimiser=LBFGS() if plain or single else SignedAdam(),
            restarts=options.restarts,
            seed=options.seed,
            box=spec.box,
            budget_seconds=options.seconds,
            progress=lambda i, of, _: progress(f"inverting the {kind}", i, of),
        )
        search = "L-BFGS" if plain or single else "signed Adam"
        search = f"total variation, {search}" if smooth and not plain else search
        method = f"{'L2' if plain else 'cosine'}, {search}"
        guess = found.inputs.reshape(len(observation.values), -1, *shape).cpu()
        return guess, found.labels.cpu(), method, found.assumptions, found.seconds

    def _caveats(self, group: list[Evidence]) -> list[str]:
        """What else a reader must know about the evidence."""
        caveats = []
        clipped = "gradients were clipped by unknown factors; the attack matches directions"
        if noise := max(one.deviation for one in group):
            caveats.append(
                f"every coordinate has noise of deviation {noise:.3g}, which the attack ignores"
            )
        if self._task.clip is not None:
            caveats.append(clipped)
        if (lost := max(one.rounding for one in group)) > 0.01:
            caveats.append(f"the rounding of messages is about {lost:.0%} of the evidence")
        return caveats


def batch_size(task: Task, client: int) -> int:
    """Number of samples behind a gradient of a client, which the protocol makes public."""
    source = task.source
    if isinstance(source, MiniBatchSource):
        return source.batch_size
    return len(source.parts[client][0]) if isinstance(source, FullBatchSource) else 0


def reuses_batches(task: Task) -> bool:
    """Whether all gradients of a client see the same data."""
    source = task.source
    if isinstance(source, MiniBatchSource):
        return bool((source.parts.sizes == source.batch_size).all())
    return isinstance(source, FullBatchSource)
