"""The roster in a manifest: written as readable TOML, read and checked strictly."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tacit.core.errors import Misuse, unknown_name
from tacit.core.toml import to_toml
from tacit.peer.federation.certificates import OPERATOR

# The address of a member behind a firewall: it connects to relays, where others reach it.
OUTGOING = "outgoing"
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
NAME_REMEDY = "Use up to 32 lowercase letters, digits and hyphens, and no hyphen at the start."
HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
PORT = re.compile(r"[1-9][0-9]{0,4}")
MAX_NUMBER = 2**31  # of generations and members
MAX_CHARACTERS = 300  # of one text
REMEDY = "Get the manifest as it was signed from the operator."
TYPE_NAMES = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}
MEMBER = {"name": str, "address": str, "number": int, "since": int, "mask_key": str}


@dataclass(frozen=True)
class Member:
    """One node of a federation.

    Randomness is keyed by `number`, so it never changes and is never reused. The first members are
    numbered by position.
    """

    name: str
    address: str  # host:port, or OUTGOING
    number: int
    mask_key: bytes  # X25519 public key
    since: int  # generation of joining


def check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise Misuse(f"{name!r} cannot be the name of a node.", NAME_REMEDY)
    if name == OPERATOR:
        raise Misuse(f"The name {name!r} is reserved for the operator.", "Choose another name.")


def check_address(address: str) -> None:
    """Raise Misuse unless an address is host:port, or OUTGOING."""
    if address == OUTGOING:
        return
    check_host_and_port(address)


def check_host_and_port(address: str) -> None:
    host, _, port = address.rpartition(":")
    remedy = "Write host:port, e.g. a.example.org:7400, 192.0.2.7:7400 or [2001:db8::7]:7400."
    if not host:
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
            problem = f"The mask key of {member.name} does not have 32 bytes."
            raise Misuse(problem, "Give an X25519 public key.")
        if not 1 <= member.since <= generation:
            problem = f"{member.name} joined in generation {member.since}, this is {generation}."
            raise Misuse(problem, f"Give a generation from 1 to {generation}.")
    for what, values in {
        "name": [member.name for member in members],
        "address": [one.address.lower() for one in members if one.address != OUTGOING],
        "mask key": [member.mask_key.hex() for member in members],
    }.items():
        if (repeated := Counter(values).most_common(1)) and repeated[0][1] > 1:
            value = repeated[0][0]
            raise Misuse(f"Two nodes have the {what} {value}.", f"Give each node its own {what}.")
    numbers = [member.number for member in members]
    if numbers[0] < 0 or any(a >= b for a, b in pairwise([*numbers, next_number])):
        problem = f"The numbers of the members are {numbers}, and the next one is {next_number}."
        raise Misuse(problem, "Numbers count up from 0 and are never reused.")


def format_members(members: Iterable[Member]) -> str:
    """One table [[member]] per member."""
    tables = [
        {key: getattr(member, key) for key in MEMBER} | {"mask_key": member.mask_key.hex()}
        for member in members
    ]
    return "\n".join(f"[[member]]\n{format_keys(table)}" for table in tables)


def format_keys(values: dict[str, Any]) -> str:
    """Keys and values, one per line."""
    return to_toml({"": values}).split("\n", 1)[1]


def parse_member(table: Any) -> Member:
    """One member; `check_roster` checks its name, address and numbers."""
    name, address, number, since, key = read_table(table, MEMBER, "in [[member]]")
    try:
        return Member(name, address, number, bytes.fromhex(key), since)
    except ValueError:
        raise Misuse(f"mask_key = {key!r:.80} is not hexadecimal.", REMEDY) from None


def read_table(table: Any, types: dict[str, type], where: str) -> list[Any]:
    """The values of these keys; raise Misuse for other keys, types, or values out of range."""
    if not isinstance(table, dict):
        raise Misuse(f"There is no table {where}.", REMEDY)
    for key in table:
        if key not in types:
            raise unknown_name(f"there is no key {key!r} {where}.", key, types)
    for key, expected in types.items():
        value = table.get(key)
        if type(value) is not expected:
            raise Misuse(f"{key} = {value!r:.80} is not {TYPE_NAMES[expected]}.", REMEDY)
        if isinstance(value, int) and not 0 <= value < MAX_NUMBER:
            raise Misuse(f"{key} is out of range.", REMEDY)
        # Texts are printed to terminals, so they must not control them.
        if isinstance(value, str) and not (value.isprintable() and len(value) <= MAX_CHARACTERS):
            raise Misuse(f"{key} {where} is not a short line of text.", REMEDY)
    return [table[key] for key in types]
