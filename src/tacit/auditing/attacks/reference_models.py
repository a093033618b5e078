"""The shadow models that membership attacks of one victim compare with.

Shadow federations if the run can be repeated, and otherwise models of plain descent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from torch import Tensor

from tacit.auditing.attacks.candidates import Candidates
from tacit.auditing.attacks.likelihood_ratio import confidence
from tacit.auditing.attacks.shadow import train_shadow_models
from tacit.auditing.attacks.shadow_federations import (
    ModelId,
    ShadowConfidences,
    train_shadow_federations,
)
from tacit.auditing.options import AttackOptions, Progress
from tacit.core.errors import Diverged, Misuse
from tacit.engines.setting import Setting
from tacit.tasks.flat import ModuleLoss

PLAIN_MODELS = 16
MIN_POPULATION = 20
NO_TIME = "one could not be repeated often enough in the time budget"
NO_STEPS = "the number of iterations of the run is not known"
NO_DATA = "there are too few public data for its clients"
DIVERGED = "a repetition diverged"


@dataclass(frozen=True, eq=False)
class References:
    """Confidence at shadow models, for the attack on some models of a client."""

    phi: Tensor  # [S, n]
    population: Tensor  # [S, m]
    held: Tensor  # bool [S, n]
    description: str
    cut_short: bool


@dataclass(frozen=True, eq=False)
class ReferenceModels:
    """Shadow models for one victim, trained when they are first needed.

    Attributes:
        setting: The attacked run.
        victim: The client whose samples are at stake.
        candidates: Samples that may be its.
        record: Models that may be attacked; empty if the length of the run is not known.
        options: How hard attacks try.
        progress: Called with the activity, the steps done and the steps in all.
    """

    setting: Setting
    victim: int
    candidates: Candidates
    record: Sequence[ModelId]
    options: AttackOptions
    progress: Progress

    @cached_property
    def population(self) -> tuple[Tensor, Tensor]:
        """Samples on which no model was trained."""
        return self.candidates.split_public(self.options.seed)[1]

    def of(self, models: Sequence[ModelId]) -> References | None:
        """Shadow models to compare these models with; None if they diverge."""
        found, _ = self._federations
        if found is None:
            return self._plain
        count = len(found.held)
        end = "" if found.finished else " (fewer than planned: stopped by the time budget)"
        description = (
            f"{count} shadow federations{end}, trained as the run was: the same algorithm, "
            "options, graph, sizes of parts, batches and iterations. The victim has half of "
            "the candidates, the others have public data of the same kind, drawn at random"
        )
        return References(*found.mean(models), found.held, description, not found.finished)

    @cached_property
    def _federations(self) -> tuple[ShadowConfidences | None, str]:
        """Shadow federations, or the reason why there are none."""
        if not self.record:
            return None, NO_STEPS
        if len(self.candidates.public[0]) - len(self.population[0]) < MIN_POPULATION:
            return None, NO_DATA
        try:
            found = train_shadow_federations(
                replace(self.setting, device=self.options.device),
                self.victim,
                self.candidates,
                self.record,
                seed=self.options.seed,
                progress=partial(self.progress, "training shadow federations"),
                budget_seconds=self.options.seconds,
            )
        except Diverged:
            return None, DIVERGED
        return found, NO_TIME

    @cached_property
    def _plain(self) -> References | None:
        """Models of plain descent; None if they diverge."""
        _, reason = self._federations
        loss, device = self.setting.task.loss, self.options.device
        assert isinstance(loss, ModuleLoss)  # checked by why_not_attackable
        loss = loss.evaluated().to(device)
        x, y = self.candidates.to(device)
        try:
            shadows = train_shadow_models(
                loss,
                x,
                y,
                seed=self.options.seed,
                models=PLAIN_MODELS,
                budget_seconds=self.options.seconds,
                progress=partial(self.progress, "training shadow models"),
            )
        except Misuse:
            return None
        phi = confidence(loss, shadows.theta, x, y).double().cpu()
        z = tuple(array.to(device) for array in self.population)
        # There may be no public data.
        population = phi.new_zeros(len(phi), 0)
        if len(z[0]):
            population = confidence(loss, shadows.theta, *z).double().cpu()
        end = "" if shadows.finished else "; stopped by the time budget"
        description = (
            f"{PLAIN_MODELS} shadow models on halves of the candidates, {shadows.steps} steps of "
            f"plain descent, not trained as the run was: {reason}{end}"
        )
        cut_short = reason == NO_TIME or not shadows.finished
        return References(phi, population, shadows.held.cpu(), description, cut_short)
