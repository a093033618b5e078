"""A whole iteration captured once as a CUDA graph and replayed: one launch instead of hundreds.

What differs from one iteration to the next is read on the device: the tick that keys noise, step
sizes, and the samples of the batches. An algorithm that needs more than that, or that reads from
the GPU, is not captured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm, tensors_of
from tacit.algorithms.wrapped import WrappedAlgorithm
from tacit.core.hosted_clients import HostedClients, SamplingRule
from tacit.core.rows import is_shared, shared
from tacit.core.schedules import Rate, rate_at
from tacit.engines.buffers import Buffers
from tacit.engines.capture.graphs import Work, captured
from tacit.engines.gradients.device_samples import DeviceSample
from tacit.engines.gradients.objective import HostedObjective
from tacit.engines.lazy_clients import LazyClients, LazyNetwork
from tacit.engines.lazy_rows import Workspace, Write, evaluated_state
from tacit.engines.stacked import StackedNetwork
from tacit.engines.watchdog import Watchdog
from tacit.tasks.poisson import PoissonSample

# Places in memory that the state of an iteration may pass before it is copied back to the first.
MOST_PLACES = 6
# Tensors beside the rows of two states that these places may have together.
SPARE = 2
# Which of the held tensors each row of a state is.
Place = dict[str, int]


class NotCapturable(Exception):
    """An iteration that is not the same work every time."""


class DeviceClock:
    """What the device reads of an iteration: its tick, its step sizes, its batches."""

    def __init__(self, here: LazyClients, like: Tensor) -> None:
        if not isinstance(here.objective, HostedObjective):
            raise NotCapturable("its gradients are computed elsewhere")
        self.objective, self._here = here.objective, here
        self.tick = torch.zeros(1, dtype=torch.int64, device=like.device)
        # Allocated before anything is captured, or the allocation would be captured too.
        self._rates = [(schedule, like.new_zeros(())) for schedule in here.workspace.schedules]
        self._values: dict[int, float] = {}  # of the rates in use, as they are on the device
        # Of the gradients that an iteration computes: those on batches, and those on drawn samples.
        drawn = here.workspace.drawn or dict.fromkeys(range(here.gradients_per_step))
        self._samples: dict[int, Tensor | None] = {}
        self._places: dict[int, tuple[DeviceSample, SamplingRule]] = {}
        for local, rule in drawn.items():
            if rule is None:
                index = here.objective.samples(1 + local)
                self._samples[local] = None if index is None else index.clone()
            else:
                sample = self._drawn(0, local, rule)
                self._places[local] = here.objective.clipped_sums.place(like, sample), rule

    def set(self, t: int) -> bool:
        """Prepare the device for iteration t; False if more samples were drawn than fit."""
        self.tick.fill_(t + 1)
        for number, value in self._values.items():
            schedule, on_device = self._rates[number]
            if (now := rate_at(schedule, t)) != value:
                self._values[number] = now
                on_device.fill_(now)
        here = self._here.at(t)
        for local, index in self._samples.items():
            if index is not None:
                batch = self.objective.samples(here.batch(local))
                assert batch is not None
                index.copy_(batch)
        return all(
            sample.load(self._drawn(t, local, rule))
            for local, (sample, rule) in self._places.items()
        )

    def rate(self, rate: Rate) -> float | Tensor:
        """A step size, on the device if it changes."""
        if not callable(rate):
            return rate
        for index, (schedule, on_device) in enumerate(self._rates):
            if schedule == rate:
                self._values.setdefault(index, 0.0)
                return on_device
        raise NotCapturable("it has another step size than in earlier iterations")

    def gradient(self, local: int) -> Write:
        """What writes gradients on the current batches."""
        if local not in self._samples:
            raise NotCapturable("it computes other gradients than in earlier iterations")
        samples = self._samples[local]
        return lambda out, theta: self.objective.grad_on(theta, samples, out)

    def clipped_sum(self, rule: SamplingRule, local: int) -> Write:
        """What writes sums over the current samples."""
        sample, earlier = self._places.get(local, (None, None))
        if sample is None or rule != earlier:
            raise NotCapturable("it samples otherwise than in earlier iterations")
        clip = self._here.at(0).sampling(rule, local).clip
        return lambda out, theta: self.objective.clipped_sums.write_on(theta, sample, clip, out)

    def _drawn(self, t: int, local: int, rule: SamplingRule) -> PoissonSample:
        here = self._here.at(t)
        return self.objective.drawn(here.sampling(rule, local), here.batch(local))


@dataclass(frozen=True)
class CapturedClients(LazyClients):
    """Hosted clients at an iteration that only the device knows."""

    clock: DeviceClock = field(kw_only=True)

    def __getattribute__(self, name: str) -> Any:
        # The number of the captured iteration would be a constant of all replays.
        if name in ("t", "tick"):
            raise NotCapturable("it depends on the number of the iteration")
        return super().__getattribute__(name)

    @property
    def _tick(self) -> int:
        return self.clock.tick  # type: ignore[return-value]

    def _gradient(self, local: int) -> Write:
        return self.clock.gradient(local)

    def _clipped_sum(self, rule: SamplingRule, local: int) -> Write:
        return self.clock.clipped_sum(rule, local)

    def minimise(self, linear: Tensor, curvature: Tensor) -> Tensor:
        raise NotCapturable("it minimises, which may iterate until it converges")

    def rate(self, rate: Rate) -> float:
        return self.clock.rate(rate)  # type: ignore[return-value]


class CapturedStep:
    """An iteration that is replayed.

    New rows are written over rows that are no longer needed, as in iterations that are computed. So
    the state moves from one place in memory to the next, and iterations are captured until it is
    back at the first place: each place has a graph, and graphs are replayed in turn.

    Args:
        algorithm: What to capture.
        here: The hosted clients.
        state: The state to continue from. It is overwritten: the caller must drop it before the
            capture, or its memory is not used again.
        watchdog: Checks every state.
    """

    def __init__(
        self, algorithm: Algorithm, here: LazyClients, state: Any, watchdog: Watchdog
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
        rows = tensors_of(state)
        self._clock = DeviceClock(here, rows["theta"])
        self._device = rows["theta"].device
        # What captured iterations write into; it also holds the states.
        self.buffers = Buffers(rows.values())
        self._form = replace(state, **dict.fromkeys(rows))
        self._places: list[Place] = [{name: place for place, name in enumerate(rows)}]
        self._turn = 0  # the place of the state
        self._graphs: list[Work] = []
        self._magnitudes: list[Tensor] = []  # that a graph writes
        self._bytes = 0

    @property
    def state(self) -> Any:
        """The state after the last replay, which the next ones overwrite."""
        return self._state_at(self._turn)

    def capture(self, capture: Callable[[Work, torch.device], Work] | None = None) -> None:
        """Capture the iteration. `capture` turns work into its replay, and computes nothing."""
        if capture is None:
            capture = partial(captured, pool=torch.cuda.graph_pool_handle())
        before = self._net.bytes_sent
        try:
            while len(self._graphs) < len(self._places):
                place = len(self._graphs)
                self._graphs.append(capture(partial(self._iteration, place), self._device))
        finally:
            self._net.bytes_sent = before
        # Gradient passes that were captured on their own are no longer needed.
        self._clock.objective.clear_captures()

    def _iteration(self, place: int) -> None:
        """Compute one iteration from the state at a place, by what the device reads of it."""
        algorithm, here = self._made_of
        net, begun = self._net, self._net.bytes_sent
        parts = {part.name: getattr(here, part.name) for part in fields(here)} | {"net": net}
        parts["workspace"] = Workspace(self.buffers, here.workspace.pool)
        clients = CapturedClients(**parts, clock=self._clock)
        after = [algorithm.step(clients.lazy_state(self._state_at(place)), clients)]
        rows = tensors_of(evaluated_state(after.pop()))
        rows = self._moved(rows, place)
        magnitudes = torch.cat(
            [self._watchdog.magnitudes(rows_of_field) for rows_of_field in rows.values()]
        )
        self._bytes, net.bytes_sent = net.bytes_sent - begun, begun
        if place == len(self._magnitudes):
            self._magnitudes.append(magnitudes)
        else:
            self._magnitudes[place].copy_(magnitudes)

    def _moved(self, rows: dict[str, Tensor], place: int) -> dict[str, Tensor]:
        """New rows at the place after this one: where they are, if that can be."""
        # Copying each new state back to the place of the first would be simpler, but takes as long
        # as mixing. Rows that already have addresses of their own stay where they were written.
        held = self.buffers.held()
        if place == len(self._magnitudes) and all(map(self.buffers.holds, rows.values())):
            following = {
                name: next(k for k, tensor in enumerate(held) if tensor is own)
                for name, own in rows.items()
            }
            if following == self._places[0]:
                return rows
            if place + 1 < MOST_PLACES and len(held) <= 2 * len(rows) + SPARE:
                self._places.append(following)
                return rows
        # Run again without being captured, the text may write elsewhere.
        target = tensors_of(self._state_at((place + 1) % len(self._places)))
        overwrite(target, rows)
        return target

    def is_of(self, algorithm: Algorithm, here: LazyClients) -> bool:
        """Whether this algorithm and these clients were captured."""
        return self._made_of[0] is algorithm and self._made_of[1] is here

    def replay(self, t: int) -> None:
        """Compute iteration t."""
        turn, following = self._turn, (self._turn + 1) % len(self._places)
        if self._clock.set(t):
            self._graphs[turn]()
            self._net.bytes_sent += self._bytes
        else:
            self._compute(t, following)
        self._turn = following
        rows = {name: len(rows) for name, rows in tensors_of(self.state).items()}
        self._watchdog.record(t + 1, rows, self._magnitudes[turn].clone())

    def _compute(self, t: int, following: int) -> None:
        """Compute iteration t without the graph: it has more samples than that has room for."""
        algorithm, here = self._made_of
        here = here.at(t)
        after = [algorithm.step(here.lazy_state(self.state), here)]
        rows = tensors_of(self._state_at(following))
        overwrite(rows, tensors_of(evaluated_state(after.pop())))
        magnitudes = [self._watchdog.magnitudes(values) for values in rows.values()]
        # In the place where replays write them.
        self._magnitudes[self._turn].copy_(torch.cat(magnitudes))

    def _state_at(self, place: int) -> Any:
        held = self.buffers.held()
        return replace(self._form, **{name: held[k] for name, k in self._places[place].items()})


def copied_state(state: Any) -> Any:
    """The same state in memory of its own; rows that only the argument refers to are freed."""
    rows = tensors_of(state)
    form = replace(state, **dict.fromkeys(rows))
    del state
    return replace(form, **{name: _copied(rows.pop(name)) for name in list(rows)})


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
