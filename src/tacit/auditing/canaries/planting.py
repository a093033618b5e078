"""Samples with wrong labels that are planted among a client's data by fair coins."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from tacit.auditing.attacks.reconstruction_attacks import why_not_classifying
from tacit.auditing.scoring.truth import Truth
from tacit.core.checks import check_count
from tacit.core.errors import Misuse
from tacit.tasks.objective import Objective
from tacit.tasks.parts import Parts


@dataclass(frozen=True, eq=False)
class PlantedSamples:
    """Inputs with wrong labels, and which of them are among the victim's data, bool [m]."""

    x: Tensor
    y: Tensor
    coins: Tensor


def draw_samples(task: Objective, count: int, seed: int) -> PlantedSamples:
    """Test inputs with random labels that are wrong, and fair coins."""
    others = Truth(task, seed).non_members(0)
    reason = why_not_classifying(task)
    if reason is None and not (Truth(task, seed).has_test_set and others is not None):
        reason = "the task has no test set, whose samples could be canaries"
    if reason is not None:
        raise Misuse(f"There can be no sample canaries: {reason}.", "Give tacit.Task a test.")
    assert others is not None
    x, y = others
    classes, rank = torch.unique(y, return_inverse=True)
    check_count("count", count, at_least=2)
    if count > len(x) or len(classes) < 2:
        raise Misuse(
            f"The test set has {len(x)} samples of {len(classes)} classes for {count} canaries.",
            f"Ask for at most {len(x)} canaries, of two classes or more.",
        )
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(x), generator=generator)[:count]
    other = torch.randint(1, len(classes), (count,), generator=generator)
    wrong = classes[(rank[chosen] + other) % len(classes)]
    coins = torch.rand(count, generator=generator) < 0.5
    return PlantedSamples(x[chosen], wrong, coins)


def plant(task: Objective, victim: int, samples: PlantedSamples) -> Objective:
    """The task with the canaries whose coins are heads among the victim's data."""
    new = samples.x[samples.coins], samples.y[samples.coins]
    parts = task.parts
    if isinstance(parts, Parts):
        first = len(parts.arrays[0])
        arrays = [torch.cat(pair) for pair in zip(parts.arrays, new, strict=True)]
        ends = parts.offsets.tolist()
        owned = [parts.order[a:b] for a, b in itertools.pairwise(ends)]
        owned[victim] = torch.cat((owned[victim], first + torch.arange(len(new[0]))))
        return replace(task, parts=Parts.split(arrays, owned))
    assert isinstance(parts, Sequence)  # a task with a module has no stream
    held = list(parts)
    held[victim] = tuple(torch.cat(pair) for pair in zip(held[victim], new, strict=True))
    return replace(task, parts=held)
