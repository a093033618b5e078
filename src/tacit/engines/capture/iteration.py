"""A whole iteration captured once as a CUDA graph and replayed: one launch instead of hundreds.

What differs from one iteration to the next is read on the device: the tick that keys noise, step
sizes, and the samples of the batches. An algorithm that needs more than that, or that reads from
the GPU, is not captured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm, tensors_of
from tacit.algorithms.wrapped import WrappedAlgorithm
from tacit.core.hosted_clients import HostedClients, Sampling
from tacit.core.rounded_sums import ROUNDING
from tacit.core.rows import is_shared, shared
from tacit.core.schedules import Rate, rate_at
from tacit.engines.buffers import Buffers
from tacit.engines.capture.graphs import Work, captured
from tacit.engines.gradients.device_samples import DeviceSample
from tacit.engines.gradients.objective import HostedObjective
from tacit.engines.lazy_clients import LazyClients, LazyNetwork
from tacit.engines.lazy_rows import Computed, Drawn, Known, Workspace, evaluated_state
from tacit.engines.stacked import StackedNetwork
from tacit.engines.watchdog import Watchdog
from tacit.tasks.poisson import PoissonSample


class NotCapturable(Exception):
    """An iteration that is not the same work every time."""


class DeviceClock:
    """What the device reads of an iteration: its tick, its step sizes, its batches."""

    def __init__(self, algorithm: Algorithm, here: LazyClients, like: Tensor) -> None:
        if not isinstance(here.objective, HostedObjective):
            raise NotCapturable("its gradients are computed elsewhere")
        self.objective, self._here = here.objective, here
        self.tick = torch.zeros(1, dtype=torch.int64, device=like.device)
        # Allocated before anything is captured, or the allocation would be captured too.
        self._rates = [
            (option, like.new_zeros(())) for option in vars(algorithm).values() if callable(option)
        ]
        self._values: dict[int, float] = {}  # of the rates in use, as they are on the device
        # Of the gradients that an iteration computes: those on batches, and those on drawn samples.
        drawn = here.workspace.drawn or dict.fromkeys(range(here.gradients_per_step))
        self._samples: dict[int, Tensor | None] = {}
        self._places: dict[int, tuple[DeviceSample, Drawn]] = {}
        for local, sampling in drawn.items():
            if sampling is None:
                index = here.objective.samples(1 + local)
                self._samples[local] = None if index is None else index.clone()
            else:
                sample = self._drawn(0, local, sampling)
                self._places[local] = here.objective.place_sample(like, sample), sampling

    def set(self, t: int) -> bool:
        """Prepare the device for iteration t; False if more samples were drawn than fit."""
        self.tick.fill_(t + 1)
        for place, value in self._values.items():
            schedule, on_device = self._rates[place]
            if (now := rate_at(schedule, t)) != value:
                self._values[place] = now
                on_device.fill_(now)
        for local, index in self._samples.items():
            if index is not None:
                batch = self.objective.samples(self._number(t, local))
                assert batch is not None
                index.copy_(batch)
        return all(
            place.load(self._drawn(t, local, sampling))
            for local, (place, sampling) in self._places.items()
        )

    def rate(self, rate: Rate) -> float | Tensor:
        """A step size, on the device if it changes."""
        if not callable(rate):
            return rate
        for place, (schedule, on_device) in enumerate(self._rates):
            if schedule is rate:
                self._values.setdefault(place, 0.0)
                return on_device
        raise NotCapturable("it has a step size that is none of its options")

    def grad(self, theta: Tensor, local: int, out: Tensor) -> Tensor:
        """Gradients on the current batches."""
        if local not in self._samples:
            raise NotCapturable("it computes other gradients than in earlier iterations")
        return self.objective.grad_on(theta, self._samples[local], out)

    def clipped_sum(self, theta: Tensor, local: int, sampling: Drawn, out: Tensor) -> Tensor:
        """Sums over the current samples."""
        place, earlier = self._places.get(local, (None, None))
        if place is None or sampling != earlier:
            raise NotCapturable("it samples otherwise than in earlier iterations")
        clip = self._sampling(0, local, sampling).clip
        return self.objective.clipped_sum_on(theta, place, clip, out)

    def _number(self, t: int, local: int) -> int:
        """The number of gradient `local` of iteration t."""
        return 1 + t * self._here.gradients_per_step + local

    def _drawn(self, t: int, local: int, drawn: Drawn) -> PoissonSample:
        sampling = self._sampling(t, local, drawn)
        return self.objective.drawn(sampling, self._number(t, local))

    def _sampling(self, t: int, local: int, drawn: Drawn) -> Sampling:
        bound, rate, rounding = drawn
        return self._here.at(t).sampling(bound, rate, local, rounding)


@dataclass(frozen=True)
class CapturedClients(LazyClients):
    """Hosted clients at an iteration that only the device knows."""

    clock: DeviceClock = field(kw_only=True)

    def __getattribute__(self, name: str) -> Any:
        if name in ("t", "tick"):
            raise NotCapturable("it depends on the number of the iteration")
        return super().__getattribute__(name)

    @property
    def _tick(self) -> int:
        return self.clock.tick  # type: ignore[return-value]

    def grad(self, theta: Any, local: int = 0) -> Any:
        if not 0 <= local < self.gradients_per_step:
            raise NotCapturable("it computes more gradients than it declares")
        clock, rows = self.clock, theta
        if isinstance(theta, Tensor):
            rows = Known(theta, self.workspace)
        return Computed(lambda out, value: clock.grad(value, local, out), rows, self.workspace)

    def clipped_sum(
        self,
        theta: Any,
        bound: float,
        rate: float,
        local: int = 0,
        rounding: float = ROUNDING,
    ) -> Any:
        clock = self.clock
        rows = Known(theta, self.workspace) if isinstance(theta, Tensor) else theta

        def write(out: Tensor, value: Tensor) -> None:
            clock.clipped_sum(value, local, (bound, rate, rounding), out)

        return Computed(write, rows, self.workspace)

    def minimise(self, linear: Tensor, curvature: Tensor) -> Tensor:
        raise NotCapturable("it minimises, which may iterate until it converges")

    def rate(self, rate: Rate) -> float:
        return self.clock.rate(rate)  # type: ignore[return-value]


class CapturedStep:
    """An iteration that is replayed. Its state stays in one place and is overwritten each time.

    Args:
        algorithm: What to capture.
        here: The hosted clients.
        state: The state to continue from; it is overwritten.
        watchdog: Checks every state.
        capture: Turns work into its replay; capturing itself computes nothing.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        here: LazyClients,
        state: Any,
        watchdog: Watchdog,
        capture: Callable[[Work, torch.device], Work] = captured,
    ) -> None:
        assert isinstance(here.net, LazyNetwork)
        net = here.net.network
        if not isinstance(net, StackedNetwork):
            raise NotCapturable("messages leave the process")
        if isinstance(algorithm, WrappedAlgorithm):
            raise NotCapturable("its network is replaced, as by robust mixing")
        if here.apply is not HostedClients.apply:
            raise NotCapturable("a transcript is recorded")
        self._made_of = (algorithm, here)
        self._net, self._watchdog = net, watchdog
        self.state, self._rows = state, tensors_of(state)
        self._bytes, self._magnitudes = 0, torch.empty(0)
        theta = self._rows["theta"]
        self._clock = DeviceClock(algorithm, here, theta)
        parts = {one.name: getattr(here, one.name) for one in fields(here)} | {"net": net}

        def iteration() -> None:
            begun = net.bytes_sent
            # Memory taken during the capture belongs to the graph.
            parts["workspace"] = Workspace(Buffers(), here.workspace.pool)
            clients = CapturedClients(**parts, clock=self._clock)
            after = [algorithm.step(clients.lazy_state(self.state), clients)]
            overwrite(self._rows, tensors_of(evaluated_state(after.pop())))
            self._magnitudes = torch.cat(
                [watchdog.magnitudes(rows) for rows in self._rows.values()]
            )
            self._bytes, net.bytes_sent = net.bytes_sent - begun, begun

        before = net.bytes_sent
        try:
            self._replay = capture(iteration, theta.device)
        finally:
            net.bytes_sent = before
        # Gradient passes that were captured on their own are no longer needed.
        self._clock.objective.clear_captures()

    def is_of(self, algorithm: Algorithm, here: LazyClients) -> bool:
        """Whether this algorithm and these clients were captured."""
        return self._made_of[0] is algorithm and self._made_of[1] is here

    def replay(self, t: int) -> None:
        """Compute iteration t."""
        if self._clock.set(t):
            self._replay()
            self._net.bytes_sent += self._bytes
        else:
            self._compute(t)
        rows = {name: len(rows) for name, rows in self._rows.items()}
        self._watchdog.record(t + 1, rows, self._magnitudes.clone())

    def _compute(self, t: int) -> None:
        """Compute iteration t without the graph: it has more samples than that has room for."""
        algorithm, here = self._made_of
        here = here.at(t)
        after = [algorithm.step(here.lazy_state(self.state), here)]
        overwrite(self._rows, tensors_of(evaluated_state(after.pop())))
        magnitudes = [self._watchdog.magnitudes(rows) for rows in self._rows.values()]
        # In the place where replays write them.
        self._magnitudes.copy_(torch.cat(magnitudes))


def copied_state(state: Any) -> Any:
    """The same state in memory of its own."""
    return replace(state, **{name: _copied(rows) for name, rows in tensors_of(state).items()})


def _copied(rows: Tensor) -> Tensor:
    return shared(rows[:1].clone(), len(rows)) if is_shared(rows) else rows.clone()


def overwrite(target: dict[str, Tensor], source: dict[str, Tensor]) -> None:
    """Copy new rows over old ones. New rows may be old ones of another name, or views of them."""
    places = {_storage(rows) for rows in target.values()}
    copied = {}
    for name, rows in source.items():
        if _layout(rows) != _layout(target[name]):
            copied[name] = _copied(rows) if _storage(rows) in places else rows
    for name, rows in copied.items():
        if is_shared(target[name]):
            target[name][:1].copy_(rows[:1])
        else:
            target[name].copy_(rows)


def _layout(rows: Tensor) -> tuple[int, torch.Size, tuple[int, ...]]:
    return rows.data_ptr(), rows.shape, rows.stride()


def _storage(rows: Tensor) -> int:
    return rows.untyped_storage().data_ptr()
