"""A trial of a loss on the output of two samples: it must be one number, of each sample's own."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.core.errors import Misuse, first_line
from tacit.tasks.criteria import Criterion
from tacit.tasks.purity import check_repeatable

# Begins torch's warning of a loss whose output and targets have different shapes.
BROADCASTING = "Using a target size"


def try_loss(criterion: Criterion, output: Tensor, targets: Sequence[Tensor]) -> None:
    """Raise Misuse if a loss fails, is not pure, or compares outputs with others' targets."""
    shapes = f"{tuple(output.shape)} and targets of shape " + ", ".join(
        str(tuple(array.shape)) for array in targets
    )
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", BROADCASTING, UserWarning)
            value = check_repeatable("loss", lambda: criterion(output, *targets), criterion)
    except Misuse:
        raise
    except Exception as error:  # users' losses raise many kinds
        if isinstance(error, UserWarning) and BROADCASTING in str(error):
            raise _broadcasts(shapes) from error
        raise Misuse(
            f"The loss fails for an output of shape {shapes}: {first_line(error)}.",
            "Give a `loss` that takes them, or a model and targets that fit it: for "
            "cross-entropy, an output per class and whole numbers as targets.",
        ) from error
    if not isinstance(value, Tensor) or value.ndim:
        kind = f"of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value)
        raise Misuse(
            f"The loss for an output of shape {shapes} is {kind}.",
            "Return one number as a tensor, e.g. the mean over the samples.",
        )
    if len(targets) == 1 and _takes_all_pairs(criterion, output, targets[0]):
        raise _broadcasts(shapes)


def _takes_all_pairs(criterion: Criterion, output: Tensor, targets: Tensor) -> bool:
    """Whether a loss of outputs [B, 1] and targets [B], or the reverse, is one of [B, B] pairs.

    Then it depends on the targets, but not on which sample has which. torch warns of broadcasting
    in some of its losses only.
    """
    if output.shape == targets.shape or output.numel() != targets.numel():
        return False
    # Made-up samples: two of the same target would hide it. Of three, two have equal targets, and
    # outputs are not evenly spaced, so that losses of pairs of samples depend on the order, too.
    some = torch.linspace(0.5, 0.9, 3 * output[0].numel()).square().to(output.dtype)
    some = some.view(3, *output.shape[1:])
    own = torch.zeros(3, *targets.shape[1:], dtype=targets.dtype)
    own[2] = 1
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            value, changed, swapped = (
                criterion(some, y) for y in (own, torch.ones_like(own), own.flip(0))
            )
            return torch.allclose(value, swapped) and not torch.allclose(value, changed)
    except Exception:  # A loss may take no such numbers.
        return False


def _broadcasts(shapes: str) -> Misuse:
    return Misuse(
        f"The loss broadcasts an output of shape {shapes}, so it compares outputs with targets of "
        "other samples.",
        "Give targets of the output's shape, such as [n, 1], or flatten the output in the model "
        "or in a `loss` of your own.",
    )
