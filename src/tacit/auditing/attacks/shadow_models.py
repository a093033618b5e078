"""Shadow models: what membership attacks compare the attacked model with.

Each is trained on half of the candidates. Models 2k and 2k+1 take the two halves of one random
split, so each candidate is in exactly half of them. Not the models are kept but the logit-scaled
confidence φ of samples at them (see `confidence_scores`), which is all that the attacks need.

Shadow federations are trained as the attacked run was: with its algorithm, options, graph, batch
size and number of iterations, and clients with as many samples. The victim's part is a random half
of the candidates, filled up with public data of the same kind; the other clients have public data.
If all clients of the run start from one model, which the adversary therefore knows, shadow
federations start from it too. Seeds are different: the adversary does not know the order of batches
nor the noise.

For runs that cannot be repeated, shadow models are trained by plain descent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor
from torch.func import grad, vmap

from tacit.auditing.attacks.candidates import Candidates, Samples
from tacit.auditing.attacks.confidence_scores import confidence
from tacit.auditing.attacks.membership_scores import WORKSPACE
from tacit.auditing.options import AttackOptions, Progress
from tacit.core.devices import float32_products
from tacit.core.errors import Diverged
from tacit.core.randomness import derive_key
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.tasks.flat import ModuleLoss
from tacit.tasks.objective import Objective
from tacit.tasks.parts import Parts

FEDERATIONS, PLAIN_MODELS = 16, 16  # even numbers
PLAIN_STEPS = 500
MIN_FEDERATIONS = 4  # two with and two without each candidate, for a variance
MIN_POPULATION = 20
NO_TIME = "one could not be repeated often enough in the time budget"
NO_STEPS = "the number of iterations of the run is not known"
NO_DATA = "there are too few public data for its clients"
DIVERGED = "a repetition diverged"
ModelId = tuple[int, int]  # a client, and the number of iterations before its model


@dataclass(frozen=True, eq=False)
class References:
    """Confidence φ at S shadow models, for the attack on some models of a client."""

    phi: Tensor  # [S, n] of the candidates
    population: Tensor  # [S, m] of samples of the population
    held: Tensor  # bool [S, n]: the candidates each was trained on
    description: str
    cut_short: bool  # by the time budget


@dataclass(frozen=True, eq=False)
class ShadowModels:
    """Shadow models for the attacks on one victim, trained when they are first needed.

    Attributes:
        setting: The attacked run.
        victim: The client whose samples are at stake.
        candidates: Samples that may be its.
        record: Models that may be attacked; the last iteration among them is the last of the
            federations. Empty if the length of the run is not known.
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
    def public(self) -> Samples:
        """What other clients are trained on."""
        return self.candidates.split_public(self.options.seed)[0]

    @cached_property
    def population(self) -> Samples:
        """Samples on which no model is trained."""
        return self.candidates.split_public(self.options.seed)[1]

    def of(self, models: Sequence[ModelId]) -> References | None:
        """Shadow models to compare these models with; None if they diverge.

        If several models are attacked together, φ is the mean over them.
        """
        trained = self._federations
        if isinstance(trained, str):
            return self._plain
        phi, held = trained
        finished = len(held) == FEDERATIONS
        end = "" if finished else " (fewer than planned: stopped by the time budget)"
        description = (
            f"{len(held)} shadow federations{end}, trained as the run was: the same algorithm, "
            "options, graph, sizes of parts, batches and iterations. The victim has half of "
            "the candidates, the others have public data of the same kind, drawn at random"
        )
        count = len(self.candidates.x)
        mean = torch.stack([phi[model] for model in models]).mean(0)
        return References(mean[:, :count], mean[:, count:], held, description, not finished)

    @cached_property
    def _federations(self) -> tuple[dict[ModelId, Tensor], Tensor] | str:
        """φ [S, n + m] at the models to record and what they hold; or why there are none."""
        if not self.record:
            return NO_STEPS
        if len(self.public[0]) < MIN_POPULATION:
            return NO_DATA
        try:
            phi, held = self._train_federations()
        except Diverged:
            return DIVERGED
        return (phi, held) if len(held) >= MIN_FEDERATIONS else NO_TIME

    def _train_federations(self) -> tuple[dict[ModelId, Tensor], Tensor]:
        """Train federations one after another, while there is time for both of a pair."""
        seed, deadline = self.options.seed, time.monotonic() + self.options.seconds
        setting = replace(self.setting, device=self.options.device)
        generator = torch.Generator().manual_seed(derive_key(seed, "shadow federations") >> 1)
        x, y = self.candidates.x, self.candidates.y
        held, rows = random_halves(len(x), FEDERATIONS, generator)
        steps = max(iteration for _, iteration in self.record)
        trained: list[dict[ModelId, Tensor]] = []
        for number, half in enumerate(rows):
            part = x[half], y[half]
            task = _shadow_task(setting, self.victim, part, self.public, generator)
            key = derive_key(seed, "shadow federation", number) >> 1
            simulation = Simulation(replace(setting, task=task, seed=key, prg="philox"))
            if not trained:
                # Timed once, for all federations.
                setting = replace(setting, gradients=simulation.gradients.strategy)
            simulation.start()
            phi = self._confidences(simulation)
            while simulation.t < steps and time.monotonic() < deadline:
                simulation.step()
                phi |= self._confidences(simulation)
                done = number * steps + simulation.t
                self.progress("training shadow federations", done, FEDERATIONS * steps)
            if simulation.t < steps:
                break
            simulation.check()
            trained.append(phi)
        pairs = len(trained) // 2 * 2
        stacked = {
            model: torch.stack([phi[model] for phi in trained[:pairs]])
            for model in (self.record if pairs else ())
        }
        return stacked, held[:pairs]

    def _confidences(self, simulation: Simulation) -> dict[ModelId, Tensor]:
        """φ of candidates and population [n + m] at the models to record after this iteration."""
        now = [client for client, iteration in self.record if iteration == simulation.t]
        if not now:
            return {}
        loss = simulation.task.loss
        assert isinstance(loss, ModuleLoss)  # checked by why_not_attackable
        pairs = zip((self.candidates.x, self.candidates.y), self.population, strict=True)
        x, y = (torch.cat(pair).to(simulation.device) for pair in pairs)
        models = zip(now, simulation.state.theta[now], strict=True)
        return {
            (client, simulation.t): confidence(loss, theta, x, y).double().cpu()
            for client, theta in models
        }

    @cached_property
    def _plain(self) -> References | None:
        """Models of plain descent; None if they diverge."""
        reason = self._federations
        loss, device = self.setting.task.loss, self.options.device
        assert isinstance(loss, ModuleLoss)  # checked by why_not_attackable
        loss = loss.evaluated().to(device)
        x, y = self.candidates.to(device)
        theta, held, steps = train_plain_models(
            loss,
            x,
            y,
            seed=self.options.seed,
            models=PLAIN_MODELS,
            budget_seconds=self.options.seconds,
            progress=partial(self.progress, "training shadow models"),
        )
        if not bool(theta.isfinite().all()):
            return None
        phi = confidence(loss, theta, x, y).double().cpu()
        # There may be no public data.
        population = phi.new_zeros(len(phi), 0)
        if len(self.population[0]):
            z = (array.to(device) for array in self.population)
            population = confidence(loss, theta, *z).double().cpu()
        finished = steps == PLAIN_STEPS
        end = "" if finished else "; stopped by the time budget"
        description = (
            f"{PLAIN_MODELS} shadow models on halves of the candidates, {steps} steps of "
            f"plain descent, not trained as the run was: {reason}{end}"
        )
        return References(phi, population, held, description, reason == NO_TIME or not finished)


@float32_products()
def train_plain_models(
    loss: ModuleLoss,
    x: Tensor,
    y: Tensor,
    *,
    seed: int,
    models: int = PLAIN_MODELS,
    steps: int = PLAIN_STEPS,
    lr: float = 0.1,
    batch_size: int = 32,
    progress: Callable[[int, int], None] | None = None,
    budget_seconds: float = float("inf"),
) -> tuple[Tensor, Tensor, int]:
    """Models [S, P] trained by plain descent, all as one batch, each on half of the candidates.

    Args:
        loss: The loss of the attacked model.
        x: Inputs of the candidates, [n, ...].
        y: Targets of the candidates, [n].
        seed: Draws halves, batches and first weights.
        models: Number of shadow models S; even.
        steps: Steps of training.
        lr: Step size.
        batch_size: Samples per step.
        progress: Called with the steps done and the steps in all.
        budget_seconds: Time after which training stops.

    Returns:
        The models, which candidates each was trained on, bool [S, n], and the steps done.
    """
    deadline = time.monotonic() + budget_seconds
    generator = torch.Generator().manual_seed(derive_key(seed, "shadow data") >> 1)
    held, rows = random_halves(len(x), models, generator)
    theta = torch.stack([loss.flat.random_weights(seed, "shadow", s) for s in range(models)])
    theta = theta.to(x.device)
    batch = min(batch_size, rows.shape[1])
    chunk = max(1, WORKSPACE // (4 * theta.shape[1] + 64 * batch * x[0].numel()))
    gradients = vmap(grad(loss), chunk_size=chunk)
    done, first = 0, rows.shape[1]
    while done < steps:
        if first + batch > rows.shape[1]:
            # A new epoch, in a different order for each model.
            rows, first = rows.gather(1, torch.rand(rows.shape, generator=generator).argsort(1)), 0
        pick = rows[:, first : first + batch].to(x.device)
        theta.sub_(gradients(theta, x[pick], y[pick]), alpha=lr)
        first, done = first + batch, done + 1
        if progress is not None:
            progress(done, steps)
        if time.monotonic() > deadline:
            break
    return theta, held, done


def random_halves(count: int, models: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Which candidates each model holds, as a mask [S, n] and as indices [S, ⌈n/2⌉].

    If the count is odd, every second row repeats an index.
    """
    size = -(-count // 2)
    order = torch.rand(models // 2, count, generator=generator).argsort(1)
    first, second = order[:, :size], order[:, size:]
    if count % 2:
        second = torch.cat([second, second[:, :1]], dim=1)
    rows = torch.stack([first, second], dim=1).flatten(0, 1)
    return torch.zeros(models, count, dtype=torch.bool).scatter_(1, rows, True), rows


def _shadow_task(
    setting: Setting, victim: int, held: Samples, public: Samples, generator: torch.Generator
) -> Objective:
    """The task of the run with other data: parts of the same sizes."""
    task = setting.task
    sizes = part_sizes(task)
    needed = [size - len(held[0]) * (i == victim) for i, size in enumerate(sizes)]
    passes = -(-sum(needed) // len(public[0]))
    order = torch.cat(
        [torch.randperm(len(public[0]), generator=generator) for _ in range(max(1, passes))]
    )
    parts: list[tuple[Tensor, ...]] = []
    for i, index in enumerate(torch.split(order[: sum(needed)], needed)):
        drawn = public[0][index], public[1][index]
        if i == victim:
            drawn = torch.cat((held[0], drawn[0])), torch.cat((held[1], drawn[1]))
        parts.append(drawn)
    data = Parts.concatenate(parts) if isinstance(task.parts, Parts) else parts
    if not setting.start_alike:
        return replace(task, parts=data)
    start, seed = task.initial, int(setting.seed)
    return replace(task, parts=data, initial=lambda _, clients: start(seed, clients))


def part_sizes(task: Objective) -> list[int]:
    """Number of samples of each client."""
    if isinstance(task.parts, Parts):
        sizes: list[int] = task.parts.sizes.tolist()
        return sizes
    assert isinstance(task.parts, list | tuple)  # streams are excluded by why_not_attackable
    return [len(part[0]) for part in task.parts]
