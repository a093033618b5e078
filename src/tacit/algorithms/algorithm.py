"""What an algorithm is: a frozen dataclass of options with a `start` and a `step` over hosted rows."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, ClassVar, Protocol, get_type_hints

from torch import Tensor

from tacit.core.here import Here
from tacit.graph import Graph

S = Any  # each algorithm has its own state: a frozen dataclass of tensors, the first of them named `theta`


class Algorithm(Protocol):
    """A decentralized learning rule. All of it is here: no engine, no data, no network inside.

    `step` may write into tensors it received from `here` (they are its own), never into the state it was given; rows
    of that state that it needs no more it may call spent (`here.spent`, `here.grad(…, spent=…)`), to save memory.

    An algorithm may also have `local_steps` (gradients per step, if not one), `minimises` (whether it asks for exact
    minimisers), `needs_server` (whether it asks for `net.average`), `cautions(graph)` and `remarks(graph)` (sentences
    to warn with and to note) and `check_width(parameters)` (refuses models that do not fit its options).
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    requires: ClassVar[tuple[str, ...]]  # properties of the graph: see Graph.require
    protects: ClassVar[str]  # in plain words, for `tacit algorithms`

    def start(self, here: Here) -> S:
        """The state before the first iteration."""
        ...

    def step(self, s: S, here: Here) -> S:
        """One iteration: exchange, update, next state."""
        ...


def state_type(kind: type[Algorithm]) -> type[Any]:
    """The dataclass an algorithm keeps its state in, read off the annotation of `start`."""
    state = get_type_hints(kind.start).get("return")
    if not (isinstance(state, type) and is_dataclass(state)):
        raise TypeError(f"{kind.__name__}.start must be annotated with its state's dataclass.")
    return state


def tensors_of(state: S) -> dict[str, Tensor]:
    """The tensors of a state by field name."""
    return {field.name: getattr(state, field.name) for field in fields(state)}


def cautions(algorithm: Algorithm, graph: Graph) -> list[str]:
    """What a user should know before running an algorithm on a graph, where the algorithm has something to say."""
    said: list[str] = algorithm.cautions(graph) if hasattr(algorithm, "cautions") else []
    return said


def remarks(algorithm: Algorithm, graph: Graph) -> list[str]:
    """What theory says of an algorithm's options on a graph, where the algorithm computes it."""
    said: list[str] = algorithm.remarks(graph) if hasattr(algorithm, "remarks") else []
    return said


def refuse_width(algorithm: Algorithm, width: int) -> None:
    """Let an algorithm refuse models of `width` parameters that its options do not fit."""
    if hasattr(algorithm, "check_width"):
        algorithm.check_width(width)


def minimises(algorithm: Algorithm) -> bool:
    """Whether an algorithm asks for exact minimisers of local problems."""
    return bool(getattr(algorithm, "minimises", False))


def needs_server(algorithm: Algorithm | type[Algorithm]) -> bool:
    """Whether an algorithm only works with a server in the middle."""
    return bool(getattr(algorithm, "needs_server", False))


def gradients_per_step(algorithm: Algorithm) -> int:
    """How many gradients each client takes in one step: `local_steps` where an algorithm has them."""
    return int(getattr(algorithm, "local_steps", 1))
