"""A whole iteration recorded once on a GPU and played again: one launch instead of hundreds.

What differs from one iteration to the next is read on the device: the tick that keys noise, step sizes, and which
samples are in the batches. An algorithm that asks for more than that, or that asks the GPU something, is not recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm, tensors_of
from tacit.core.here import Here
from tacit.core.schedules import Rate, rate_at
from tacit.engines.buffers import Buffers
from tacit.engines.capture.graphs import Work, recorded
from tacit.engines.gradients.objective import HostedObjective
from tacit.engines.stacked import StackedNetwork
from tacit.engines.watchdog import Watchdog


class Unrecordable(Exception):
    """An iteration that is not the same work every time."""


class Moment:
    """What the device is told of an iteration before it plays it."""

    def __init__(self, algorithm: Algorithm, here: Here, like: Tensor) -> None:
        if not isinstance(here.objective, HostedObjective):
            raise Unrecordable("its gradients are not taken here")
        self._objective = here.objective
        self.tick = torch.zeros(1, dtype=torch.int64, device=like.device)
        # Made before anything is recorded, or making them would be recorded too.
        self._rates = [
            (option, like.new_zeros(())) for option in vars(algorithm).values() if callable(option)
        ]
        self._values: dict[
            int, float
        ] = {}  # of those that are asked for, as they are on the device
        first = [self._objective.samples(1 + local) for local in range(here.gradients_per_step)]
        self._samples = [None if index is None else index.clone() for index in first]

    def set(self, t: int) -> None:
        """Before iteration t is played."""
        self.tick.fill_(t + 1)
        for place, value in self._values.items():
            schedule, there = self._rates[place]
            if (now := rate_at(schedule, t)) != value:
                self._values[place] = now
                there.fill_(now)
        for local, index in enumerate(self._samples):
            if index is not None:
                now_in_batch = self._objective.samples(1 + t * len(self._samples) + local)
                assert now_in_batch is not None
                index.copy_(now_in_batch)

    def forget_passes(self) -> None:
        """Give back the memory of gradients that were recorded on their own."""
        self._objective.forget_recordings()

    def rate(self, rate: Rate) -> float | Tensor:
        """A step size: on the device if it changes."""
        if not callable(rate):
            return rate
        for place, (schedule, there) in enumerate(self._rates):
            if schedule is rate:
                self._values.setdefault(place, 0.0)
                return there
        raise Unrecordable("it has a step size that is none of its options")

    def grad(self, theta: Tensor, local: int, out: Tensor) -> Tensor:
        """Gradients on the batches of the moment."""
        return self._objective.grad_on(theta, self._samples[local], out)


@dataclass(frozen=True)
class Anytime(Here):
    """The clients at a moment that only the device knows."""

    moment: Moment | None = None

    @classmethod
    def of(cls, here: Here, moment: Moment) -> Anytime:
        """The same clients."""
        parts = {field.name: getattr(here, field.name) for field in fields(Here)}
        return cls(**parts | {"reuse": True}, moment=moment)

    def __getattribute__(self, name: str) -> Any:
        if name in ("t", "tick"):
            raise Unrecordable("it asks which iteration it is")
        return super().__getattribute__(name)

    @property
    def _now(self) -> int:
        assert self.moment is not None
        return self.moment.tick  # type: ignore[return-value]

    def grad(self, theta: Tensor, local: int = 0, *, spent: Tensor | None = None) -> Tensor:
        """As `Clients.grad`."""
        assert self.moment is not None
        if not 0 <= local < self.gradients_per_step:
            raise Unrecordable("it takes more gradients than it declares")
        return self.moment.grad(theta, local, torch.empty_like(theta) if spent is None else spent)

    def minimise(self, linear: Tensor, curvature: Tensor) -> Tensor:
        """Not recorded: it may iterate until it has converged."""
        raise Unrecordable("it minimises")

    def rate(self, rate: Rate) -> float:
        """A number on the device, which can be used as one."""
        assert self.moment is not None
        return self.moment.rate(rate)  # type: ignore[return-value]

    def add(self, onto: Tensor, *terms: tuple[float, Tensor]) -> None:
        """As `Clients.add`; a weight may be on the device."""
        for weight, rows in terms:
            where: object = weight
            if isinstance(where, Tensor):
                onto.addcmul_(rows, where)
            else:
                onto.add_(rows, alpha=weight)


class CapturedStep:
    """An iteration that is played. The rows of its state stay where they are, and are written over each time."""

    def __init__(
        self,
        algorithm: Algorithm,
        here: Here,
        state: Any,
        watchdog: Watchdog,
        record: Callable[[Work, torch.device], Work] = recorded,
    ) -> None:
        """From a state that nobody else sees; recording computes nothing."""
        net = here.net
        if not isinstance(net, StackedNetwork):
            raise Unrecordable("messages leave the process")
        if here.apply is not Here.apply:
            raise Unrecordable("somebody listens")
        self.state = state
        self._made_of = (algorithm, here)
        self._net, self._watchdog, self._rows = net, watchdog, tensors_of(state)
        self._bytes, self._sizes = 0, torch.empty(0)
        theta = self._rows["theta"]
        self._moment = Moment(algorithm, here, theta)
        anytime = Anytime.of(here, self._moment)

        def iteration() -> None:
            begun, net.buffers = (
                net.bytes_sent,
                Buffers(),
            )  # memory taken meanwhile belongs to the recording
            move(tensors_of(algorithm.step(state, anytime)), self._rows)
            self._sizes = torch.cat([watchdog.sizes(rows) for rows in self._rows.values()])
            net.buffers = Buffers()
            self._bytes, net.bytes_sent = net.bytes_sent - begun, begun

        before = net.bytes_sent
        try:
            self._play = record(iteration, theta.device)
        finally:
            net.bytes_sent, net.buffers = before, Buffers()
        self._moment.forget_passes()

    def is_of(self, algorithm: Algorithm, here: Here) -> bool:
        """Whether it is still what would be computed."""
        return self._made_of[0] is algorithm and self._made_of[1] is here

    def play(self, t: int) -> None:
        """Iteration t."""
        self._moment.set(t)
        self._play()
        self._net.bytes_sent += self._bytes
        self._watchdog.saw(
            t + 1, {name: len(rows) for name, rows in self._rows.items()}, self._sizes.clone()
        )

    def copy_of_state(self) -> Any:
        """The state as it is now, in memory that is not written over."""
        return replace(self.state, **{name: rows.clone() for name, rows in self._rows.items()})


def move(source: dict[str, Tensor], target: dict[str, Tensor]) -> None:
    """Copy rows to where they belong; some may be where others belong, and are moved before they are written over."""
    waiting = {
        name: rows for name, rows in source.items() if _layout(rows) != _layout(target[name])
    }
    for name, rows in waiting.items():
        if _place(rows) == _place(target[name]):  # the same numbers in another order
            waiting[name] = rows.clone()
    while waiting:
        taken = {name: _place(rows) for name, rows in waiting.items()}
        free = [
            name
            for name in waiting
            if _place(target[name])
            not in [place for other, place in taken.items() if other != name]
        ]
        if not free:  # they go round in a circle
            name = next(iter(waiting))
            waiting[name] = waiting[name].clone()
            continue
        for name in free:
            target[name].copy_(waiting.pop(name))


def _layout(rows: Tensor) -> tuple[int, torch.Size, tuple[int, ...]]:
    return rows.data_ptr(), rows.shape, rows.stride()


def _place(rows: Tensor) -> int:
    return rows.untyped_storage().data_ptr()
