"""Reconstruction attacks: from evidence to guessed inputs and their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from tacit.auditing.attacks.data_spec import DataSpec, batch_size, reuses_batches
from tacit.auditing.attacks.evidence import Evidence, Kind, RandomStep
from tacit.auditing.attacks.input_search import SHORTCUT_METHOD, Guess, guess_inputs
from tacit.auditing.attacks.joint_evidence import JointEvidence, best_guess
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

    kind: Kind
    evidence: Sequence[Evidence | JointEvidence]  # one per victim
    method: str
    guess: Tensor  # [V, b, *shape]
    truth: Tensor  # [V, b, *shape]
    score: ReconstructionScore
    assumptions: list[str]
    seconds: float
    labels: Tensor | None = None  # [V, b] guessed classes or numbers; None: not guessed
    cut_short: bool = False  # stopped by the time budget

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
        self._joint: dict[tuple[object, ...], ReconstructionResult] = {}

    def run(self, found: list[Evidence]) -> list[ReconstructionResult]:
        """Invert all evidence, each kind and size as one batch."""
        groups: dict[tuple[object, ...], list[Evidence]] = {}
        for one in found:
            if self.skip_reason(one) is None:
                size = batch_size(self._task, one.terms[0].client)
                # What is added to a gradient before a random step differs from victim to victim.
                step = None
                if one.step is not None:
                    step = one.step.log_density, None if one.step.shift is None else one.victim
                key = one.kind, one.coefficients, self._batches(one.terms), size, step
                groups.setdefault(key, []).append(one)
        return [self._attack(group[0].kind, group) for group in groups.values()]

    def run_joint(
        self, found: list[JointEvidence], single: list[ReconstructionResult]
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
        results = []
        for one in found:
            sizes = {batch_size(self._task, term.client) for term in one.terms}
            if len(sizes) == 1 and one.victim not in solved:
                if one.made_of not in self._joint:
                    self._joint[one.made_of] = self._invert_joint(one, single)
                results.append(replace(self._joint[one.made_of], evidence=[one]))
        return results

    def _invert_joint(
        self, one: JointEvidence, single: list[ReconstructionResult]
    ) -> ReconstructionResult:
        public, spec = self._spec(one.victim)
        observation = one.observation(self._options.device, self._loss.flat.dtype)
        others = [
            (result.kind, result.guess[index], None if labels is None else labels[index])
            for result in single
            for labels in [result.labels]
            for index, piece in enumerate(result.evidence)
            if piece.victim == one.victim and not piece.deviation
        ]
        clipped = self._task.clip is not None
        searched = self._guess(observation, spec, "everything known")
        guess = best_guess(self._loss, observation, spec, searched, others, clipped=clipped)
        terms = [next(u for u in one.terms if u.client == one.victim)]
        return self._scored("everything known", [one], guess, public, [terms], spec.batch)

    def skip_reason(self, one: Evidence) -> str | None:
        """Why evidence is not inverted; None if it is."""
        if one.points is None:
            return "where its gradients were taken is not known"
        if len({batch_size(self._task, term.client) for term in one.terms}) > 1:
            return "its gradients are of batches of different sizes"
        return None

    def _attack(self, kind: Kind, group: list[Evidence]) -> ReconstructionResult:
        made_of = tuple((one.terms, one.coefficients) for one in group)
        exact = all(one.is_exact for one in group)
        if exact and made_of in self._done:
            return replace(self._done[made_of], evidence=group)
        result = self._invert(kind, group)
        if exact:
            self._done[made_of] = result
        return result

    def _invert(self, kind: Kind, group: list[Evidence]) -> ReconstructionResult:
        public, spec = self._spec(group[0].victim)
        points = torch.stack([one.points for one in group if one.points is not None])
        values = torch.stack([one.values for one in group])
        coefficients = torch.tensor(group[0].coefficients)
        points, coefficients, values = (
            array.to(self._options.device, self._loss.flat.dtype)
            for array in (points, coefficients, values)
        )
        data = self._batches(group[0].terms)
        first = [data.index(number) for number in range(max(data) + 1)]
        terms = [[one.terms[k] for k in first] for one in group]
        keys = self._keys(terms)
        observation = Observation(points, coefficients[None], values[:, None], data, keys)
        guess = self._guess(observation, spec, kind, group[0].step)
        return self._scored(kind, group, guess, public, terms, len(first) * spec.batch)

    def _batches(self, terms: Sequence[Unknown]) -> tuple[int, ...]:
        """The number of the batch behind each gradient, from 0."""
        names = [u.client if reuses_batches(self._task) else (u.client, u.when) for u in terms]
        order = list(dict.fromkeys(names))
        return tuple(order.index(name) for name in names)

    def _keys(self, terms: list[list[Unknown]]) -> Tensor | None:
        """The keys [V, T, batch] of dropout in the batches of `terms`; None without dropout.

        The adversary knows them: see `Truth.keys`.
        """
        found = [self._truth.keys(u.client, u.when) for each in terms for u in each]
        keys = [one for one in found if one is not None]
        if not keys:
            return None
        return torch.stack(keys).view(len(terms), len(terms[0]), -1).to(self._options.device)

    def _spec(self, victim: int) -> tuple[tuple[Tensor, Tensor], DataSpec]:
        """Public data, and what follows from them and the protocol."""
        public = self._truth.non_members(victim)
        assert public is not None  # checked by why_not_attackable
        return public, DataSpec.of(self._task, victim, public)

    def _guess(
        self,
        observation: Observation,
        spec: DataSpec,
        kind: Kind,
        step: RandomStep | None = None,
    ) -> Guess:
        return guess_inputs(
            self._loss,
            observation,
            spec,
            clipped=self._task.clip is not None,
            options=self._options,
            progress=lambda done, of: self._progress(f"inverting the {kind}", done, of),
            step=step,
        )

    def _scored(
        self,
        kind: Kind,
        group: Sequence[Evidence | JointEvidence],
        guess: Guess,
        public: tuple[Tensor, Tensor],
        terms: list[list[Unknown]],
        samples: int,
    ) -> ReconstructionResult:
        """Compare the first samples of a guess with the batches of `terms`, per victim."""
        batches = [[self._truth.batch(u.client, u.when) for u in each] for each in terms]
        true, true_labels = (
            torch.stack([torch.cat([batch[array] for batch in each]) for each in batches])
            for array in (0, 1)
        )
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
            kind,
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

    def _caveats(self, group: Sequence[Evidence | JointEvidence]) -> list[str]:
        """What else a reader must know about the evidence."""
        caveats = []
        clipped = "gradients were clipped by unknown factors; the attack matches directions"
        caveats += [one.assumption for one in group if one.assumption]
        if (noise := max(one.deviation for one in group)) and not caveats:
            caveats.append(
                f"every coordinate has noise of deviation {noise:.3g}, which the attack ignores"
            )
        if self._task.clip is not None:
            caveats.append(clipped)
        if (lost := max(one.rounding for one in group)) > 0.01:
            caveats.append(f"the rounding of messages is about {lost:.0%} of the evidence")
        return caveats
