"""The roster of a federation: its members, and checks of their names, addresses and numbers."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tacit.core.errors import Misuse
from tacit.peer.federation.certificates import OPERATOR

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
NAME_REMEDY = "Use up to 32 lowercase letters, digits and hyphens, and no hyphen at the start."
HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
PORT = re.compile(r"[1-9][0-9]{0,4}")


@dataclass(frozen=True)
class Member:
    """One node of a federation.

    Randomness is keyed by `number`, so it never changes and is never reused. The first members are
    numbered by position.
    """

    name: str
    address: str  # host:port
    number: int
    mask_key: bytes  # X25519 public key
    since: int  # generation of joining


def check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise Misuse(f"{name!r} cannot be the name of a node.", NAME_REMEDY)
    if name == OPERATOR:
        raise Misuse(
            f"The name {name!r} is reserved for the operator.", "Choose another name for the node."
        )


def check_address(address: str) -> None:
    """Raise Misuse unless an address is host:port."""
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
        raise Misuse(f"{address!r} has no valid host name before its port.", remedy)


def check_roster(members: Sequence[Member], generation: int, next_number: int) -> None:
    """Raise Misuse if members share a name, address, key or number, or a value is impossible."""
    if len(members) < 2:
        raise Misuse(
            f"A federation needs two or more nodes, not {len(members)}.", "Name two or more."
        )
    for member in members:
        check_name(member.name)
        check_address(member.address)
        if len(member.mask_key) != 32:
            raise Misuse(
                f"The mask key of {member.name} does not have 32 bytes.",
                "Give an X25519 public key.",
            )
        if not 1 <= member.since <= generation:
            raise Misuse(
                f"{member.name} joined in generation {member.since}, but this is {generation}.",
                f"Give a generation from 1 to {generation}.",
            )
    for what, values in {
        "name": [member.name for member in members],
        "address": [member.address.lower() for member in members],
        "mask key": [member.mask_key.hex() for member in members],
    }.items():
        value, count = Counter(values).most_common(1)[0]
        if count > 1:
            raise Misuse(f"Two nodes have the {what} {value}.", f"Give each node its own {what}.")
    numbers = [member.number for member in members]
    if numbers[0] < 0 or next_number <= numbers[-1] or any(a >= b for a, b in pairwise(numbers)):
        raise Misuse(
            f"The numbers of the members are {numbers}, and the next one is {next_number}.",
            "Numbers count up from 0 and are never reused.",
        )
