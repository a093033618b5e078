"""Algorithms by name, with their options; and parts of them by name."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

from tacit.algorithms.algorithm import Algorithm, options_of
from tacit.algorithms.private_algorithm import misplaced_clip
from tacit.algorithms.registry import ALGORITHMS
from tacit.algorithms.solvers import SOLVERS, Solver
from tacit.compression import CODECS, Codec
from tacit.core.errors import Misuse, unknown_name
from tacit.core.noise import LAWS, Noise
from tacit.privacy.protection import PROTECTIONS, Protection
from tacit.tasks.task import Task

# The classes to choose from, by the type that an option is annotated with.
PARTS: dict[Any, Mapping[str, type[Any]]] = {
    Noise: LAWS,
    Codec: CODECS,
    Protection: PROTECTIONS,
    Solver: SOLVERS,
}


def as_algorithm(
    chosen: str | Algorithm, options: Mapping[str, Any], also: Iterable[str] = ()
) -> Algorithm:
    """An algorithm from its name and options; an object is returned as it is.

    Args:
        chosen: A name of `ALGORITHMS`, or an object.
        options: What the algorithm is made with. Parts that need nothing may be named, such as
            `codec="sign"`.
        also: What else the caller takes, for suggestions.

    Raises:
        Misuse: The name or an option is unknown, an option is missing, or options are given with
            an object.

    >>> as_algorithm("dsgt", {"lr": 0.1})
    DSGT(lr=0.1, momentum=0.0, nesterov=False, weight_decay=0.0, local_steps=1)
    """
    if not isinstance(chosen, str):
        if options and isinstance(chosen, Algorithm):
            kind = type(chosen).__name__
            given = ", ".join(f"{name}=…" for name in options)
            raise Misuse(
                f"{', '.join(options)}: options go with the name of an algorithm, and {kind} is an "
                "object.",
                f"Give them to the object: {kind}(…, {given}).",
            )
        if not isinstance(chosen, Algorithm):
            raise Misuse(
                f"algorithm is {chosen!r}.",
                'Give a name of tacit.ALGORITHMS with its options, such as "lppa" and lr=0.1, or '
                "an object, such as tacit.LPPA(lr=0.1).",
            )
        return chosen
    named = ALGORITHMS.find(chosen)
    check_options(chosen, named, options, also=also)
    hints = get_type_hints(named)
    made: Algorithm = named(
        **{name: _part(name, value, hints[name]) for name, value in options.items()}
    )
    return made


def check_options(
    name: str,
    kind: type[Any],
    options: Mapping[str, Any],
    key: str = "",
    also: Iterable[str] = (),
) -> None:
    """Require the options of an algorithm or of a part of one: none unknown, none missing.

    Args:
        name: What messages call it.
        kind: Its class.
        options: What is given.
        key: What stands before an option in messages, such as "algorithm.".
        also: What else the caller takes, for suggestions.
    """
    known = options_of(kind)
    for option in options:
        if option in known:
            continue
        if option == "clip" and getattr(kind, "keeps_guarantee", False):
            raise misplaced_clip(name, options[option])
        if reason := getattr(kind, "unsupported", {}).get(option):
            raise Misuse(
                f"{key}{option} is not an option of {name}: {reason}.",
                "Leave it out, or choose another algorithm: see docs/guides/optimizers.md.",
            )
        problem = f"{key}{option} is not an option of {name}."
        if not key and option in inspect.signature(Task).parameters:
            raise Misuse(problem, f"It is an argument of tacit.Task: Task(…, {option}=…).")
        raise unknown_name(problem, option, [*known, *also])
    for option, field in known.items():
        if option not in options and field.default is field.default_factory is MISSING:
            # As in a configuration or as in Python.
            example = f"{option} = 0.05" if key else f"{option}=0.05"
            raise Misuse(
                f"{name} needs {key}{option}, which is not set.", f"Add it, e.g. {example}."
            )


def _part(name: str, value: Any, hint: Any) -> Any:
    """The part of this name, if the option has parts to choose from; else the value itself."""
    if not isinstance(value, str) or hint not in PARTS:
        return value
    members = PARTS[hint]
    if value not in members:
        raise unknown_name(f"{name} is {value!r}.", value, members)
    kind = members[value]
    required = [
        each.name for each in fields(kind) if each.default is each.default_factory is MISSING
    ]
    if required:
        raise Misuse(
            f"{name} is {value!r}, which needs {', '.join(required)}.",
            f"Give an object: {name}=tacit.{kind.__name__}({required[0]}=…).",
        )
    return kind()
