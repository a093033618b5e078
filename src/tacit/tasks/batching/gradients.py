"""Gradients of k clients at their own models, in one pass or client by client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tacit.tasks.batching.rules import client_rules, deterministic_attention
from tacit.tasks.flat import Loss, ModuleLoss
from tacit.tasks.parts import Part

# CUDA streams of a loop over clients. Eight keep an H200 busy with convolutions of small batches.
STREAMS = 8


def write_batched(loss: Loss, theta: Tensor, arrays: Part, out: Tensor) -> None:
    """Write the gradients [k, P] in one pass over a client dimension, by our rules."""
    with _recording():
        theta, *given = (_usable(x) for x in (theta, *arrays))
        pieces = _pieces(loss, theta, out)
        point: Any = tuple(piece for piece, _ in pieces) if len(pieces) > 1 else pieces[0][0]
        with client_rules():
            # The gradient of the sum of all losses has each client's gradient in its row.
            total = torch.vmap(loss)(point, *given).sum()
        _backward(total, pieces)


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

    def note(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return x

    with _recording():
        theta, *given = (_usable(x) for x in (theta, *arrays))
        point = theta.detach().requires_grad_()
        with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
            loss(point, *given)
    storages.pop(theta.untyped_storage().data_ptr(), None)
    return sum(storages.values()) // 4


def _write_one(loss: Loss, theta: Tensor, arrays: Part, out: Tensor) -> None:
    with _recording():
        theta, *given = (_usable(x) for x in (theta, *arrays))
        point = theta.detach().requires_grad_()
        with deterministic_attention() if theta.is_cuda else nullcontext():
            value = loss(point, *given)
        _backward(value, [(point, out)])


def _pieces(loss: Loss, theta: Tensor, out: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Models [k, P] as leaves of a graph, and where the gradient of each goes.

    Those of a module are its parameters, so that their gradients need not be joined first.
    """
    if not isinstance(loss, ModuleLoss):
        return [(theta.detach().requires_grad_(), out)]
    pairs = zip(loss.flat.unflatten_rows(theta), loss.flat.unflatten_rows(out), strict=True)
    return [(piece.detach().requires_grad_(), place) for piece, place in pairs]


def _backward(value: Tensor, pieces: list[tuple[Tensor, Tensor]]) -> None:
    """Write the gradient of a number by each piece into its place; zero if it does not depend."""
    missing = {id(piece): place for piece, place in pieces}

    def take(place: Tensor, piece: Tensor) -> None:
        assert piece.grad is not None
        place.copy_(piece.grad)
        # Its memory is used again in the rest of the pass.
        piece.grad = None
        del missing[id(piece)]

    for piece, place in pieces:
        piece.register_post_accumulate_grad_hook(partial(take, place))  # type: ignore[no-untyped-call]
    if value.requires_grad:
        # Gradients are computed in the types of the results.
        with torch.autocast(value.device.type, enabled=False):
            value.backward()  # type: ignore[no-untyped-call]
    for place in missing.values():
        place.zero_()


@contextmanager
def _recording() -> Iterator[None]:
    """Record operations for a backward pass, whatever the caller's mode is."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def _usable(x: Tensor) -> Tensor:
    """The tensor, or a copy if it was made in inference mode and cannot be recorded."""
    return x.clone() if x.is_inference() else x
