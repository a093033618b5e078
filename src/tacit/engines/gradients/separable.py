"""Checks that the loss of a batch is made of losses of single samples, as clipping them needs.

The samples that are tried are made up: whether a run begins must tell nothing about the data.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tacit.core.errors import Misuse, first_line
from tacit.tasks.flat import Loss, ModuleLoss
from tacit.tasks.parts import Part

# Standard deviation of what is added to the model: with zero weights nothing has an influence.
PERTURBATION = 0.01
# Classes that are tried.
MOST_CLASSES = 32


def perturbed(theta: Tensor) -> Tensor:
    """Models with some noise, the same every time."""
    generator = torch.Generator().manual_seed(0)
    shift = torch.randn(theta.shape, generator=generator, dtype=theta.dtype)
    return theta + PERTURBATION * shift.to(theta.device)


def check_separable(loss: Loss, theta: Tensor, arrays: Part) -> None:
    """Raise Misuse if samples influence each other. Compares some together and alone.

    Args:
        loss: The loss of a batch.
        theta: A model [P].
        arrays: Samples [B, ...], of which only the shape and the type are used.
    """
    theta = perturbed(theta)
    count, inputs = 2, 1
    if isinstance(loss, ModuleLoss):
        inputs = loss.flat.layout.count
        count = _check_module(loss, theta, made_up(arrays, 2, inputs)[:inputs])
    some = made_up(arrays, count, inputs)
    alone = [tuple(array[k : k + 1] for array in some) for k in range(count)]
    try:
        together = _gradient(loss, theta, some)
        each = torch.stack([_gradient(loss, theta, one) for one in alone])
    except Exception as error:  # users' losses raise many kinds
        raise Misuse(
            f"The loss cannot be tried on made-up samples ({first_line(error)}), and trying it on "
            "real ones would tell something about them.",
            "Give a loss that takes any samples of this shape and type.",
        ) from error
    total, largest = each.sum(0), each.abs().max()
    if not (_close(together, total, largest) or _close(together, total / count, largest)):
        raise Misuse(
            "The gradient of some samples is neither the mean nor the sum of their own gradients, "
            "so a sample cannot be clipped by itself.",
            "Give a loss that is the mean over the samples of a batch; class weights make it "
            "something else.",
        )


def _check_module(loss: ModuleLoss, theta: Tensor, pair: Part) -> int:
    """How many made-up samples have all classes; raises Misuse if outputs depend on others."""
    try:
        with torch.no_grad():
            together = loss.flat(theta, *pair)
            alone = ([array[k : k + 1] for array in pair] for k in range(2))
            apart = torch.cat([loss.flat(theta, *one) for one in alone])
        close = _close(together, apart, apart.abs().max())
        problem = "" if close else "its output depends on the rest of the batch"
    except Exception as error:  # BatchNorm refuses a batch of one sample
        problem = first_line(error)
    if problem:
        raise Misuse(
            f"The model cannot treat a sample by itself ({problem}), so a sample's gradient "
            "cannot be clipped.",
            "Use layers without statistics of the batch: nn.GroupNorm instead of BatchNorm.",
        )
    # One of these dimensions counts the classes.
    return min(max(2, min(together.shape[1:], default=2)), MOST_CLASSES)


def made_up(arrays: Part, count: int, inputs: int, classes: int | None = None) -> Part:
    """Samples of the same shape and type: normal numbers, or 0, 1, … for whole numbers.

    Whole numbers that are targets are below `classes`, by default `count`, and those of the
    `inputs` first arrays below 2.
    """
    generator = torch.Generator().manual_seed(1)
    made = []
    for place, array in enumerate(arrays):
        shape = (count, *array.shape[1:])
        if array.is_floating_point():
            sample = torch.randn(shape, generator=generator, dtype=array.dtype)
        else:
            below = 2 if place < inputs else classes or count
            number = torch.arange(count).view(-1, *(1 for _ in shape[1:])).expand(shape)
            if place < inputs:
                # Not the same everywhere in a sample: a mask would hide all of it.
                number = number + torch.arange(math.prod(shape[1:])).view(shape[1:])
            sample = number.remainder(below).to(array.dtype)
        made.append(sample.to(array.device))
    return tuple(made)


def _gradient(loss: Loss, theta: Tensor, arrays: Part) -> Tensor:
    point = theta.detach().clone().requires_grad_()
    return torch.autograd.grad(loss(point, *arrays), point)[0]


def _close(one: Tensor, other: Tensor, scale: Tensor) -> bool:
    """Whether two tensors agree to half of the digits of `scale`; NaN is not compared."""
    tolerance = torch.finfo(one.dtype).eps ** 0.5
    return not bool((one - other).abs().max() > tolerance * scale)
