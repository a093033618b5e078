"""Checks that the loss of a batch is made of losses of single samples, as clipping them needs."""

from __future__ import annotations

import torch
from torch import Tensor

from tacit.core.errors import Misuse, first_line
from tacit.tasks.batches import gather
from tacit.tasks.flat import Loss, ModuleLoss
from tacit.tasks.parts import Part

# Standard deviation of what is added to the model: with zero weights nothing has an influence.
PERTURBATION = 0.01


def check_separable(loss: Loss, theta: Tensor, arrays: Part) -> None:
    """Raise Misuse if samples influence each other. Compares two samples together and alone.

    Args:
        loss: The loss of a batch.
        theta: A model [P].
        arrays: Samples [B, ...].
    """
    if len(arrays[0]) < 2:
        return
    generator = torch.Generator().manual_seed(0)
    shift = torch.randn(theta.shape, generator=generator, dtype=theta.dtype)
    theta = theta + PERTURBATION * shift.to(theta.device)
    pair = gather(arrays, torch.tensor([0, _other(arrays[-1])], device=arrays[0].device))
    alone = [gather(pair, slice(0, 1)), gather(pair, slice(1, 2))]
    if isinstance(loss, ModuleLoss):
        _check_module(loss, theta, pair[0], [one[0] for one in alone])
    together, first, second = (_gradient(loss, theta, part) for part in (pair, *alone))
    total = first + second
    if not (_close(together, total) or _close(together, total / 2)):
        raise Misuse(
            "The gradient of two samples is neither the mean nor the sum of their own gradients, "
            "so a sample cannot be clipped by itself.",
            "Give a loss that is the mean over the samples of a batch; class weights make it "
            "something else.",
        )


def _check_module(loss: ModuleLoss, theta: Tensor, pair: Tensor, alone: list[Tensor]) -> None:
    try:
        with torch.no_grad():
            together = loss.flat(theta, pair)
            apart = torch.cat([loss.flat(theta, one) for one in alone])
        problem = "" if _close(together, apart) else "its output depends on the rest of the batch"
    except Exception as error:  # BatchNorm refuses a batch of one sample
        problem = first_line(error)
    if problem:
        raise Misuse(
            f"The model cannot treat a sample by itself ({problem}), so a sample's gradient "
            "cannot be clipped.",
            "Use layers without statistics of the batch: nn.GroupNorm instead of BatchNorm.",
        )


def _other(targets: Tensor) -> int:
    """A sample with another target than the first one, if there is one."""
    differs = (targets != targets[:1]).flatten(1).any(1) if targets.ndim > 1 else None
    differs = targets != targets[0] if differs is None else differs
    return max(1, int(differs.to(torch.uint8).argmax()))


def _gradient(loss: Loss, theta: Tensor, arrays: Part) -> Tensor:
    point = theta.detach().clone().requires_grad_()
    return torch.autograd.grad(loss(point, *arrays), point)[0]


def _close(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors agree to half of their digits. What is not finite is not compared."""
    tolerance = torch.finfo(one.dtype).eps ** 0.5
    difference = (one - other).abs().max()
    return not bool(difference > tolerance * other.abs().max())
