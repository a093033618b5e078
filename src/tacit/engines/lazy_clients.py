"""Hosted clients whose rows are lazy: what they compute is computed when it is needed."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, cast

from torch import Tensor

from tacit.algorithms.algorithm import tensors_of
from tacit.core.codec import Codec
from tacit.core.fixed_point import FixedPoint, IntegerRows
from tacit.core.here import Function, Network
from tacit.core.hosted_clients import HostedClients, SamplingRule
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.rows import CodedRows, EdgeRows, Sent, is_shared, received, shared
from tacit.core.schedules import Rate
from tacit.engines.lazy_rows import (
    Added,
    Computed,
    Known,
    Rows,
    State,
    Workspace,
    Write,
    evaluated,
    evaluated_state,
)
from tacit.engines.stacked import StackedNetwork


class LazyNetwork:
    """A network that takes and gives lazy rows; mixing in one process is itself lazy."""

    def __init__(self, network: Network, workspace: Workspace) -> None:
        self.network, self._workspace = network, workspace

    def mix(self, **rows: Sent) -> tuple[Any, ...]:
        network, workspace = self.network, self._workspace
        if not isinstance(network, StackedNetwork):
            mixed = network.mix(**{tag: evaluated(sent) for tag, sent in rows.items()})
            return tuple(Known(part, workspace) for part in mixed)
        network.count_mix(rows.values())
        write_sum = network.mix_sum_into if network.mixes_sums else None
        return tuple(
            Computed(network.mix_into, self._rows(sent), workspace, write_sum)
            for sent in rows.values()
        )

    def send(self, tag: str, edge_rows: Tensor, *, private: bool = False) -> Any:
        arrived = self.network.send(tag, evaluated(edge_rows), private=private)
        return Known(arrived, self._workspace)

    def total(self, **rows: IntegerRows) -> tuple[Any, ...]:
        return tuple(Known(total, self._workspace) for total in self.network.total(**rows))

    def average(self, **rows: Tensor) -> tuple[Any, ...]:
        means = self.network.average(**{tag: evaluated(own) for tag, own in rows.items()})
        return tuple(Known(mean, self._workspace) for mean in means)

    def _rows(self, sent: Any) -> Rows:
        if isinstance(sent, CodedRows):
            sent = sent.rows
        return sent if isinstance(sent, Rows) else Known(received(sent), self._workspace)


@dataclass(frozen=True, eq=False)
class LazyNeighbourhood(Neighbourhood):
    """A neighbourhood whose sums of edge noise are drawn while they are added."""

    workspace: Workspace = field(default_factory=Workspace)

    def net_out(self, sent: EdgeRows, received: EdgeRows) -> Any:
        ends: Any = {"sent": sent, "received": received}
        for name, rows in ends.items():
            if isinstance(rows, Tensor):
                ends[name] = Known(rows, self.workspace)
        add = partial(self.add_net_out, **ends)
        return Added(add, (len(self.ids), sent.shape[1]), sent, self.workspace)


@dataclass(frozen=True)
class LazyClients(HostedClients):
    """Hosted clients whose rows are lazy."""

    workspace: Workspace = field(default_factory=Workspace)
    common_start: bool = False  # whether all clients have one first model

    def __post_init__(self) -> None:
        if not isinstance(self.net, LazyNetwork):
            object.__setattr__(self, "net", LazyNetwork(self.net, self.workspace))
        if not isinstance(self.graph, LazyNeighbourhood):
            parts = {part.name: getattr(self.graph, part.name) for part in fields(self.graph)}
            lazy = LazyNeighbourhood(**parts, workspace=self.workspace)
            object.__setattr__(self, "graph", lazy)

    def start(self, algorithm: Any) -> Any:
        """The state of an algorithm before the first iteration."""
        return evaluated_state(algorithm.start(self))

    def lazy_state(self, state: State) -> State:
        """A state of tensors as one of lazy rows."""
        known = {name: Known(rows, self.workspace) for name, rows in tensors_of(state).items()}
        return cast(State, replace(cast(Any, state), **known))

    @property
    def theta0(self) -> Any:
        rows = super().theta0
        if not self.common_start:
            return rows
        return Known(shared(rows[:1], len(rows)), self.workspace)

    def grad(self, theta: Any, local: int = 0) -> Any:
        return self._computed(theta, self._gradient(local))

    def sampled_sum(self, theta: Any, rule: SamplingRule, local: int) -> Any:
        return self._computed(theta, self._clipped_sum(rule, local))

    def _computed(self, theta: Any, write: Write) -> Any:
        rows = Known(theta, self.workspace) if isinstance(theta, Tensor) else theta
        return Computed(write, rows, self.workspace)

    def _gradient(self, local: int) -> Write:
        """What writes the gradients `local` of this step at a value."""
        number = self.batch(local)
        self.workspace.drawn[local] = None

        def write(out: Tensor, value: Tensor) -> None:
            gradients = self.objective.grad(value, number, out)
            if gradients is not out:
                out.copy_(gradients)

        return write

    def _clipped_sum(self, rule: SamplingRule, local: int) -> Write:
        """What writes the sums of clipped gradients `local` of this step at a value."""
        number, sampling = self.batch(local), self.sampling(rule, local)
        self.workspace.drawn[local] = rule
        return lambda out, value: self.objective.clipped_sum(value, sampling, number, out)

    def rate(self, rate: Rate) -> float:
        if callable(rate) and rate not in self.workspace.schedules:
            self.workspace.schedules.append(rate)
        return super().rate(rate)

    def fixed_point(self, tag: str, rows: Tensor, code: FixedPoint) -> IntegerRows:
        return super().fixed_point(tag, evaluated(rows), code)

    def minimise(self, linear: Tensor, curvature: Tensor) -> Tensor:
        return super().minimise(evaluated(linear), evaluated(curvature))

    def nonlinear(self, tag: str, function: Function, *rows: Tensor, **declared: Any) -> Any:
        values = [evaluated(value) for value in rows]
        if not declared.get("deterministic"):
            return super().nonlinear(tag, function, *values, **declared)
        is_plain = self.apply is HostedClients.apply and not declared.get("public")
        if is_plain and all(map(is_shared, values)):
            # Equal rows have equal results. A transcript keeps that of every client.
            once = super().nonlinear(tag, function, *(value[:1] for value in values), **declared)
            result = shared(once, len(values[0]))
        else:
            result = super().nonlinear(tag, function, *values, **declared)
        # As lazy rows: what is computed from one row stays one, with the same rounding for all.
        return Known(result, self.workspace)

    def encoded(self, tag: str, codec: Codec, rows: Tensor) -> CodedRows:
        return super().encoded(tag, codec, evaluated(rows))
