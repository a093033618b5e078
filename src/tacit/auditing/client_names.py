"""Clients by name: in adversaries' texts, as victims and in sentences."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tacit.core.errors import unknown_name

# What an adversary's text names: the items of its brackets.
MEMBERS = re.compile(r"\(([^()]*)\)")


def client_position(text: str, names: Sequence[str]) -> int:
    """The position of a client by name or number; names come first."""
    if text in names:
        return list(names).index(text)
    if text.isdecimal() and int(text) < len(names):
        return int(text)
    raise unknown_name(f"{text!r} is not a client.", text, names)


def with_positions(text: str, names: Sequence[str]) -> str:
    """The text of an adversary with positions in place of names: "curious(a)" → "curious(0)".

    A coalition by number, such as "worst(2)", is left as it is.
    """
    if text.strip().startswith("worst"):
        return text

    def positions(found: re.Match[str]) -> str:
        items = (item.strip() for item in found[1].split(","))
        return f"({','.join(str(client_position(item, names)) for item in items if item)})"

    return MEMBERS.sub(positions, text)


def client_name(client: int, names: Sequence[str]) -> str:
    """The name of a client, or its number if clients have no names."""
    return names[client] if names else str(client)
