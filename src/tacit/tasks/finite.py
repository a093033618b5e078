"""Refuses NaN and infinity in data, unless the model can deal with them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.core.errors import Misuse
from tacit.tasks.flat import ModuleLoss
from tacit.tasks.parts import Parts

KINDS = {
    "NaN": (
        torch.isnan,
        "Fill in missing values, or remove these samples; tacit.data.from_tables does it.",
    ),
    "infinite values": (
        torch.isinf,
        "Replace them by finite numbers of the model's type, or remove these samples.",
    ),
}


def check_finite(loss: ModuleLoss, held: Parts, *, test: bool = False) -> None:
    """Raise Misuse if the data, or test data, have NaN or infinity that the loss cannot take."""
    for array in held.arrays:
        real = array.is_floating_point() or array.is_complex()
        if not real or bool(array.isfinite().all()):
            continue
        for kind, (is_kind, remedy) in KINDS.items():
            bad = is_kind(array).reshape(len(array), -1).any(1)
            if (first := _first_bad(loss, held, bad)) is None:
                continue
            client, sample, count = first
            owner = "The test data" if test else f"The data of client {client}"
            more = f" and {count - 1} more" if count > 1 else ""
            raise Misuse(f"{owner} have {kind} in sample {sample}{more}.", remedy)


def _first_bad(loss: ModuleLoss, held: Parts, bad: Tensor) -> tuple[int, int, int] | None:
    """The first client with bad samples, its first one, and how many; None if the loss is finite.

    A model may have a way to deal with them.
    """
    good = (~bad).nonzero().flatten()
    for client in range(held.clients):
        rows = held.order[held.offsets[client] : held.offsets[client + 1]]
        samples = bad[rows].nonzero().flatten()
        if len(samples):
            # Beside a good sample, if there is one: a loss may be a mean over known values.
            first = rows[samples[:1]]
            pair = torch.cat((first, good[:1], first))[:2]
            if _is_finite(loss, [array[pair] for array in held.arrays]):
                return None
            return client, int(samples[0]), len(samples)
    return None


def _is_finite(loss: ModuleLoss, arrays: Sequence[Tensor]) -> bool:
    """Whether the loss of some samples and its gradient are finite."""
    theta = loss.flat.weights().requires_grad_()
    try:
        with torch.random.fork_rng(devices=[]):
            value = loss(theta, *arrays)
        gradients = torch.autograd.grad(value, theta) if value.requires_grad else ()
    except Exception:  # Losses such as torch's binary_cross_entropy refuse NaN themselves.
        return False
    return all(bool(x.isfinite().all()) for x in (value, *gradients))
