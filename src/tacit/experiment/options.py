"""From plain configuration values to typed objects: algorithms, schedules, noise laws, classes by dotted path."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from tacit.algorithms import algorithm_class
from tacit.algorithms.algorithm import Algorithm
from tacit.errors import Misuse, unknown
from tacit.privacy.noise import LAWS, Noise
from tacit.schedules import Constant, Cosine, Exponential, Inverse, Rate

SCHEDULES: dict[str, Callable[..., Any]] = {
    "constant": Constant,
    "exponential": Exponential,
    "inverse": Inverse,
    "cosine": Cosine,
}


def make_algorithm(name: str, options: dict[str, Any], round_length: int, steps: int) -> Algorithm:
    """The algorithm `name` (registered, or "package.module:Class") with options as written in a configuration.

    A schedule that counts in `every` or `steps` and does not say so gets the length of a round or of the run.
    """
    kind = by_path(name, "algorithm.name") if ":" in name else algorithm_class(name)
    if not dataclasses.is_dataclass(kind):
        raise Misuse(f"algorithm.name = {name!r} is not a dataclass.", "See CONTRIBUTING.md for the shape.")
    fields = {field.name: field for field in dataclasses.fields(kind)}
    hints = get_type_hints(kind)
    values: dict[str, Any] = {}
    for key, value in options.items():
        if key not in fields:
            raise unknown(f"algorithm.{key} is not an option of {name}.", key, fields)
        if hints[key] == Rate:
            values[key] = make_rate(f"algorithm.{key}", value, round_length, steps)
        elif hints[key] == Noise:
            values[key] = make_noise(f"algorithm.{key}", value)
        else:
            values[key] = _typed(f"algorithm.{key}", value, hints[key])
    for key, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and key not in values:
            raise Misuse(f"{name} needs algorithm.{key}, which is not set.", f"Add it, e.g. {key} = 0.05.")
    return cast(Algorithm, kind(**values))


def make_rate(key: str, value: Any, round_length: int, steps: int) -> Rate:
    """A number, or a table such as { schedule = "exponential", start = 0.02, decay = 0.95 }."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, dict) or "schedule" not in value:
        raise Misuse(
            f"{key} = {value!r} is not a step size.",
            'Give a number, or { schedule = "exponential", start = 0.02, decay = 0.95 }.',
        )
    options = {name: item for name, item in value.items() if name != "schedule"}
    name = value["schedule"]
    if name not in SCHEDULES:
        raise unknown(f"{key}.schedule = {name!r} is not a schedule.", name, SCHEDULES)
    kind = SCHEDULES[name]
    known = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    for given in options:
        if given not in known:
            raise unknown(f"{key}.{given} is not an option of the {name} schedule.", given, known)
    for implied, length in (("every", round_length), ("steps", steps)):
        if implied in known:
            options.setdefault(implied, length)
    try:
        schedule: Rate = kind(**options)
    except TypeError as problem:
        raise Misuse(
            f"{key} is incomplete: {problem}.", f"A {name} schedule has: {', '.join(known)}."
        ) from None
    return schedule


def make_noise(key: str, value: Any) -> Noise:
    """A table such as { law = "laplace", scale = 0.025 }."""
    if not isinstance(value, dict) or set(value) != {"law", "scale"}:
        raise Misuse(f"{key} = {value!r} is not a noise law.", 'Give { law = "laplace", scale = 0.025 }.')
    if value["law"] not in LAWS:
        raise unknown(f"{key}.law = {value['law']!r} is not a noise law.", value["law"], LAWS)
    return LAWS[value["law"]](value["scale"])


def by_path(path: str, key: str) -> Any:
    """The object named "package.module:Name"."""
    module, _, name = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as problem:
        raise Misuse(
            f"{key} = {path!r} cannot be imported: {problem}.",
            'Give "package.module:Name" of something on the Python path.',
        ) from None
    return found


def _typed(key: str, value: Any, hint: Any) -> Any:
    try:
        return TypeAdapter(hint, config={"strict": True}).validate_python(value)
    except ValidationError as problem:
        wanted = f"one of {', '.join(map(repr, get_args(hint)))}" if get_origin(hint) is Literal else ""
        raise Misuse(
            f"{key} = {value!r} is not possible.",
            f"Choose {wanted}." if wanted else f"{problem.errors()[0]['msg']}.",
        ) from None
