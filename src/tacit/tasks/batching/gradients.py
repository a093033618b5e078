"""Gradients of k clients at their own models, in one pass or client by client."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor

from tacit.tasks.batching.rules import client_rules, deterministic_attention
from tacit.tasks.parts import Part

Loss = Callable[..., Tensor]
# CUDA streams of a loop over clients. Eight keep an H200 busy with convolutions of small batches.
STREAMS = 8


def batched_gradients(loss: Loss, theta: Tensor, arrays: Part) -> Tensor:
    """Gradients [k, P] in one pass over a client dimension, by our rules where there are some."""
    point = theta.detach().requires_grad_()
    with client_rules():
        # The gradient of the sum of all losses has each client's gradient in its row.
        total = torch.vmap(loss)(point, *arrays).sum()
    return _gradient(total, point)


def looped_gradients(loss: Loss, theta: Tensor, arrays: Part) -> Tensor:
    """Gradients [k, P] client by client; on a GPU on several streams, which a captured pass uses.

    Slow and obviously right, unless single clients keep the device busy.
    """
    out = torch.empty_like(theta)
    if not theta.is_cuda or len(theta) == 1:
        for row, own in enumerate(zip(*arrays, strict=True)):
            out[row] = _of_one(loss, theta[row], own)
        return out
    main = torch.cuda.current_stream(theta.device)
    streams = [torch.cuda.Stream(theta.device) for _ in range(min(STREAMS, len(theta)))]  # type: ignore[no-untyped-call]
    for stream in streams:
        stream.wait_stream(main)
    for row, own in enumerate(zip(*arrays, strict=True)):
        with torch.cuda.stream(streams[row % len(streams)]):
            out[row] = _of_one(loss, theta[row], own)
    for stream in streams:
        main.wait_stream(stream)
    return out


def _of_one(loss: Loss, theta: Tensor, arrays: Part) -> Tensor:
    point = theta.detach().requires_grad_()
    with deterministic_attention() if theta.is_cuda else nullcontext():
        value = loss(point, *arrays)
    return _gradient(value, point)


def _gradient(value: Tensor, point: Tensor) -> Tensor:
    """The gradient of a number by a tensor; zero if it does not depend on it."""
    if not value.requires_grad:
        return torch.zeros_like(point)
    # Torch refuses to derive in the types of autocast.
    with torch.autocast(point.device.type, enabled=False):
        (gradient,) = torch.autograd.grad(value, point)
    return gradient


def saved_numbers(loss: Loss, theta: Tensor, arrays: Part) -> int:
    """How many numbers of 4 bytes one client's forward pass saves for the backward pass."""
    storages: dict[int, int] = {}

    def note(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return x

    point = theta.detach().requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        value = loss(point, *arrays)
    del value
    storages.pop(theta.untyped_storage().data_ptr(), None)
    return sum(storages.values()) // 4
