"""From plain configuration values to typed objects: algorithms and their parts, schedules, classes by dotted path."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from tacit.algorithms import ALGORITHMS
from tacit.algorithms.algorithm import Algorithm, state_type
from tacit.algorithms.solvers import SOLVERS, Solver
from tacit.compression import CODECS, Codec
from tacit.core.errors import Misuse, unknown
from tacit.core.noise import LAWS, Noise
from tacit.core.schedules import Constant, Cosine, Exponential, Inverse, Rate
from tacit.privacy.protection import PROTECTIONS, Protection

SCHEDULES: dict[str, type[Any]] = {
    "constant": Constant,
    "exponential": Exponential,
    "inverse": Inverse,
    "cosine": Cosine,
}


@dataclass(frozen=True)
class OptionFamily:
    """Parts of one sort to choose from: `chooser` is the key that names one in a table."""

    chooser: str
    what: str
    members: Mapping[str, type[Any]]
    example: str


# What an option is made of, by the type it is annotated with.
OPTION_FAMILIES: dict[Any, OptionFamily] = {
    Noise: OptionFamily("law", "noise law", LAWS, '{ law = "laplace", scale = 0.025 }'),
    Codec: OptionFamily("codec", "codec", CODECS, '{ codec = "rand-k", fraction = 0.4 }'),
    Protection: OptionFamily(
        "kind", "protection vector", PROTECTIONS, '{ kind = "norm", tau = 0.1 }'
    ),
    Solver: OptionFamily("solver", "local solver", SOLVERS, '{ solver = "quadratic", mu = 0.05 }'),
}


def make_algorithm(name: str, options: dict[str, Any], round_length: int, steps: int) -> Algorithm:
    """The algorithm `name` (registered, or "package.module:Class") with options as written in a configuration.

    A schedule that counts in `every` or `steps` and does not say so gets the length of a round or of the run.
    """
    kind = algorithm_class(name, "algorithm.name")
    hints = get_type_hints(kind)
    _check_names("algorithm", name, kind, options)
    values: dict[str, Any] = {}
    for option, value in options.items():
        key = f"algorithm.{option}"
        if hints[option] == Rate:
            # Step sizes decay by rounds unless they say otherwise; what else changes, by iterations.
            values[option] = make_rate(key, value, round_length if option == "lr" else 1, steps)
        else:
            values[option] = make_option(key, value, hints[option])
    with prefix_errors("[algorithm]"):
        return cast(Algorithm, kind(**values))


def algorithm_class(name: str, key: str) -> type[Any]:
    """The class of an algorithm, registered or the user's own; one that cannot work is refused."""
    if ":" not in name:
        with prefix_errors(key):
            return ALGORITHMS.find(name)
    kind = import_object(name, key)
    like = "Write it in the shape that CONTRIBUTING.md shows."
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise Misuse(f"{key} = {name!r} is not a dataclass.", like)
    lacking = [part for part in ("name", "requires", "start", "step") if not hasattr(kind, part)]
    if lacking:
        raise Misuse(f"{key} = {name!r} has no {', no '.join(lacking)}.", like)
    try:
        state_type(cast(type[Algorithm], kind))
    except NameError as problem:
        raise Misuse(
            f"{key} = {name!r} has an annotation that means nothing: {problem}.", like
        ) from None
    except TypeError:
        raise Misuse(
            f"{key} = {name!r} does not say what its state is.", f"Annotate start. {like}"
        ) from None
    return kind


def make_rate(key: str, value: Any, round_length: int, steps: int) -> Rate:
    """A number, or a table such as { schedule = "exponential", start = 0.02, decay = 0.95 }."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, dict) or "schedule" not in value:
        raise Misuse(
            f"{key} = {value!r} is not a step size.",
            'Give a number, or { schedule = "exponential", start = 0.02, decay = 0.95 }.',
        )
    name, options = _split(f"{key}.schedule", value, "schedule", SCHEDULES)
    kind = SCHEDULES[name]
    for implied, length in (("every", round_length), ("steps", steps)):
        if implied in (field.name for field in dataclasses.fields(kind)):
            options.setdefault(implied, length)
    return cast(Rate, _make(key, f"the {name} schedule", kind, options))


def make_option(key: str, value: Any, hint: Any) -> Any:
    """A value of the type that an option is annotated with: one of a family, a dataclass, or a plain value."""
    if hint in OPTION_FAMILIES:
        return make_member(key, value, OPTION_FAMILIES[hint])
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            example = ", ".join(f"{field.name} = …" for field in dataclasses.fields(hint)[:2])
            raise Misuse(f"{key} = {value!r} is not a table.", f"Give {{ {example} }}.")
        return _make(key, key, hint, value)
    return validate_value(key, value, hint)


def make_member(key: str, value: Any, family: OptionFamily) -> Any:
    """One of a family: a table such as { law = "laplace", scale = 0.025 }, or its name where that says it all."""
    table = {family.chooser: value} if isinstance(value, str) else value
    if not isinstance(table, dict) or family.chooser not in table:
        raise Misuse(f"{key} = {value!r} is not a {family.what}.", f"Give {family.example}.")
    name, options = _split(f"{key}.{family.chooser}", table, family.what, family.members)
    return _make(key, f"the {name} {family.what}", family.members[name], options)


def import_object(path: str, key: str) -> Any:
    """The object named "package.module:Name"."""
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as problem:  # an import runs the user's code, which may raise anything
        raise Misuse(
            f"{key} = {path!r} cannot be imported: {type(problem).__name__}: {problem}.",
            'Give "package.module:Name" of something on the Python path (PYTHONPATH=. for this folder).',
        ) from None


def validate_value(key: str, value: Any, hint: Any) -> Any:
    """A value of the type that an option is annotated with."""
    try:
        return TypeAdapter(hint, config={"strict": True}).validate_python(value)
    except ValidationError as problem:
        wanted = (
            f"one of {', '.join(map(repr, get_args(hint)))}" if get_origin(hint) is Literal else ""
        )
        message = f"{problem.errors()[0]['msg']}.".replace("Input", "It", 1)
        raise Misuse(
            f"{key} = {value!r} is not possible.", f"Choose {wanted}." if wanted else message
        ) from None


@contextmanager
def prefix_errors(where: str) -> Iterator[None]:
    """Put the place in the configuration before a refusal by something that knows of no configuration."""
    try:
        yield
    except Misuse as problem:
        raise Misuse(f"{where}: {problem.problem}", problem.remedy) from None


def _split(
    key: str, table: dict[str, Any], what: str, known: Mapping[str, Any]
) -> tuple[str, dict[str, Any]]:
    """The name in a table such as { schedule = "constant", start = 0.1 }, and the rest of it."""
    chooser = key.rsplit(".", 1)[1]
    name = table[chooser]
    if not isinstance(name, str) or name not in known:
        raise unknown(f"{key} = {name!r} is not a {what}.", name, known)
    return name, {option: value for option, value in table.items() if option != chooser}


def _make(key: str, what: str, kind: type[Any], options: dict[str, Any]) -> Any:
    """A dataclass of plain values from a table."""
    _check_names(key, what, kind, options)
    hints = get_type_hints(kind)
    values = {
        name: make_option(f"{key}.{name}", value, hints[name]) for name, value in options.items()
    }
    with prefix_errors(key):
        return kind(**values)


def _check_names(key: str, what: str, kind: type[Any], options: dict[str, Any]) -> None:
    """Refuse an option that a dataclass does not have, and the lack of one that it needs."""
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    for name in options:
        if name not in fields:
            raise unknown(f"{key}.{name} is not an option of {what}.", name, fields)
    for name, field in fields.items():
        required = (
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        )
        if required and name not in options:
            raise Misuse(
                f"{what} needs {key}.{name}, which is not set.", f"Add it, e.g. {name} = 0.05."
            )
