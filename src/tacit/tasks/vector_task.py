"""Tasks that minimise any differentiable loss of a vector."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tacit.core.errors import Misuse
from tacit.tasks.evaluation import LocalLoss
from tacit.tasks.flat import Loss
from tacit.tasks.objective import Objective
from tacit.tasks.parts import Part, Parts, as_parts, disclosure_of

THETA0 = "Give a vector [P], or one row per client [N, P]."


def vector_task(
    theta0: Any, clients: Sequence[Any], loss: Callable[..., Tensor], batch_size: int | None = None
) -> Objective:
    """The task of minimising the sum of `loss(theta, *arrays)` from `theta0`; see `Task`."""
    given: Any = loss
    if not callable(given):
        problem = f"loss is a {type(given).__name__}."
        raise Misuse(problem, "Give a function of theta and a client's arrays.")
    held = as_parts(clients)
    start = _start(theta0, len(held))

    def initial(seed: int, clients: Sequence[int]) -> Tensor:
        return start.repeat(len(clients), 1) if start.ndim == 1 else start[list(clients)]

    whole = _takes_whole_part(loss, held[0])
    of_arrays: Loss = (lambda theta, *part: loss(theta, part)) if whole else loss
    data = held if batch_size is None else Parts.concatenate(held)
    return Objective(
        of_arrays,
        data,
        batch_size,
        initial,
        start.shape[-1],
        start.dtype,
        LocalLoss(of_arrays, data),
        disclosure=disclosure_of(held),
    ).checked()


def _start(theta0: Any, clients: int) -> Tensor:
    """The first models, [P] or [N, P]."""
    try:
        start = torch.as_tensor(theta0).detach().clone()
    except (TypeError, ValueError, RuntimeError):
        raise Misuse(f"theta0 is a {type(theta0).__name__}.", THETA0) from None
    if start.ndim not in (1, 2) or (start.ndim == 2 and len(start) != clients):
        raise Misuse(f"theta0 has shape {tuple(start.shape)} for {clients} clients.", THETA0)
    if start.dtype not in (torch.float32, torch.float64):
        raise Misuse(
            f"theta0 has type {start.dtype}.",
            "Give floating-point numbers: float32 or float64.",
        )
    return start


def _takes_whole_part(loss: Loss, part: Part) -> bool:
    """Whether a loss is written `loss(theta, part)` for a part of several arrays."""
    if len(part) == 1:
        return False
    try:
        signature = inspect.signature(loss)
    except (TypeError, ValueError):
        return False
    kinds = [p.kind for p in signature.parameters.values() if p.kind is not p.KEYWORD_ONLY]
    return len(kinds) == 2 and inspect.Parameter.VAR_POSITIONAL not in kinds
