"""What an algorithm is: a frozen dataclass of options with a `start` and a `step` over rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from typing import Any, ClassVar, get_type_hints

from torch import Tensor

from tacit.algorithms.tolerance import Tolerance
from tacit.core.errors import Misuse
from tacit.core.here import Here
from tacit.graph import Graph, World
from tacit.privacy.guarantee import Budget

# What W must be over time, not in every iteration of a changing world.
OVER_TIME = ("connected", "primitive")
# In the metadata of a field: it is computed for a run, not an option that users set.
COMPUTED = "computed"


class Algorithm(ABC):
    """A decentralized learning algorithm, written once for every engine.

    Subclasses are frozen dataclasses of options. Their state is a frozen dataclass of tensors, the
    first of which is `theta`, the models [n, P]; fields that its options do not need are None.
    `start` is annotated with that dataclass. Both methods only combine rows linearly and call
    `here`; they never write into a tensor.

    Attributes:
        name: Name in configurations and messages; required.
        paper: Where it was published.
        known_as: What the field calls it, in one line.
        requires: Properties that the graph must have: see `Graph.require`.
        protects: What it protects and how, in one line for `tacit algorithms`.
        needs_server: Whether it uses `net.average`, which needs a server.
        needs_total: Whether it uses `net.total`. All clients then have one model at all times, and
            must start from one.
        mixes: Whether it communicates by `net.mix`, which robust mixing can replace.
        exact_mixing: Why it needs exact weighted averages from `net.mix`, as the end of a sentence;
            empty if it does not. Robust mixing gives no such averages.
        tolerates: Whether the graph may change, clients may be absent and messages may be late, or
            why not.
        unsupported: Options of other algorithms that it does not have, each with the reason, as the
            end of a sentence.
        protecting_neighbours: How many neighbours a client needs to be protected from each of them.
        keeps_guarantee: Whether it can keep a promised guarantee: see `PrivateAlgorithm`.
    """

    name: ClassVar[str]
    paper: ClassVar[str] = ""
    known_as: ClassVar[str] = ""
    requires: ClassVar[tuple[str, ...]] = ()
    protects: ClassVar[str] = ""
    needs_server: ClassVar[bool] = False
    needs_total: ClassVar[bool] = False
    mixes: ClassVar[bool] = True
    exact_mixing: ClassVar[str] = ""
    tolerates: ClassVar[Tolerance] = Tolerance()
    unsupported: ClassVar[Mapping[str, str]] = {}
    protecting_neighbours: ClassVar[int] = 1
    keeps_guarantee: ClassVar[bool] = False

    @abstractmethod
    def start(self, here: Here) -> Any:
        """The state before the first iteration."""

    @abstractmethod
    def step(self, s: Any, here: Here) -> Any:
        """The state after one iteration: exchange messages, update."""

    @property
    def budget(self) -> Budget | None:
        """What a run spends of a promised guarantee; None without a promise to keep."""
        return None

    @property
    def gradients_per_step(self) -> int:
        """How many gradients each client computes in one step."""
        return 1

    @property
    def needs_minimiser(self) -> bool:
        """Whether it calls `here.minimise`, which only tasks with known minimisers offer."""
        return False

    @property
    def state_class(self) -> type[Any]:
        """The dataclass of its state."""
        return state_type(type(self))

    def check_graph(self, graph: Graph) -> None:
        """Raise `Misuse` if the graph does not have what the algorithm requires."""
        graph.require(*self.requires, by=self.name)

    def check_world(self, world: World) -> None:
        """Raise `Misuse` if the graph does not suit the algorithm, or it must not change so."""
        world.check()
        self.tolerates.check(self, world)
        self.check_graph(world.graph)
        if not world.is_static:
            for t in world.first_uses:
                self.check_moment(world.at(t).graph, t)

    def check_moment(self, graph: Graph, t: int) -> None:
        """Raise `Misuse` if the graph of iteration t of a changing world lacks what is required."""
        needed = [name for name in self.requires if name not in OVER_TIME]
        graph.require(*needed, by=f"{self.name} in iteration {t}")
        if set(OVER_TIME) & set(self.requires) and not (graph.weights.diagonal() > 0).all():
            raise Misuse(
                f"{self.name} on a graph that changes needs a positive weight of every client on "
                f"itself; {graph} in iteration {t} has none for some.",
                "Use lazy=True, which mixes with (I + W)/2.",
            )

    def audit_remarks(self, graph: Graph) -> list[str]:
        """Sentences that every audit of a run on this graph must show."""
        return []

    def cautions(self, graph: Graph) -> list[str]:
        """Sentences that warn a user before it runs on this graph."""
        return []

    def remarks(self, graph: Graph) -> list[str]:
        """Sentences on theoretical bounds on its options for this graph."""
        return []

    def check_width(self, width: int) -> None:  # noqa: B027
        """Raise `Misuse` if the options do not fit models of `width` parameters."""


def options_of(kind: type[Any]) -> dict[str, Field[Any]]:
    """The options of an algorithm, or of a part of one, that users set: its fields by name."""
    return {
        field.name: field for field in fields(kind) if field.init and COMPUTED not in field.metadata
    }


def state_type(kind: type[Algorithm]) -> type[Any]:
    """The dataclass of an algorithm's state, from the annotation of `start`."""
    state = get_type_hints(kind.start).get("return")
    if not (isinstance(state, type) and is_dataclass(state)):
        raise TypeError(f"{kind.__name__}.start must be annotated with its state's dataclass.")
    return state


def tensors_of(state: Any) -> dict[str, Tensor]:
    """The tensors of a state by field name."""
    values = {field.name: getattr(state, field.name) for field in fields(state)}
    return {name: rows for name, rows in values.items() if rows is not None}
