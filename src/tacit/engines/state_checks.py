"""Checks of what an algorithm returns, for authors of algorithms."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.core.errors import Misuse


def require_state(algorithm: str, method: str, state: Any) -> None:
    """Raise Misuse if `start` or `step` returned something that is no state."""
    if not is_dataclass(state) or isinstance(state, type):
        raise Misuse(
            f"{algorithm}.{method} returns {_named(state)}.",
            "Return the new state: a dataclass of tensors with a field theta.",
        )


def require_rows(
    algorithm: str, method: str, state: Any, clients: int, width: int, dtype: torch.dtype
) -> None:
    """Raise Misuse if a state's fields are no rows, or its models do not fit the task."""
    for field in fields(state):
        value = getattr(state, field.name)
        if value is not None and not (isinstance(value, Tensor) and value.ndim == 2):
            raise Misuse(
                f"{field.name} of the state that {algorithm}.{method} returns is {_named(value)}.",
                "Every field is a tensor with one row per client or per edge, or None.",
            )
    theta = getattr(state, "theta", None)
    if theta is None:
        raise Misuse(
            f"The state that {algorithm}.{method} returns has no theta.",
            "Name the models theta: one row per client.",
        )
    if tuple(theta.shape) != (clients, width) or theta.dtype != dtype:
        raise Misuse(
            f"theta of the state that {algorithm}.{method} returns is {_named(theta)}.",
            f"Return models [{clients}, {width}] of {_short(dtype)}, as here.theta0 is.",
        )


def _named(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)} of {_short(value.dtype)}"
    return "None" if value is None else f"a {type(value).__name__}"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
