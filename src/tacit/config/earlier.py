"""Keys as version 0.1 spelled them, in files that cannot be changed: manifests are signed."""

from __future__ import annotations

from typing import Any

Values = dict[str, Any]


def from_earlier(values: Values) -> Values:
    """The sections of a configuration with the keys of today; what is none of 0.1 stays.

    >>> from_earlier({"algorithm": {"clip": 0.5}, "privacy": {"epsilon": 3.0}})
    {'algorithm': {}, 'privacy': {'epsilon': 3.0, 'clip': 0.5}}
    """
    algorithm, privacy = values.get("algorithm"), values.get("privacy")
    if not isinstance(algorithm, dict):
        return values
    algorithm = {key: _schedule(value) for key, value in algorithm.items()}
    if isinstance(privacy, dict) and "clip" in algorithm and "clip" not in privacy:
        values = values | {"privacy": privacy | {"clip": algorithm.pop("clip")}}
    return values | {"algorithm": algorithm}


def _schedule(value: Any) -> Any:
    """A schedule whose times are in `steps` or in `epochs`; anything else as it is."""
    if not isinstance(value, dict) or "schedule" not in value:
        return value
    table = {key: _schedule(inner) for key, inner in value.items()}
    every, times = table.pop("every", None), "at" if "at" in table else "length"
    if times not in table:
        return table if every is None else table | {"steps": every}
    given = table.pop(times)
    if every is None:
        # They counted rounds.
        return table | {"epochs": given}
    if not isinstance(every, int):
        return value
    if isinstance(given, int | float):
        return table | {"steps": max(1, round(given * every))}
    whole = isinstance(given, list) and all(isinstance(time, int) for time in given)
    return table | {"steps": [time * every for time in given]} if whole else value
