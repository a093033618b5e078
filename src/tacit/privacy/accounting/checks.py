"""Checks of the quantities of accounting."""

from __future__ import annotations

from tacit.core.checks import check_number


def check_epsilon(epsilon: float) -> None:
    check_number("epsilon", epsilon, at_least=0, hint="in nats")


def check_delta(delta: float) -> None:
    check_number("delta", delta, at_least=0, below=1, example=1e-5)


def check_ratio(name: str, ratio: float) -> None:
    hint = "sensitivity over noise scale; math.inf for no noise"
    check_number(name, ratio, at_least=0, infinite=True, hint=hint)
