"""Writing TOML, which the standard library only reads; and its tables as flat dictionaries."""

from __future__ import annotations

import json
from typing import Any


def to_toml(sections: dict[str, dict[str, Any]]) -> str:
    """The text of sections whose values are numbers, booleans, strings, lists or tables."""
    blocks = []
    for name, values in sections.items():
        lines = [f"[{name}]", *(f"{_key(key)} = {_value(value)}" for key, value in values.items())]
        blocks.append("\n".join(lines) + "\n")
    return "\n".join(blocks)


def flatten(tables: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of nested tables by their keys; an empty table is a value.

    >>> flatten({"algorithm": {"name": "a", "noise": {"scale": 0.1}}})
    {'algorithm.name': 'a', 'algorithm.noise.scale': 0.1}
    """
    flat: dict[str, Any] = {}
    for key, value in tables.items():
        nested = isinstance(value, dict) and bool(value)
        flat |= flatten(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat


def _value(value: Any) -> str:
    if isinstance(value, bool | str):
        return _as_json(value)
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(k)} = {_value(v)}" for k, v in value.items()) + " }"
    raise TypeError(f"{value!r} has no TOML form")


def _key(key: str) -> str:
    bare = key and all(c.isascii() and (c.isalnum() or c in "-_") for c in key)
    return key if bare else _as_json(key)


def _as_json(value: bool | str) -> str:
    # TOML has the escapes of JSON, and also requires one for DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
