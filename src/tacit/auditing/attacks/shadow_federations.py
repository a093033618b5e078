"""Shadow federations: shadow models that were trained as the attacked run was.

Each federation has the algorithm, options, graph, batch size and number of iterations of the run,
and clients with as many samples. The victim's part is a random half of the candidates, filled up
with public data of the same kind; the other clients have public data. Federations 2k and 2k+1 take
the two halves of one split. If all clients of the run start from one model, which the adversary
therefore knows, shadow federations start from it too. Seeds are different: the adversary does not
know the order of batches nor the noise.

Not the models are kept but the logit-scaled confidence φ of each sample at them (see
`likelihood_ratio`), which is all that the attacks need.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.auditing.attacks.candidates import Candidates, Samples
from tacit.auditing.attacks.likelihood_ratio import confidence
from tacit.auditing.attacks.shadow import random_halves
from tacit.core.randomness import derive_key
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.tasks.flat import ModuleLoss
from tacit.tasks.objective import Objective
from tacit.tasks.parts import Parts

FEDERATIONS = 16
MIN_FEDERATIONS = 4  # two with and two without each candidate, for a variance
ModelId = tuple[int, int]  # a client, and the number of iterations before its model


@dataclass(frozen=True, eq=False)
class ShadowConfidences:
    """Confidence φ of candidates and of samples of the population at shadow models."""

    phi: dict[ModelId, Tensor]  # [S, n]
    population: dict[ModelId, Tensor]  # [S, m]
    held: Tensor  # bool [S, n]: the candidates each was trained on
    finished: bool  # False if the time budget ended the training

    def mean(self, models: Sequence[ModelId]) -> tuple[Tensor, Tensor]:
        """φ of candidates [S, n] and of the population [S, m], means over models."""
        both = (self.phi, self.population)
        phi, population = (torch.stack([kind[one] for one in models]).mean(0) for kind in both)
        return phi, population


def train_shadow_federations(
    setting: Setting,
    victim: int,
    candidates: Candidates,
    record: Sequence[ModelId],
    *,
    seed: int,
    federations: int = FEDERATIONS,
    progress: Callable[[int, int], None] | None = None,
    budget_seconds: float | None = None,
) -> ShadowConfidences | None:
    """Train shadow federations one after another; None if there is time for fewer than 4.

    Args:
        setting: The attacked run.
        victim: The client whose part is a half of the candidates.
        candidates: Samples that may be the victim's, and public data for the other clients.
        record: Models at which the confidence is recorded; the last iteration among them is the
            last of the federations.
        seed: Draws halves and data, and keys the runs.
        federations: How many; even.
        progress: Called with the iterations done and the iterations in all.
        budget_seconds: Time after which training stops, and the unfinished pair is discarded.

    Raises:
        Diverged: If a state of a federation is no longer finite.
    """
    deadline = None if budget_seconds is None else time.monotonic() + budget_seconds
    generator = torch.Generator().manual_seed(derive_key(seed, "shadow federations") >> 1)
    public, population = candidates.split_public(seed)
    held, rows = random_halves(len(candidates.x), federations, generator)
    steps = max(iteration for _, iteration in record)
    samples = torch.cat((candidates.x, population[0])), torch.cat((candidates.y, population[1]))
    found: list[dict[ModelId, Tensor]] = []
    for number, half in enumerate(rows):
        own = candidates.x[half], candidates.y[half]
        task = _shadow_task(setting, victim, own, public, generator)
        key = derive_key(seed, "shadow federation", number) >> 1
        simulation = Simulation(replace(setting, task=task, seed=key, prg="philox"))
        if not found:
            # Timed once, for all federations.
            setting = replace(setting, gradients=simulation.gradients.strategy)
        simulation.start()
        recorded: dict[ModelId, Tensor] = {}
        _record(simulation, samples, record, recorded)
        while simulation.t < steps and (deadline is None or time.monotonic() < deadline):
            simulation.step()
            _record(simulation, samples, record, recorded)
            if progress is not None:
                progress(number * steps + simulation.t, federations * steps)
        if simulation.t < steps:
            break
        simulation.check()
        found.append(recorded)
    pairs = len(found) // 2 * 2
    if pairs < MIN_FEDERATIONS:
        return None
    count = len(candidates.x)
    phi = {one: torch.stack([each[one] for each in found[:pairs]]) for one in record}
    return ShadowConfidences(
        {one: rows[:, :count] for one, rows in phi.items()},
        {one: rows[:, count:] for one, rows in phi.items()},
        held[:pairs],
        pairs == federations,
    )


def _record(
    simulation: Simulation,
    samples: tuple[Tensor, ...],
    record: Sequence[ModelId],
    into: dict[ModelId, Tensor],
) -> None:
    """Store the confidence of samples at the models to record after this iteration."""
    now = [client for client, iteration in record if iteration == simulation.t]
    if not now:
        return
    loss = simulation.task.loss
    assert isinstance(loss, ModuleLoss)  # checked by why_not_attackable
    x, y = (array.to(simulation.device) for array in samples)
    for client, row in zip(now, simulation.state.theta[now], strict=True):
        into[client, simulation.t] = confidence(loss, row, x, y).double().cpu()


def _shadow_task(
    setting: Setting, victim: int, own: Samples, public: Samples, generator: torch.Generator
) -> Objective:
    """The task of the run with other data: parts of the same sizes."""
    task = setting.task
    sizes = part_sizes(task)
    needed = [size - len(own[0]) * (i == victim) for i, size in enumerate(sizes)]
    passes = -(-sum(needed) // len(public[0]))
    order = torch.cat(
        [torch.randperm(len(public[0]), generator=generator) for _ in range(max(1, passes))]
    )
    parts: list[tuple[Tensor, ...]] = []
    for i, index in enumerate(torch.split(order[: sum(needed)], needed)):
        drawn = public[0][index], public[1][index]
        if i == victim:
            drawn = torch.cat((own[0], drawn[0])), torch.cat((own[1], drawn[1]))
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
