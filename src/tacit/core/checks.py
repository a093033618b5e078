"""Checks of arguments: each raises Misuse with the name, the value and the remedy."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping

# NumPy's numbers are registered with these.
from numbers import Integral, Real
from typing import Any, TypeGuard

from tacit.core.errors import Misuse


def is_number(value: object) -> TypeGuard[float]:
    """Whether this is a finite real number; True and False are not."""
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)


def is_count(value: object, at_least: int = 1) -> TypeGuard[int]:
    """Whether this is an integer of at least `at_least`; True and False are not."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= at_least


def check_number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    infinite: bool = False,
    example: float | None = None,
    hint: str = "",
) -> None:
    """Require a finite number within bounds.

    Args:
        name: What the number is called in the message.
        value: The number.
        above: The value must be greater than this.
        at_least: The value must not be less than this.
        below: The value must be less than this.
        at_most: The value must not be greater than this.
        infinite: Also accept `math.inf`.
        example: A good value, for the message.
        hint: What the number means, for the message.

    Raises:
        Misuse: The value is anything else.
    """
    number = is_number(value) or (infinite and isinstance(value, Real) and value == math.inf)
    bounds = []
    for words, bound, holds in (
        ("above", above, operator.gt),
        ("at least", at_least, operator.ge),
        ("below", below, operator.lt),
        ("at most", at_most, operator.le),
    ):
        if bound is not None:
            bounds.append(f"{words} {bound:g}")
            number = number and holds(value, bound)
    if number:
        return
    remedy = "Give a number" if infinite else "Give a finite number"
    if bounds:
        remedy += f"{' of' if bounds[0].startswith('at') else ''} {' and '.join(bounds)}"
    if example is not None:
        remedy += f", e.g. {example:g}"
    if hint:
        remedy += f" ({hint})"
    raise Misuse(f"{name} is {value!r}.", f"{remedy}.")


def check_positive(name: str, value: object, example: float | None = None) -> None:
    """Require a finite number above zero."""
    check_number(name, value, above=0, example=example)


def check_count(name: str, value: object, at_least: int = 1) -> None:
    """Require an integer of at least `at_least`."""
    if not is_count(value, at_least):
        raise Misuse(f"{name} is {value!r}.", f"Give a whole number of at least {at_least}.")


def check_flag(name: str, value: object) -> None:
    """Require True or False."""
    if not isinstance(value, bool):
        raise Misuse(f"{name} is {value!r}.", "Give True or False.")


def check_choice(name: str, value: object, options: Iterable[str] | Mapping[str, str]) -> None:
    """Require one of several strings; a mapping gives each its meaning, for the message."""
    notes = options if isinstance(options, Mapping) else dict.fromkeys(options, "")
    if not isinstance(value, str) or value not in notes:
        *first, last = (
            f'"{option}" ({note})' if note else f'"{option}"' for option, note in notes.items()
        )
        raise Misuse(f"{name} is {value!r}.", f"Choose {', '.join(first)} or {last}.")


def check_methods(name: str, value: object, *methods: str, remedy: str) -> None:
    """Require an object, not a class, with these methods."""
    complete = all(callable(getattr(value, method, None)) for method in methods)
    if isinstance(value, type) or not complete:
        raise Misuse(f"{name} is {value!r}.", remedy)
