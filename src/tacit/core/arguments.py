"""What is asked of arguments before they are used: numbers, counts, objects that can do something."""

from __future__ import annotations

import math
from typing import Any, TypeGuard


def is_number(value: object) -> TypeGuard[float]:
    """A finite real number; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_count(value: object, least: int = 1) -> TypeGuard[int]:
    """A whole number of at least `least`; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def offers(value: Any, *methods: str) -> bool:
    """An object with these methods; the class of such objects is not one of them."""
    return not isinstance(value, type) and all(
        callable(getattr(value, method, None)) for method in methods
    )
