"""From plain configuration values to typed objects: what has a name and options of its own."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from types import UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from torch import Tensor

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

T = TypeVar("T")


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
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if Tensor in kinds and len(kinds) > 1:
        # Files have lists in place of tensors.
        kinds = tuple(kind for kind in kinds if kind is not Tensor)
        hint = reduce(or_, kinds)
    as_tuple = isinstance(value, list) and tuple in [get_origin(kind) for kind in kinds]
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


def call_with_options(
    section: str, owner: str, make: Callable[..., T], options: Mapping[str, Any], **given: Any
) -> T:
    """Call what a section names with the options in it.

    Args:
        section: The name of the section.
        owner: What errors call that which is named, such as "kind 'ring'".
        make: The function, whose annotations say what values are possible.
        options: The keys of the section. The number of clients is called `clients`, also where the
            parameter is `n`.
        given: Arguments that are not the section's; those that the function has not are left out.

    Raises:
        Misuse: An option is unknown, missing or of another type, or the function refuses it.
    """
    hints, arguments, parameters = get_type_hints(make), {}, {}
    for name, parameter in inspect.signature(make).parameters.items():
        if name in given:
            arguments[name] = given[name]
        else:
            parameters["clients" if name == "n" else name] = parameter
    check_names(section, options, parameters, owner)
    for key, parameter in parameters.items():
        if key in options:
            value = validate_value(f"{section}.{key}", options[key], hints[parameter.name])
            arguments[parameter.name] = value
        elif parameter.default is inspect.Parameter.empty:
            raise Misuse(f"{owner} needs {section}.{key}.", f"Set {key} in [{section}].")
    with prefix_errors(f"[{section}]"):
        return make(**arguments)


def _make_member(key: str, table: dict[str, Any], family: OptionFamily) -> Any:
    options = dict(table)
    name = options.pop(family.selector)
    if not isinstance(name, str) or name not in family.members:
        problem = f"{key}.{family.selector} = {name!r} is not a {family.noun}."
        raise unknown_name(problem, name, family.members)
    return _make_dataclass(key, f"the {name} {family.noun}", family.members[name], options)


def _make_dataclass(key: str, owner: str, kind: type[Any], options: dict[str, Any]) -> Any:
    check_options(owner, kind, options, f"{key}.")
    hints = get_type_hints(kind)
    values = {
        name: make_option(f"{key}.{name}", value, hints[name]) for name, value in options.items()
    }
    with prefix_errors(key):
        return kind(**values)
