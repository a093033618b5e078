"""Overrides such as "algorithm.lr=0.05": one key each, in plain values of a configuration."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from tacit.config.kinds import SELECTORS, options_of_kind, options_of_member, selector_of
from tacit.core.errors import Misuse

Values = dict[str, Any]
Note = Callable[[str], None]


class Removed:
    """The value of an override that removes its key, such as "graph.degree="."""


REMOVED = Removed()


def parse_override(text: str) -> tuple[list[str], Any]:
    """Split "section.key=value" into path and value.

    A value that is not TOML is a string; without a value, it is REMOVED.
    """
    key, equals, value = text.partition("=")
    path = [part.strip() for part in key.split(".")]
    if not equals or not all(path):
        raise Misuse(
            f"{text!r} is not of the form key=value.",
            "E.g. run.seed=3 or algorithm.noise.scale=0.5; key= removes a key.",
        )
    if not value.strip():
        return path, REMOVED
    try:
        return path, tomllib.loads(f"value = {value}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return path, value.strip()


def apply_overrides(values: Values, overrides: Sequence[str], note: Note) -> Values:
    """Plain values with overrides; `note` is told of options that a changed kind drops.

    The options of the old kind are dropped that the new one does not have, except those that an
    override sets.
    """
    parsed = [(override, *parse_override(override)) for override in overrides]
    given = {tuple(path) for _, path, _ in parsed}
    values = deepcopy(values)
    for override, path, value in parsed:
        table = _table_of(values, override, path, value)
        if value is REMOVED:
            if path[-1] not in table:
                known = f"It has {', '.join(map(str, table))}." if table else "It has no keys."
                raise Misuse(f"The override {override!r} removes a key that is not set.", known)
            del table[path[-1]]
            continue
        old = table.get(path[-1])
        table[path[-1]] = value
        if not (isinstance(old, str) and isinstance(value, str) and old != value):
            continue
        for key in _dropped(path, old, value, table):
            if (*path[:-1], key) not in given:
                name = ".".join([*path[:-1], key])
                note(f"{name} = {table.pop(key)!r} is dropped: {value!r} has no such option.")
    return values


def _table_of(values: Values, override: str, path: list[str], value: Any) -> Values:
    if len(path) < 2 and value is not REMOVED and not isinstance(value, dict):
        raise Misuse(
            f"The override {override!r} names no section.",
            "Write section.key=value, e.g. run.seed=3.",
        )
    table = values
    for depth, key in enumerate(path[:-1]):
        # A name alone, such as codec = "qsgd", may get options.
        part = table.get(key) if path[0] == "algorithm" and depth == 1 else None
        if isinstance(part, str) and (selector := selector_of(table.get("name", ""), key)):
            table[key] = {selector: part}
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise Misuse(
                f"The override {override!r} sets a key of something that is no table.",
                "Check its path.",
            )
    return table


def _dropped(path: list[str], old: str, new: str, table: Values) -> list[str]:
    """Keys of a table that the old kind has as options and the new kind has not."""
    if len(path) == 2 and SELECTORS.get(path[0]) == path[1]:
        had, has = options_of_kind(path[0], old), options_of_kind(path[0], new)
    elif len(path) > 2:
        had, has = options_of_member(path[-1], old), options_of_member(path[-1], new)
    else:
        return []
    return [] if had is None or has is None else [key for key in table if key in had - has]
