"""Modules as pure functions of parameters, inputs and keys, and checks that they are."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tacit.core.errors import Misuse
from tacit.models.dropout import MaskKeys, use_keys
from tacit.models.dropout_functions import KeyedFunctions
from tacit.models.parameters import copied
from tacit.tasks.criteria import logits_of
from tacit.tasks.inputs import ONE_INPUT, InputLayout
from tacit.tasks.parts import Part


class CopyPerThread:
    """A callable with one copy per thread, because calling it may change it.

    The tensors in `shared` are not copied.
    """

    def __init__(self, original: Callable[..., Any], shared: Iterable[Tensor] = ()) -> None:
        self.original, self._shared = original, list(shared)
        self._copies: dict[int, Callable[..., Any]] = {}

    def local(self) -> Any:
        """The copy of the current thread."""
        thread = threading.get_ident()
        if thread not in self._copies:
            memo = {id(tensor): tensor for tensor in self._shared}
            self._copies[thread] = copy.deepcopy(self.original, memo)
        return self._copies[thread]

    def __call__(self, *arguments: Tensor) -> Tensor:
        value: Tensor = self.local()(*arguments)
        return value


def thread_safe(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function itself, or one copy per thread of an object that calls may change."""
    stateless = isinstance(function, FunctionType | BuiltinFunctionType)
    return function if stateless else CopyPerThread(function)


@dataclass(frozen=True, eq=False)
class PureModule:
    """A module as a function of parameters, inputs and keys.

    Attributes:
        module: The module; its dropout layers are keyed.
        layout: How it takes its inputs.
        masks: The keys of its dropout; None if it has none.
        functions: Whether it calls functions of dropout, not only layers.
    """

    module: nn.Module
    layout: InputLayout = ONE_INPUT
    masks: MaskKeys | None = None
    functions: bool = False

    @classmethod
    def of(cls, module: nn.Module, layout: InputLayout = ONE_INPUT) -> PureModule:
        """A copy of a user's module on the CPU.

        Raises:
            Misuse: If it has layers that are not pure and cannot be keyed.
        """
        # In training: in evaluation, some layers take paths that torch.func does not see.
        own, masks = use_keys(copied(module).cpu().train())
        _check_layers(own)
        return cls(own, layout, masks)

    def __call__(self, parameters: dict[str, Tensor], inputs: Part, keys: Tensor | None) -> Tensor:
        with self._keyed(keys):
            arguments = self.layout.arguments(inputs)
            return logits_of(functional_call(self.module, parameters, *arguments))

    def to(self, device: torch.device | str) -> PureModule:
        """A copy on a device."""
        moved = copy.deepcopy(self)
        moved.module.to(device)
        return moved

    def per_thread(self) -> CopyPerThread:
        """One copy per thread, since a call puts its parameters into the module."""
        return CopyPerThread(self, self.tensors())

    def tensors(self) -> list[Tensor]:
        """All parameters and buffers."""
        return [*self.module.parameters(), *self.module.buffers()]

    def checked(self, *inputs: Tensor) -> PureModule:
        """This module after a trial with a few samples [B, ...], with its dropout found.

        Raises:
            Misuse: If it draws random numbers that cannot be keyed, writes to its buffers, or has
                dropout of tensors that do not divide into samples.
        """
        pure = self
        if _draws(lambda: pure._trial(inputs))[0]:
            pure = replace(self, masks=self.masks or MaskKeys(), functions=True)
        trial = copy.deepcopy(pure)
        before = {name: buffer.clone() for name, buffer in trial.module.named_buffers()}
        check_deterministic("model", lambda: trial._trial(inputs))
        for name, buffer in trial.module.named_buffers():
            if not torch.equal(before[name], buffer):
                raise Misuse(
                    f"Buffer {name!r} of the model changes in training and is not part of what "
                    "clients exchange.",
                    "Make it a parameter, or use a layer without such a buffer (nn.GroupNorm for "
                    "BatchNorm).",
                )
        if pure.masks is not None:
            pure._find_batch_dims(pure.masks, inputs)
        return pure

    def _find_batch_dims(self, masks: MaskKeys, inputs: Part) -> None:
        shapes = []
        for count in (2, 3):
            some = tuple(array[torch.arange(count) % len(array)] for array in inputs)
            with masks.recorded() as found:
                check_deterministic("model", partial(self._trial, some, count))
            shapes.append(found)
        masks.find_batch_dims(*shapes)

    def _trial(self, inputs: Part, samples: int | None = None) -> Any:
        """The output with the module's own parameters; with dropout for so many samples."""
        positional, named = self.layout.arguments(inputs)
        with self._keyed(None if samples is None else torch.arange(samples)):
            return self.module(*positional, **named)

    @contextmanager
    def _keyed(self, keys: Tensor | None) -> Iterator[None]:
        if self.masks is None:
            yield
        elif not self.functions:
            with self.masks.used(keys):
                yield
        else:
            with self.masks.used(keys), KeyedFunctions(self.masks):
                yield


def check_deterministic(name: str, work: Callable[[], Any]) -> Any:
    """Run `work` once and return its result; raise Misuse if it drew from torch's random stream."""
    drew, result = _draws(work)
    if drew:
        raise Misuse(
            f"The {name} draws from a hidden random stream in training.",
            "Remove the random step, or use nn.Dropout or torch.nn.functional.dropout, which Tacit "
            "draws from keys of the samples.",
        )
    return result


def _draws(work: Callable[[], Any]) -> tuple[bool, Any]:
    """Whether work draws from torch's random stream, which is left as it was; and its result."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        stream = torch.get_rng_state()
        result = work()
        return not torch.equal(stream, torch.get_rng_state()), result


def _check_layers(module: nn.Module) -> None:
    """Raise Misuse for layers that are not pure functions of parameters and input."""
    for name, layer in module.named_modules():
        kind = type(layer).__name__
        tracks = getattr(layer, "track_running_stats", False)
        if tracks and getattr(layer, "running_mean", None) is not None:
            raise Misuse(
                f"Layer {name or 'model'!r} is a {kind}: its running statistics change in training "
                "and are not part of the model that clients exchange.",
                "Call tacit.models.replace_batch_norm(model), which puts nn.GroupNorm in its "
                "place, or set track_running_stats=False.",
            )
