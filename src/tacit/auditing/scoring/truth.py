"""The truth: the data behind each gradient, used for scores and never by an attack."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tacit.core.sample_keys import sample_keys
from tacit.tasks.batches import one_chunk
from tacit.tasks.evaluation import TestSet
from tacit.tasks.objective import Objective
from tacit.tasks.parts import Part, Parts


@dataclass(frozen=True, eq=False)
class Truth:
    """The data on which clients trained in a run with this seed.

    `number` keys the batches of the only client of the task, if that is not its position.
    """

    task: Objective
    seed: int
    number: int | None = None

    def batch(self, client: int, number: int) -> Part:
        """The arrays, inputs first, that a client's gradient `number` saw; images augmented."""
        at, keyed_by = torch.tensor([client]), client if self.number is None else self.number
        loader = self.task.loader(torch.tensor([keyed_by]), self.seed, "cpu", positions=at)
        ((_, load),) = loader.chunks(number, one_chunk)
        return tuple(array[0] for array in load())

    def keys(self, client: int, number: int) -> Tensor | None:
        """The keys of dropout [batch] of a client's gradient; None without dropout.

        They follow from the seed and the numbers of the samples, so attackers know them.
        """
        return self.batch(client, number)[-1] if self.task.draws.keys else None

    def members(self, client: int) -> Part | None:
        """All data of a client; None if it is a stream."""
        parts = self.task.parts
        if isinstance(parts, Parts):
            return parts.of(client)
        return parts[client] if isinstance(parts, list | tuple) else None

    @property
    def has_test_set(self) -> bool:
        """Whether there are data on which no client trained."""
        return isinstance(self.task.evaluation, TestSet)

    def non_members(self, client: int) -> tuple[Tensor, Tensor] | None:
        """Inputs and targets that the client did not train on.

        The test set, or else the data of the other clients.
        """
        evaluation = self.task.evaluation
        if isinstance(evaluation, TestSet):
            return evaluation.x.cpu(), evaluation.y.cpu()
        others = [self.members(i) for i in range(self.task.clients) if i != client]
        held = [part for part in others if part is not None and len(part) == 2]
        if not held:
            return None
        return torch.cat([x for x, _ in held]), torch.cat([y for _, y in held])

    def non_members_as_seen(self, client: int) -> tuple[Tensor, Tensor] | None:
        """`non_members` with the random changes that gradients see of their images.

        Without them, members could be told from others by the changes alone.
        """
        samples, augment = self.non_members(client), self.task.draws.augment
        if samples is None or augment is None:
            return samples
        x, y = samples
        return augment(x, sample_keys(self.seed, self.task.clients, len(x))), y
