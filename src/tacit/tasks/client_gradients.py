"""Gradients of k clients at their own models, in one pass or client by client."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from tacit.gradients import passes
from tacit.gradients.attention import attention
from tacit.tasks.flat import Loss, ModuleLoss
from tacit.tasks.parts import Part

# CUDA streams of a loop over clients. Eight keep an H200 busy with convolutions of small batches.
STREAMS = 8


def write_stacked(loss: Loss, theta: Tensor, arrays: Part, out: Tensor) -> bool:
    """Write the gradients [k, P] at theta [k, P] on arrays [k, B, ...] in one pass.

    Returns:
        Whether rules with compiled loops wrote all of them, which threads share by themselves.

    Raises:
        NotStackable: If the loss has a step that cannot be computed for all clients at once.
    """
    # Those of a module are its parameters, so that their gradients need not be joined first.
    parameters, places = (_parameters(loss, rows) for rows in (theta, out))
    return passes.write_stacked(_of_client(loss), parameters, arrays, places)


def stacked_losses(loss: Loss, theta: Tensor, arrays: Part) -> Tensor:
    """The losses [k] at theta [k, P], one model or several, on arrays [k, B, ...] in one pass.

    Raises:
        NotStackable: If the loss has a step that cannot be computed for all clients at once.
    """
    return passes.losses(_of_client(loss), _parameters(loss, theta), arrays)


def write_looped(loss: Loss, theta: Tensor, arrays: Part, out: Tensor) -> None:
    """Write the gradients [k, P] client by client.

    On a GPU clients are on several streams, which pays if the pass is captured. Slow and obviously
    right, unless single clients keep the device busy.
    """
    clients = list(enumerate(zip(*arrays, strict=True)))
    if not theta.is_cuda or len(theta) == 1:
        for row, own in clients:
            _write_one(loss, theta[row], own, out[row])
        return
    main = torch.cuda.current_stream(theta.device)
    streams = [torch.cuda.Stream(theta.device) for _ in range(min(STREAMS, len(theta)))]  # type: ignore[no-untyped-call]
    for stream in streams:
        stream.wait_stream(main)
    for row, own in clients:
        with torch.cuda.stream(streams[row % len(streams)]):
            _write_one(loss, theta[row], own, out[row])
    for stream in streams:
        main.wait_stream(stream)


def saved_numbers(loss: Loss, theta: Tensor, arrays: Part) -> int:
    """How many numbers of 4 bytes one client's forward pass saves for the backward pass."""
    storages: dict[int, int] = {}
    # A batch may be a view of all data, most of which it does not use.
    batch = {x.untyped_storage().data_ptr(): x.nbytes for x in arrays}

    def note(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        pointer = storage.data_ptr()
        storages[pointer] = batch.get(pointer, storage.nbytes())
        return x

    with passes.recording():
        theta, *given = (passes.usable(x) for x in (theta, *arrays))
        point = theta.detach().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
            loss(point, *given)
    storages.pop(theta.untyped_storage().data_ptr(), None)
    return sum(storages.values()) // 4


def _parameters(loss: Loss, rows: Tensor) -> list[Tensor]:
    """What of rows [k, P] a loss takes: a module's parameters, or the vector."""
    return loss.flat.unflatten_rows(rows) if isinstance(loss, ModuleLoss) else [rows]


def _of_client(loss: Loss) -> passes.Loss:
    """The loss of one client, from what `_parameters` gives and its arrays."""
    of_module = isinstance(loss, ModuleLoss)
    return lambda models, given: loss(tuple(models) if of_module else models[0], *given)


def _write_one(loss: Loss, theta: Tensor, arrays: Part, out: Tensor) -> None:
    with _DeterministicAttention() if theta.is_cuda else nullcontext():
        passes.write_one(lambda models, given: loss(models[0], *given), [theta], arrays, [out])


class _DeterministicAttention(TorchFunctionMode):
    """The context in which the attention of one client gives the same bits every time."""

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is functional.scaled_dot_product_attention:
            return attention(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))
