"""Clients by name: in adversaries' texts, as victims and in sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tacit.core.checks import is_count
from tacit.core.errors import Misuse, unknown_name

# What an adversary's text names: the items of its brackets. Names with commas or brackets are in
# quotes.
MEMBERS = re.compile(r'\(((?:"[^"]*"|[^()"])*)\)')
ITEM = re.compile(r'"[^"]*"|[^,]+')
SPECIAL = re.compile(r'[,()"]')


def client_position(client: int | str, names: Sequence[str]) -> int:
    """The position of a client.

    A number is a position. A text is a name, or a position if no client has a number as its name.
    """
    if not isinstance(client, str):
        if is_count(client, 0) and client < len(names):
            return client
        raise Misuse(f"{client!r} is not a client.", f"Give a number below {len(names)} or a name.")
    if client in names:
        return list(names).index(client)
    is_position = client.isdecimal() and not any(name.isdecimal() for name in names)
    if is_position and int(client) < len(names):
        return int(client)
    raise unknown_name(f"{client!r} is not a client.", client, names)


def with_positions(text: str, names: Sequence[str]) -> str:
    """The text of an adversary with positions in place of names: "curious(a)" → "curious(0)".

    A coalition by number, such as "worst(2)", is left as it is.
    """
    if text.strip().startswith("worst"):
        return text

    def position(item: str) -> str:
        is_quoted = len(item) > 1 and item[0] == item[-1] == '"' and item not in names
        return str(client_position(item[1:-1] if is_quoted else item, names))

    def positions(found: re.Match[str]) -> str:
        items = (item.strip() for item in ITEM.findall(found[1]))
        return f"({','.join(position(item) for item in items if item)})"

    return MEMBERS.sub(positions, text)


def listed(clients: Iterable[int], names: Sequence[str]) -> str:
    """The names of clients between the brackets of an adversary's text."""
    every = (client_name(client, names) for client in clients)
    return ",".join(f'"{name}"' if SPECIAL.search(name) else name for name in every)


def client_name(client: int, names: Sequence[str]) -> str:
    """The name of a client, or its number if clients have no names."""
    return names[client] if names else str(client)
