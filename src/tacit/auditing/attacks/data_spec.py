"""What an attacker knows about the data: from the protocol, and from public data of the kind."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tacit.tasks.batches import FullBatchSource, MiniBatchSource
from tacit.tasks.flat import ModuleLoss
from tacit.tasks.objective import Objective


@dataclass(frozen=True)
class NumberTargets:
    """Targets of a regression: their shape, and about which numbers they are."""

    shape: tuple[int, ...] = ()  # of one sample's target
    mean: float = 0.0
    deviation: float = 1.0

    @classmethod
    def like(cls, public: Tensor) -> NumberTargets:
        """Of targets [n, *shape] of the same kind."""
        deviation = float(public.std(correction=0)) or 1.0
        return cls(tuple(public.shape[1:]), float(public.mean()), deviation)


@dataclass(frozen=True)
class DataSpec:
    """Shapes and ranges of a victim's data.

    Attributes:
        shape: Shape of one input.
        batch: Samples behind each gradient.
        classes: Number of classes; 0 with `numbers`.
        box: Lowest and highest value of an input; None if they are not known.
        numbers: About which numbers the targets of a regression are.
    """

    shape: tuple[int, ...]
    batch: int = 1
    classes: int = 0
    box: tuple[float, float] | None = (0.0, 1.0)
    numbers: NumberTargets | None = None

    def clamp(self, inputs: Tensor) -> Tensor:
        """Inputs with all values in the box."""
        return inputs if self.box is None else inputs.clamp(*self.box)

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
