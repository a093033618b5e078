"""Losses: of each number or sample, then the mean or the sum in each row."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from tacit.gradients.stacked import Rule, Stacked, aligned, first_stacked, rows_of

REDUCTIONS = ("mean", "sum", "none")
# Classes below which torch's loops for a CPU take several times as long as a few operations.
FEW = 16


class _OfFewClasses(torch.autograd.Function):
    """The mean cross-entropy of each of n batches, from scores x [n, B, C] and classes y [n, B].

    ℓ = log Σ_c exp(x_c) − x_y, with the gradient softmax(x) − onehot(y). The mean is over samples
    whose class is not `ignored`; as in torch, it is NaN with the gradient 0 if there are none. The
    gradient is computed at once, while all is in the caches.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, ignored: int) -> Tensor:
        # In one order: sums over the classes of a sample then do not depend on its place.
        x, counted = x.contiguous(), y != ignored
        counts = counted.sum(1)
        weights = (counted.to(x.dtype) / counts.clamp(min=1)[:, None])[:, :, None]
        own = torch.where(counted, y, 0)[:, :, None]
        scores = x - x.amax(2, keepdim=True)
        of_own = scores.gather(2, own)
        shares = scores.exp_()
        totals = shares.sum(2, keepdim=True)
        gradient = shares.mul_(weights / totals).scatter_add_(2, own, -weights)
        ctx.save_for_backward(gradient)
        losses = torch.where(counted, totals.log_().sub_(of_own)[:, :, 0], 0)
        return losses.sum(1) / counts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return gradient * gradients[0][:, None, None], None, None


def _has_few_classes(x: Tensor, y: Tensor) -> bool:
    """Whether batches of scores [n, B, C] with classes [n, B] are on a CPU and have few classes."""
    floats = x.dtype in (torch.float32, torch.float64) and y.dtype == torch.int64
    return floats and x.is_cpu and x.ndim == 3 and x.shape[2] < FEW and y.shape == x.shape[:2]


def _cross_entropy(
    input: Tensor, target: Tensor, weight: Any = None, size_average: Any = None,
    ignore_index: int = -100, reduce: Any = None, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Any:  # fmt: skip
    old = size_average is not None or reduce is not None
    if weight is not None or old or reduction not in REDUCTIONS:
        return NotImplemented
    some = first_stacked(input, target)
    x, y = rows_of(input, some.stack), rows_of(target, some.stack)
    batches = (x, y) if input.dim() == 2 else (x[:, None], y[:, None])
    if reduction == "mean" and not label_smoothing and _has_few_classes(*batches):
        return some.like(_OfFewClasses.apply(*batches, ignore_index))  # type: ignore[no-untyped-call]
    classes = not y.is_floating_point()
    options: dict[str, Any] = {"reduction": "none", "label_smoothing": label_smoothing}
    if classes:
        options["ignore_index"] = ignore_index
    if input.dim() == 1:
        losses = functional.cross_entropy(x, y, **options)
    else:
        losses = functional.cross_entropy(x.flatten(0, 1), y.flatten(0, 1), **options)
        losses = losses.unflatten(0, x.shape[:2])  # type: ignore[no-untyped-call]
    if classes and reduction == "mean":
        counted = (y != ignore_index).flatten(1).sum(1) if y.ndim > 1 else y != ignore_index
        total = losses.flatten(1).sum(1) if losses.ndim > 1 else losses
        return some.like(total / counted)
    return some.like(_reduced(losses, reduction))


def _nll_loss(
    input: Tensor, target: Tensor, weight: Any = None, size_average: Any = None,
    ignore_index: int = -100, reduce: Any = None, reduction: str = "mean",
) -> Any:  # fmt: skip
    old = size_average is not None or reduce is not None
    if weight is not None or old or reduction not in REDUCTIONS or input.dim() < 2:
        return NotImplemented
    some = first_stacked(input, target)
    x, y = rows_of(input, some.stack), rows_of(target, some.stack)
    losses = functional.nll_loss(
        x.flatten(0, 1), y.flatten(0, 1), ignore_index=ignore_index, reduction="none"
    ).unflatten(0, x.shape[:2])  # type: ignore[no-untyped-call]
    if reduction == "mean":
        counted = (y != ignore_index).flatten(1).sum(1)
        return some.like(losses.flatten(1).sum(1) / counted)
    return some.like(_reduced(losses, reduction))


def _pointwise(
    func: Callable[..., Tensor], input: Tensor, target: Tensor, *args: Any, **kwargs: Any
) -> Any:
    """Losses of pairs of numbers; their options are given by name."""
    reduction = kwargs.pop("reduction", "mean")
    old = kwargs.get("size_average") is not None or kwargs.get("reduce") is not None
    # With weights, the mean of some losses is over the sum of the weights.
    weighted = kwargs.get("weight") is not None
    if args or old or weighted or input.shape != target.shape or reduction not in REDUCTIONS:
        return NotImplemented
    some = first_stacked(input, target, *kwargs.values())
    ndim = input.dim()
    options = {k: aligned(v, ndim) if isinstance(v, Stacked) else v for k, v in kwargs.items()}
    pair = (rows_of(x, some.stack) for x in (input, target))
    return some.like(_reduced(func(*pair, **options, reduction="none"), reduction))


def _reduced(losses: Tensor, reduction: str) -> Tensor:
    if reduction == "none" or losses.ndim == 1:
        return losses
    flat = losses.flatten(1)
    return flat.mean(1) if reduction == "mean" else flat.sum(1)


POINTWISE = (
    functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss, functional.huber_loss,
    functional.binary_cross_entropy, functional.binary_cross_entropy_with_logits,
    functional.soft_margin_loss, functional.poisson_nll_loss,
)  # fmt: skip
RULES: dict[Any, Rule] = {
    functional.cross_entropy: _cross_entropy,
    functional.nll_loss: _nll_loss,
    **{func: partial(_pointwise, func) for func in POINTWISE},
}
