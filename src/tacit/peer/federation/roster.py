"""Members of a federation: their names, addresses and numbers, and what is refused of them."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tacit.core.errors import Misuse
from tacit.peer.federation.identity import OPERATOR

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
FEDERATION = re.compile(r"[a-z0-9][a-z0-9-]{0,31}-[0-9a-f]{8}")
HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
PORT = re.compile(r"[1-9][0-9]{0,4}")
DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Member:
    """One node of a federation."""

    name: str
    address: str  # host:port
    number: (
        int  # permanent and never used again, as randomness is keyed by it; at first the position
    )
    mask_key: bytes  # X25519 public key
    since: int  # generation of joining


def check_name(name: str) -> str:
    """A node's name, refused when it cannot be one."""
    if not NAME.fullmatch(name):
        raise Misuse(
            f"{name!r} cannot be the name of a node.",
            "Use up to 32 lowercase letters, digits and hyphens, not beginning with a hyphen.",
        )
    if name == OPERATOR:
        raise Misuse(
            f"{name!r} is the name of who signs the roster.", "Choose another name for the node."
        )
    return name


def check_address(address: str) -> str:
    """An address host:port, refused when nobody could be reached there."""
    host, colon, port = address.rpartition(":")
    remedy = "Write host:port, e.g. a.example.org:7400, 192.0.2.7:7400 or [2001:db8::7]:7400."
    if not colon or not host:
        raise Misuse(f"{address!r} is not an address.", remedy)
    if not PORT.fullmatch(port) or int(port) > 65_535:
        raise Misuse(f"{address!r} has no port from 1 to 65535.", remedy)
    if host.startswith("[") and host.endswith("]"):
        try:
            ipaddress.IPv6Address(host[1:-1])
        except ValueError:
            raise Misuse(f"{address!r} has no IPv6 address in its brackets.", remedy) from None
    elif not HOST.fullmatch(host):
        raise Misuse(f"{address!r} has no name of a host before its port.", remedy)
    return address


def next_number(members: Iterable[Member]) -> int:
    """The first number above all of them."""
    return max((member.number for member in members), default=-1) + 1


def check_roster(
    federation: str, generation: int, previous: str, members: Sequence[Member], numbers: int
) -> None:
    """Refuse members that cannot be told apart, or an order of events that cannot have been."""
    if not FEDERATION.fullmatch(federation):
        raise Misuse(
            f"federation = {federation!r} is not its name and 8 hexadecimal digits.", "See create."
        )
    if (
        generation < 1
        or (previous != "") != (generation > 1)
        or (previous and not DIGEST.fullmatch(previous))
    ):
        raise Misuse(
            f"generation = {generation} does not go with previous = {previous!r}.",
            "The first generation is 1 and has none before it; the others name the one before by its SHA-256.",
        )
    if len(members) < 2:
        raise Misuse(
            f"A federation of {len(members)} nodes cannot learn together.", "Name two or more."
        )
    for member in members:
        check_name(member.name)
        check_address(member.address)
        if len(member.mask_key) != 32:
            raise Misuse(
                f"The mask key of {member.name} is not of 32 bytes.", "Give an X25519 public key."
            )
        if not 1 <= member.since <= generation:
            raise Misuse(
                f"{member.name} is there since generation {member.since}, and this is {generation}.",
                "Correct it.",
            )
    for what, values in {
        "name": [member.name for member in members],
        "address": [member.address.lower() for member in members],
        "mask key": [member.mask_key.hex() for member in members],
    }.items():
        value, times = Counter(values).most_common(1)[0]
        if times > 1:
            raise Misuse(f"Two nodes have the {what} {value}.", f"Give each a {what} of its own.")
    given = [member.number for member in members]
    if given[0] < 0 or numbers <= given[-1] or any(a >= b for a, b in pairwise(given)):
        raise Misuse(
            f"The numbers of the members are {given}, of {numbers} given out.",
            "They are counted up from 0 and never used again.",
        )
