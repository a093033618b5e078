"""From plain configuration values to typed objects: algorithms, their parts, step sizes."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from tacit.algorithms import ALGORITHMS
from tacit.algorithms.algorithm import Algorithm, options_of, state_type
from tacit.algorithms.named import PARTS, check_options
from tacit.algorithms.solvers import Solver
from tacit.compression import Codec
from tacit.core.errors import Misuse, prefix_errors, unknown_name
from tacit.core.noise import Noise
from tacit.core.schedules import (
    Constant,
    Cosine,
    Exponential,
    Inverse,
    MultiStep,
    Rate,
    Warmup,
    in_steps,
)
from tacit.privacy.protection import Protection


@dataclass(frozen=True)
class OptionFamily:
    """Classes to choose from; in a table, the key `selector` names the class."""

    selector: str
    noun: str
    members: Mapping[str, type[Any]]
    example: str


SCHEDULES = OptionFamily(
    "schedule",
    "schedule",
    {
        "constant": Constant,
        "exponential": Exponential,
        "inverse": Inverse,
        "cosine": Cosine,
        "multi-step": MultiStep,
        "warmup": Warmup,
    },
    '{ schedule = "exponential", start = 0.02, decay = 0.95 }',
)

# Keys of schedules before 0.2, and what to write.
OLD_TIMES = {
    "every": "steps, in iterations, or epochs",
    "at": "epochs, or steps, in iterations",
    "length": "epochs, or steps, in iterations",
}

# By the type that an option is annotated with.
OPTION_FAMILIES: dict[Any, OptionFamily] = {
    Noise: OptionFamily(
        "law", "noise distribution", PARTS[Noise], '{ law = "laplace", scale = 0.025 }'
    ),
    Codec: OptionFamily("codec", "codec", PARTS[Codec], '{ codec = "rand-k", fraction = 0.4 }'),
    Protection: OptionFamily(
        "kind", "protection vector", PARTS[Protection], '{ kind = "norm", tau = 0.1 }'
    ),
    Solver: OptionFamily(
        "solver", "local solver", PARTS[Solver], '{ solver = "quadratic", mu = 0.05 }'
    ),
}


def make_algorithm(name: str, options: dict[str, Any], round_length: int, steps: int) -> Algorithm:
    """Make an algorithm from options as written in a configuration.

    Schedules that set neither `epochs` nor `steps` get the length of a round or of the run.
    """
    kind = algorithm_class(name, "algorithm.name")
    hints = get_type_hints(kind)
    check_options(name, kind, options, "algorithm.")
    values: dict[str, Any] = {}
    for option, value in options.items():
        key = f"algorithm.{option}"
        if hints[option] == Rate:
            # Step sizes decay by rounds unless they say otherwise; other rates by iterations.
            period = round_length if option == "lr" else 1
            values[option] = make_rate(key, value, round_length, steps, period)
        else:
            values[option] = make_option(key, value, hints[option])
    with prefix_errors("[algorithm]"):
        return cast(Algorithm, kind(**values))


def algorithm_class(name: str, key: str) -> type[Any]:
    """The class of a registered algorithm, or of a user's own at "package.module:Class"."""
    if ":" not in name:
        with prefix_errors(key):
            return ALGORITHMS.find(name)
    kind = import_object(name, key)
    remedy = "Write it as docs/guides/own-algorithm.md shows."
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise Misuse(f"{key} = {name!r} is not a dataclass.", remedy)
    if not issubclass(kind, Algorithm):
        raise Misuse(f"{key} = {name!r} does not derive from tacit.algorithms.Algorithm.", remedy)
    missing = [] if hasattr(kind, "name") else ["name"]
    missing += sorted(kind.__abstractmethods__)
    if missing:
        raise Misuse(f"{key} = {name!r} has no {', no '.join(missing)}.", remedy)
    try:
        state_type(kind)
    except NameError as problem:
        raise Misuse(
            f"{key} = {name!r} has an annotation with an unknown name: {problem}.", remedy
        ) from None
    except TypeError:
        raise Misuse(
            f"{key} = {name!r} does not declare what its state is.", f"Annotate start. {remedy}"
        ) from None
    return kind


def make_rate(
    key: str, value: Any, round_length: int, steps: int, period: int | None = None
) -> Rate:
    """A number, or a schedule from a table with the key `schedule`.

    One that decreases again and again does so every `period` steps unless it says otherwise, by
    default once per round; a cosine takes the whole run.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, dict) or "schedule" not in value:
        raise Misuse(
            f"{key} = {value!r} is not a step size.", f"Give a number, or {SCHEDULES.example}."
        )
    kind = SCHEDULES.members.get(str(value["schedule"]))
    table: dict[str, Any] = dict(value)
    for old, new in OLD_TIMES.items():
        if old in table:
            raise Misuse(f"{key}.{old} = {table[old]!r} is an old spelling.", f"Set {key}.{new}.")
    if kind is not None and not table.keys() & {"steps", "epochs"}:
        lengths = {Exponential: period or round_length, Inverse: period or round_length}
        lengths[Cosine] = steps
        if kind in lengths:
            table["steps"] = lengths[kind]
    if kind is Warmup and "then" in table:
        # What follows has the rest of the run.
        first = in_steps(_make_member(key, table | {"then": 1.0}, SCHEDULES), round_length)
        rest = max(1, steps - first.steps)
        table["then"] = make_rate(f"{key}.then", table["then"], round_length, rest)
    return in_steps(cast(Rate, _make_member(key, table, SCHEDULES)), round_length)


def make_option(key: str, value: Any, hint: Any) -> Any:
    """A value of an option's annotated type: a member of a family, a dataclass or plain."""
    if hint in OPTION_FAMILIES:
        family = OPTION_FAMILIES[hint]
        # A name is enough if the class has defaults for everything.
        table = {family.selector: value} if isinstance(value, str) else value
        if not isinstance(table, dict) or family.selector not in table:
            raise Misuse(f"{key} = {value!r} is not a {family.noun}.", f"Give {family.example}.")
        return _make_member(key, table, family)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        if not isinstance(value, dict):
            example = ", ".join(f"{field.name} = …" for field in dataclasses.fields(hint)[:2])
            raise Misuse(f"{key} = {value!r} is not a table.", f"Give {{ {example} }}.")
        return _make_dataclass(key, key, hint, value)
    return validate_value(key, value, hint)


def import_object(path: str, key: str) -> Any:
    """The object at "package.module:Name"; `key` is what errors call it."""
    module, _, name = path.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except Exception as problem:  # an import runs the user's code, which may raise anything
        raise Misuse(
            f"{key} = {path!r} cannot be imported: {type(problem).__name__}: {problem}.",
            'Give "package.module:Name" of something on the Python path '
            "(PYTHONPATH=. for this folder).",
        ) from None


def validate_value(key: str, value: Any, hint: Any) -> Any:
    """Check a value strictly against a type; a list may stand for a tuple, as in files."""
    kinds = [get_origin(kind) for kind in (hint, *get_args(hint))]
    as_tuple = tuple in kinds and isinstance(value, list)
    try:
        adapter = TypeAdapter(hint, config={"strict": True})
        return adapter.validate_python(tuple(value) if as_tuple else value)
    except ValidationError as problem:
        remedy = f"{problem.errors()[0]['msg']}.".replace("Input", "It", 1)
        if get_origin(hint) is Literal:
            remedy = f"Choose one of {', '.join(map(repr, get_args(hint)))}."
        raise Misuse(f"{key} = {value!r} is not possible.", remedy) from None


def check_names(section: str, options: Iterable[str], known: Iterable[str], owner: str) -> None:
    """Raise Misuse for an option that `owner` does not have."""
    for name in options:
        if name not in known:
            raise unknown_name(f"{section}.{name} is not an option of {owner}.", name, known)


def _make_member(key: str, table: dict[str, Any], family: OptionFamily) -> Any:
    options = dict(table)
    name = options.pop(family.selector)
    if not isinstance(name, str) or name not in family.members:
        problem = f"{key}.{family.selector} = {name!r} is not a {family.noun}."
        raise unknown_name(problem, name, family.members)
    return _make_dataclass(key, f"the {name} {family.noun}", family.members[name], options)


def _make_dataclass(key: str, owner: str, kind: type[Any], options: dict[str, Any]) -> Any:
    _check_fields(key, owner, kind, options)
    hints = get_type_hints(kind)
    values = {
        name: make_option(f"{key}.{name}", value, hints[name]) for name, value in options.items()
    }
    with prefix_errors(key):
        return kind(**values)


def _check_fields(key: str, owner: str, kind: type[Any], options: dict[str, Any]) -> None:
    """Raise Misuse for options that a dataclass does not have or that are missing."""
    known, hints = options_of(kind), get_type_hints(kind)
    check_names(key, options, known, owner)
    for name, field in known.items():
        required = field.default is field.default_factory is dataclasses.MISSING
        if required and name not in options:
            example = "[10, 20]" if get_origin(hints[name]) is tuple else "0.05"
            raise Misuse(
                f"{owner} needs {key}.{name}, which is not set.",
                f"Add it, e.g. {name} = {example}.",
            )
