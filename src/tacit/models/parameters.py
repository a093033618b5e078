"""Copies of modules, and models of a run put back into them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from tacit.core.checks import is_count
from tacit.core.errors import Misuse, first_line

M = TypeVar("M", bound=nn.Module)


def copied(module: M) -> M:
    """A copy of a module; raises Misuse if it has lazy layers or cannot be copied."""
    if any(map(is_lazy, (*module.parameters(), *module.buffers()))):
        raise Misuse("The model has lazy layers without sizes.", "Run one batch through it first.")
    try:
        return copy.deepcopy(module)
    except Exception as error:  # whatever is an attribute of the module
        raise Misuse(
            f"The model cannot be copied: {first_line(error)}.",
            "Keep no results as attributes, and use torch.nn.utils.parametrizations.weight_norm "
            "in the place of torch.nn.utils.weight_norm.",
        ) from error


def unwrapped(module: nn.Module) -> nn.Module:
    """The module inside of nn.DataParallel or torch.compile, which compute the same."""
    inner = getattr(module, "_orig_mod", None)
    if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
        inner = module.module
    return unwrapped(inner) if isinstance(inner, nn.Module) else module


def replace_layers(
    module: nn.Module, new_layer: Callable[[nn.Module], nn.Module | None]
) -> nn.Module:
    """The module with other layers in the places of some; layers in several places stay shared.

    Args:
        module: The module; it is changed.
        new_layer: What takes the place of a layer; None: it stays.

    Returns:
        The module, or what takes its own place.
    """
    layers = list(module.modules())
    new = {layer: other for layer in layers if (other := new_layer(layer)) is not None}
    for layer in layers:
        # Not named_children(), which skips the second place of a layer.
        for name, child in list(layer._modules.items()):
            if child in new:
                setattr(layer, name, new[child])
    return new.get(module, module)


def select_model(theta: Tensor, client: int | str, names: Sequence[str] = ()) -> Tensor:
    """One of the models [N, P], or their mean if the client is "average"; [P].

    Args:
        theta: The models.
        client: A number from 0, one of the names, or "average".
        names: The clients' names, if they have some.

    Raises:
        Misuse: If there is no such client.
    """
    # Also if a client has this name: a client's own model is not given away as the mean of all.
    if isinstance(client, str) and client == "average":
        return theta.mean(0)
    if isinstance(client, str) and client in names:
        return theta[list(names).index(client)]
    if not is_count(client, 0) or client >= len(theta):
        also = f"one of {', '.join(names)}, " if names else ""
        raise Misuse(
            f"client is {client!r}.",
            f'Give {also}a number from 0 to {len(theta) - 1}, or "average".',
        )
    return theta[int(client)]


def load_weights(module: nn.Module, theta: Tensor) -> nn.Module:
    """Copy a model of a run into the trainable parameters of the module that it was made from.

    Args:
        module: The module; it is changed. Frozen parameters stay as they are.
        theta: One model [P], such as `run.theta[0]`.

    Returns:
        The module.

    Raises:
        Misuse: If the module has not P trainable parameters.

    Example:
        >>> import torch, tacit
        >>> tacit.models.load_weights(torch.nn.Linear(2, 1), torch.tensor([1.0, 2.0, 3.0])).bias
        Parameter containing:
        tensor([3.], requires_grad=True)
    """
    trainable = [p for p in module.parameters() if p.requires_grad]
    sizes = [p.numel() for p in trainable]
    if theta.shape != (sum(sizes),):
        raise Misuse(
            f"theta has shape {tuple(theta.shape)}, and the module {sum(sizes):,} trainable "
            "parameters.",
            "Give one model, such as run.theta[0], and the module that the task was made from.",
        )
    with torch.no_grad():
        for parameter, piece in zip(trainable, torch.split(theta, sizes), strict=True):
            parameter.copy_(piece.view(parameter.shape))
    return module
