"""Which clients take part in an iteration, and how late messages arrive."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.core.checks import check_count, check_number, is_count
from tacit.core.errors import Misuse
from tacit.graph.edges import Edges

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Absence:
    """A client that drops out and returns.

    Attributes:
        client: Its number.
        first: The first iteration that it misses, counted from 0.
        last: The last one; None if it never returns.
    """

    client: int
    first: int = 0
    last: int | None = None

    def __post_init__(self) -> None:
        check_count("The client of an absence", self.client, at_least=0)
        check_count("The first iteration of an absence", self.first, at_least=0)
        if self.last is not None and not is_count(self.last, self.first):
            raise Misuse(
                f"An absence lasts from iteration {self.first} to {self.last!r}.",
                "Give a last iteration that is not before the first, or none.",
            )

    def covers(self, t: int) -> bool:
        return self.first <= t and (self.last is None or t <= self.last)


@dataclass(frozen=True)
class Participation:
    """Partial participation, clients that drop out and return, and late messages.

    Everything random is keyed by the seed of the run. A client that does not take part sends and
    receives nothing and keeps its state. The edges between the others get new weights.

    Args:
        share: The share of the clients that take part in an iteration, drawn anew each time.
        absences: Clients that drop out.
        delay: Messages arrive up to this many iterations late, drawn for each edge and iteration.
            Most algorithms use the row that a neighbour sent so long ago, again or never; those
            that need sums, such as push-sum, use each message once, when it arrives.
        stragglers: Only messages of these clients are late; None: those of all clients.

    >>> int(Participation(share=0.5).present(3, seed=0, clients=6).sum())
    3
    """

    share: float = 1.0
    absences: tuple[Absence, ...] = ()
    delay: int = 0
    stragglers: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check_number("share", self.share, above=0, at_most=1, example=0.5)
        check_count("delay", self.delay, at_least=0)
        object.__setattr__(self, "absences", tuple(self.absences))
        if not all(isinstance(absence, Absence) for absence in self.absences):
            raise Misuse(
                f"absences is {self.absences!r}.",
                "Give e.g. [tacit.Absence(client=3, first=10, last=20)].",
            )
        if self.stragglers is not None:
            object.__setattr__(self, "stragglers", tuple(self.stragglers))
            for client in self.stragglers:
                check_count("A straggler", client, at_least=0)
            if not self.delay:
                raise Misuse("Stragglers need a delay.", "Give it too, e.g. delay = 3.")
        if self.delay and self.has_absent_clients:
            raise Misuse(
                "Late messages do not go with clients that are absent: which message of an absent "
                "client its neighbours use is not defined.",
                "Give a delay, or a share and absences.",
            )

    def __str__(self) -> str:
        parts = []
        if self.share < 1:
            parts.append(f"{self.share:.4g} of the clients take part in an iteration")
        if self.absences:
            clients = sorted({absence.client for absence in self.absences})
            parts.append(f"{_names(clients)} absent for some iterations")
        if self.delay:
            of = "" if self.stragglers is None else f" of {_names(self.stragglers)}"
            parts.append(f"messages{of} arrive up to {self.delay} iterations late")
        return "; ".join(parts) or "all clients take part in every iteration"

    @property
    def has_absent_clients(self) -> bool:
        """Whether some clients do not take part in some iterations."""
        return self.share < 1 or bool(self.absences)

    def check_clients(self, clients: int) -> None:
        """Raise Misuse if it names a client that does not exist."""
        named = [absence.client for absence in self.absences] + list(self.stragglers or ())
        if wrong := [client for client in named if client >= clients]:
            raise Misuse(
                f"Participation names client {wrong[0]}, but there are {clients} clients.",
                f"Name clients from 0 to {clients - 1}.",
            )

    def present(self, t: int, seed: int, clients: int) -> Flags:
        """Which clients take part in iteration t, [N]: at least one if any can."""
        present = np.ones(clients, dtype=np.bool_)
        present[[absence.client for absence in self.absences if absence.covers(t)]] = False
        able = np.flatnonzero(present)
        if self.share == 1 or not len(able):
            return present
        count = max(1, round(self.share * len(able)))
        order = np.argsort(random_words(seed, t, "participation", len(able)), kind="stable")
        present[able[order[count:]]] = False
        return present

    def delays(self, t: int, seed: int, edges: Edges) -> npt.NDArray[np.int64]:
        """How many iterations ago the messages were sent that are used in iteration t, [E].

        In the first iterations no message is older than the first.
        """
        return np.minimum(self._drawn(t, seed, edges), t)

    def arriving(self, t: int, seed: int, edges: Edges) -> tuple[Flags, ...]:
        """Which messages of d = 0, 1, … iterations ago arrive in iteration t, [E] each.

        Each message has a delay of its own and arrives once. In one iteration several messages may
        arrive over an edge, or none.
        """
        ages = range(min(self.delay, t) + 1)
        return tuple(self._drawn(t - age, seed, edges) == age for age in ages)

    def _drawn(self, t: int, seed: int, edges: Edges) -> npt.NDArray[np.int64]:
        words = random_words(seed, t, "delay", len(edges))
        delays = (words % np.uint64(self.delay + 1)).astype(np.int64)
        if self.stragglers is not None:
            delays[~np.isin(edges[:, 0], self.stragglers)] = 0
        return delays


def _names(clients: Sequence[int]) -> str:
    return f"client{'' if len(clients) == 1 else 's'} {', '.join(map(str, clients))}"


def random_words(seed: int, t: int, purpose: str, count: int) -> npt.NDArray[np.uint64]:
    """Uniform 64-bit words [count], the same for the same arguments on every machine."""
    key = hashlib.sha256(f"{purpose}/{seed}/{t}".encode()).digest()[:16]
    words = np.random.Philox(key=np.frombuffer(key, dtype="<u8")).random_raw(count)
    return np.asarray(words, dtype=np.uint64).reshape(count)
