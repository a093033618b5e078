"""What an attacker knows about the data: from the protocol, and from public data of the kind."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tacit.auditing.attacks.guesses import NumberTargets
from tacit.tasks.batches import FullBatchSource, MiniBatchSource
from tacit.tasks.flat import ModuleLoss
from tacit.tasks.objective import Objective


@dataclass(frozen=True)
class DataSpec:
    """Shapes and ranges of a victim's data."""

    shape: tuple[int, ...]
    batch: int
    classes: int  # 0: targets are numbers
    box: tuple[float, float]  # lowest and highest value of an input
    numbers: NumberTargets | None = None  # if there are no classes

    @classmethod
    def of(cls, task: Objective, victim: int, public: tuple[Tensor, Tensor]) -> DataSpec:
        x, y = public
        assert isinstance(task.loss, ModuleLoss)  # checked by why_not_attackable
        flat, batch = task.loss.flat, batch_size(task, victim)
        box = float(x.min()), float(x.max())
        if y.is_floating_point():
            return cls(tuple(x.shape[1:]), batch, 0, box, NumberTargets.like(y))
        classes = flat(flat.weights(), x[:1].to(flat.dtype)).shape[1]
        return cls(tuple(x.shape[1:]), batch, classes, box)


def batch_size(task: Objective, client: int) -> int:
    """Number of samples behind a gradient of a client, which the protocol makes public."""
    source = task.source
    if isinstance(source, MiniBatchSource):
        return source.batch_size
    return len(source.parts[client][0]) if isinstance(source, FullBatchSource) else 0


def reuses_batches(task: Objective) -> bool:
    """Whether all gradients of a client see the same data."""
    source = task.source
    if task.draws.needed:
        return False
    if isinstance(source, MiniBatchSource):
        return bool((source.parts.sizes == source.batch_size).all())
    return isinstance(source, FullBatchSource)
