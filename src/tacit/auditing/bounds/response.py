"""The bound from budgets that non-linear steps declare, such as randomized response."""

from __future__ import annotations

from tacit.auditing.bounds.added_noise import Bound
from tacit.privacy.accounting.randomized_response import (
    response_epsilon,
    response_method,
    response_pure_epsilon,
)

DECLARED = "Each non-linear step is as private as the algorithm declares; that is not checked."


def response_bound(budgets: list[float], parameters: int, delta: float) -> Bound:
    """The bound for results with these ε per coordinate.

    Args:
        budgets: ε of one coordinate of each result.
        parameters: The number of coordinates.
        delta: δ of the bound, where it is not pure.
    """
    largest, count = max(budgets), len(budgets)
    uses = count * parameters
    pure = response_pure_epsilon(largest, parameters, count)
    epsilon = response_epsilon(delta, largest, uses)
    why = (
        f"randomized response with ε = {largest:g} per coordinate, {parameters:,} coordinates, "
        f"{count} times: pure ε = {pure:.4g}"
    )
    if epsilon >= pure:
        return Bound(pure, 0.0, why, (DECLARED,))
    return Bound(epsilon, delta, f"{why}; with δ by {response_method(uses)}", (DECLARED,))
