"""How many connections a node keeps open, and which it closes when there are more."""

from __future__ import annotations

import ipaddress
import sys
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

if sys.platform != "win32":
    import resource

FILES_PER_CONNECTION = 3  # the caller's socket, and both ends of the one to gRPC
# For checkpoints, data, the log, the monitoring server and the clients of neighbours.
RESERVED_FILES = 256
FILES_PER_MEMBER = 2
MOST_PENDING = 256
PER_CALLER = 16  # a neighbour uses two, and leaves them behind when its network breaks
FALLBACK_FILES = 1024

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits on open connections.

    Attributes:
        pending: Connections without an accepted call, in all.
        pending_per_address: Connections without an accepted call from one address.
        admitted: Connections of callers with a certificate of the federation, in all.
        admitted_per_caller: Connections of one such caller.
    """

    pending: int
    pending_per_address: int
    admitted: int
    admitted_per_caller: int = PER_CALLER

    @classmethod
    def for_files(cls, files: int, members: int) -> ConnectionLimits:
        """Limits that leave files for everything else a node of a federation does."""
        reserved = RESERVED_FILES + FILES_PER_MEMBER * members
        room = max(32, (files - reserved) // FILES_PER_CONNECTION)
        pending = min(MOST_PENDING, room // 2)
        return cls(pending, pending // 2, min(room - pending, PER_CALLER * (members + 2)))


class BoundedGroups(Generic[K]):
    """Items in groups. With too many in a group or in all, the oldest of a group has to go."""

    def __init__(self, per_group: int, in_all: int) -> None:
        self._per_group, self._in_all = per_group, in_all
        self._groups: dict[K, str] = {}  # in the order in which items were added
        self._sizes: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._groups)

    def __contains__(self, item: K) -> bool:
        return item in self._groups

    def add(self, item: K, group: str) -> K | None:
        """Add an item; return the one that was removed for it, if any.

        Beyond the limit in all that is the oldest item of the largest group, so that whoever has
        most items loses one.
        """
        self._groups[item] = group
        self._sizes[group] += 1
        if self._sizes[group] <= self._per_group:
            if len(self._groups) <= self._in_all:
                return None
            ((group, _),) = self._sizes.most_common(1)
        oldest = next(one for one, of in self._groups.items() if of == group)
        self.remove(oldest)
        return oldest

    def remove(self, item: K) -> None:
        """Remove an item, if it is there."""
        group = self._groups.pop(item, None)
        if group is not None:
            self._sizes[group] -= 1
            if not self._sizes[group]:
                del self._sizes[group]

    def items_of(self, group: str) -> list[K]:
        """The items of a group, oldest first."""
        return [item for item, of in self._groups.items() if of == group]

    def items(self) -> list[K]:
        """All items, oldest first."""
        return list(self._groups)


def address_group(host: str) -> str:
    """The addresses that count as one: an IPv4 address, or the /64 network of an IPv6 address."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((int(address), 64), strict=False))
    return str(address)


def raise_file_limit() -> int:
    """Raise the soft limit on open files to the hard one; return how many may be open."""
    if sys.platform == "win32":
        return FALLBACK_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):  # some systems refuse "unlimited"
        hard = soft
    return 1 << 20 if hard == resource.RLIM_INFINITY else hard
