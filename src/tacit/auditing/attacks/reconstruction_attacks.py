"""Reconstruction attacks: from evidence to guessed inputs and their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tacit.auditing.attacks.data_spec import DataSpec, batch_size, reuses_batches
from tacit.auditing.attacks.evidence import Evidence, Kind
from tacit.auditing.attacks.input_search import SHORTCUT_METHOD, Guess, best_guess, guess_inputs
from tacit.auditing.attacks.observation import Observation
from tacit.auditing.options import AttackOptions, Progress
from tacit.auditing.scoring.reconstruction import ReconstructionScore, score_reconstruction
from tacit.auditing.scoring.truth import Truth
from tacit.record.unknowns import Unknown
from tacit.tasks.batches import FullBatchSource, MiniBatchSource
from tacit.tasks.flat import ModuleLoss
from tacit.tasks.inputs import ONE_INPUT
from tacit.tasks.objective import Objective


@dataclass(frozen=True, eq=False)
class ReconstructionResult:
    """The inversion of one kind of evidence about several victims, and its scores."""

    evidence: Sequence[Evidence]  # of one kind, one per victim
    method: str
    guess: Tensor  # [V, b, *shape]
    truth: Tensor  # [V, b, *shape]
    score: ReconstructionScore
    assumptions: list[str]
    seconds: float
    labels: Tensor | None = None  # [V, b] guessed classes or numbers; None: not guessed
    cut_short: bool = False  # stopped by the time budget

    @property
    def kind(self) -> Kind:
        return self.evidence[0].kind

    def as_dict(self) -> dict[str, Any]:
        """JSON values, without the images."""
        return {
            "evidence": self.kind,
            "victims": [piece.victim for piece in self.evidence],
            "made_of": [str(piece) for piece in self.evidence],
            "noise_deviation": [piece.deviation for piece in self.evidence],
            "gain": [piece.gain for piece in self.evidence],
            "rounding": [piece.rounding for piece in self.evidence],
            "method": self.method,
            "score": self.score.as_dict(),
            "assumptions": self.assumptions,
            "seconds": self.seconds,
            "cut_short": self.cut_short,
        }


def why_not_attackable(task: Objective) -> str | None:
    """Why the models and gradients of a task cannot be attacked; None if they can."""
    if task.local is not None:
        return (
            "attacks on models with local parameters, which adversaries do not know; to see what "
            "they get from whoever knows them, audit the same task without `local`"
        )
    if not isinstance(task.loss, ModuleLoss):
        return "inversion needs a model that classifies inputs; this task has a loss of its own"
    if not isinstance(task.source, FullBatchSource | MiniBatchSource):
        return "inversion needs clients that hold data; this task is a stream"
    flat, truth = task.loss.flat, Truth(task, 0)
    if flat.layout != ONE_INPUT:
        return "inversion needs a model with one input; this one has several or named inputs"
    public = truth.non_members(0)
    if public is None:
        return "there is no public data of the same kind to compare with"
    if not public[0].is_floating_point():
        return "inversion needs inputs that are real numbers; these are whole numbers"
    if public[1].is_floating_point():
        return None
    if public[1].ndim != 1:
        return "inversion needs one class per sample"
    output = flat(flat.weights(), public[0][:1].to(flat.dtype))
    if output.ndim != 2 or output.shape[1] < 2:
        return "inversion needs a model with an output per class"
    held = [truth.members(client) for client in range(task.clients)]
    classes = {label for part in held if part is not None for label in part[1].tolist()}
    if missing := sorted(classes - set(public[1].tolist())):
        return f"the public data to compare with have no sample of class {missing[0]}"
    return None


def why_not_classifying(task: Objective) -> str | None:
    """Why attacks that need classes cannot be made on a task; None if they can."""
    if (reason := why_not_attackable(task)) is not None:
        return reason
    public = Truth(task, 0).non_members(0)
    if public is not None and public[1].is_floating_point():
        return "it needs a model that classifies inputs; the targets here are numbers"
    return None


class ReconstructionAttacks:
    """Attacks on one run; the same exact evidence of several adversaries is inverted once."""

    def __init__(self, truth: Truth, options: AttackOptions, progress: Progress) -> None:
        assert isinstance(truth.task.loss, ModuleLoss)  # checked by why_not_attackable
        self._task, self._loss, self._truth = truth.task, truth.task.loss, truth
        self._options, self._progress = options, progress
        self._done: dict[tuple[object, ...], ReconstructionResult] = {}

    def run(self, known: list[Evidence]) -> list[ReconstructionResult]:
        """Invert all evidence, each kind and size as one batch."""
        groups: dict[tuple[object, ...], list[Evidence]] = {}
        for piece in known:
            if self.skip_reason(piece) is None:
                size = batch_size(self._task, piece.terms[0].client)
                # What is added to a gradient before a random step differs from victim to victim.
                step = None
                if piece.step is not None:
                    shifted = None if piece.step.shift is None else piece.victim
                    step = piece.step.log_density, shifted
                key = piece.kind, piece.coefficients, self._batches(piece.terms), size, step
                groups.setdefault(key, []).append(piece)
        return [self._attack(group) for group in groups.values()]

    def run_joint(
        self, known: list[Evidence], single: list[ReconstructionResult]
    ) -> list[ReconstructionResult]:
        """Invert everything known about each victim together.

        Of this guess and those from single pieces, the best by the matching loss of everything
        known is reported. Victims whose data an exact shortcut gives are left out.
        """
        solved = {
            piece.victim
            for result in single
            if result.method == SHORTCUT_METHOD
            for piece in result.evidence
            if not piece.deviation
        }
        return [
            self._attack([joint], single)
            for joint in known
            if joint.victim not in solved and self.skip_reason(joint) is None
        ]

    def skip_reason(self, piece: Evidence) -> str | None:
        """Why evidence is not inverted; None if it is."""
        if piece.points is None:
            return "where its gradients were taken is not known"
        if len({batch_size(self._task, term.client) for term in piece.terms}) > 1:
            return "its gradients are of batches of different sizes"
        return None

    def _attack(
        self, group: list[Evidence], single: Sequence[ReconstructionResult] = ()
    ) -> ReconstructionResult:
        made_of = tuple(piece.made_of for piece in group)
        if not all(piece.is_exact for piece in group):
            return self._invert(group, single)
        if made_of not in self._done:
            self._done[made_of] = self._invert(group, single)
        return replace(self._done[made_of], evidence=group)

    def _invert(
        self, group: list[Evidence], single: Sequence[ReconstructionResult]
    ) -> ReconstructionResult:
        first, task = group[0], self._task
        public = self._truth.non_members(first.victim)
        assert public is not None  # checked by why_not_attackable
        spec = DataSpec.of(task, first.victim, public)
        data = self._batches(first.terms)
        # A gradient of each batch.
        shown = [data.index(number) for number in range(max(data) + 1)]
        terms = [[piece.terms[k] for k in shown] for piece in group]
        points, coefficients, values = (
            array.to(self._options.device, self._loss.flat.dtype)
            for array in (
                torch.stack([piece.points for piece in group if piece.points is not None]),
                torch.tensor(first.matrix, dtype=torch.float64),
                torch.stack([piece.values.view(len(first.matrix), -1) for piece in group]),
            )
        )
        observation = Observation(points, coefficients, values, data, self._keys(terms))
        guess = guess_inputs(
            self._loss,
            observation,
            spec,
            clipped=task.clip is not None,
            options=self._options,
            progress=lambda done, of: self._progress(f"inverting the {first.kind}", done, of),
            step=first.step,
        )
        if first.parts:
            others = _guesses_about(first.victim, single)
            clipped = task.clip is not None
            guess = best_guess(self._loss, observation, spec, guess, others, clipped=clipped)
            # Of everything known about several clients, the victim's batch counts.
            terms = [each[:1] for each in terms]
        return self._scored(group, guess, public, terms)

    def _batches(self, terms: Sequence[Unknown]) -> tuple[int, ...]:
        """The number of the batch behind each gradient, from 0."""
        names = [u.client if reuses_batches(self._task) else (u.client, u.when) for u in terms]
        order = list(dict.fromkeys(names))
        return tuple(order.index(name) for name in names)

    def _keys(self, terms: list[list[Unknown]]) -> Tensor | None:
        """The keys [V, T, batch] of dropout in the batches of `terms`; None without dropout.

        The adversary knows them: see `Truth.keys`.
        """
        each = [self._truth.keys(u.client, u.when) for row in terms for u in row]
        keys = [batch for batch in each if batch is not None]
        if not keys:
            return None
        return torch.stack(keys).view(len(terms), len(terms[0]), -1).to(self._options.device)

    def _scored(
        self,
        group: Sequence[Evidence],
        guess: Guess,
        public: tuple[Tensor, Tensor],
        terms: list[list[Unknown]],
    ) -> ReconstructionResult:
        """Compare the first samples of a guess with the batches of `terms`, per victim."""
        batches = [[self._truth.batch(u.client, u.when) for u in each] for each in terms]
        true, true_labels = (
            torch.stack([torch.cat([batch[array] for batch in each]) for each in batches])
            for array in (0, 1)
        )
        samples = true.shape[1]
        inputs = guess.inputs[:, :samples]
        labels = None if guess.labels is None else guess.labels[:, :samples]
        seed = self._options.seed
        if true_labels.is_floating_point():
            score = score_reconstruction(inputs, true, None, public[0], None, seed)
        else:
            score = score_reconstruction(
                inputs, true, true_labels, *public, seed, guess_labels=labels
            )
        return ReconstructionResult(
            group,
            guess.method,
            inputs,
            true,
            score,
            [*guess.assumptions, *self._caveats(group)],
            guess.seconds,
            labels,
            guess.cut_short,
        )

    def _caveats(self, group: Sequence[Evidence]) -> list[str]:
        """What else a reader must know about the evidence."""
        caveats = [piece.assumption for piece in group if piece.assumption]
        if (noise := max(piece.deviation for piece in group)) and not caveats:
            caveats.append(
                f"every coordinate has noise of deviation {noise:.3g}, which the attack ignores"
            )
        if self._task.clip is not None:
            caveats.append(
                "gradients were clipped by unknown factors; the attack matches directions"
            )
        if (lost := max(piece.rounding for piece in group)) > 0.01:
            caveats.append(f"the rounding of messages is about {lost:.0%} of the evidence")
        return caveats


def _guesses_about(
    victim: int, results: Sequence[ReconstructionResult]
) -> list[tuple[Kind, Tensor, Tensor | None]]:
    """The kind, inputs and labels of inversions of exact single pieces about a victim."""
    return [
        (result.kind, result.guess[index], None if labels is None else labels[index])
        for result in results
        for labels in [result.labels]
        for index, piece in enumerate(result.evidence)
        if piece.victim == victim and not piece.deviation
    ]
