"""Modules as pure functions of parameters, inputs and keys."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from tacit.core.errors import Misuse
from tacit.models.dropout import KeyedFunctions, use_keys
from tacit.models.mask_keys import MaskKeys
from tacit.models.parameters import copied, unwrapped
from tacit.tasks.criteria import logits_of
from tacit.tasks.inputs import ONE_INPUT, InputLayout
from tacit.tasks.known_layers import check_layers, is_known
from tacit.tasks.parts import Part


def layers_of(function: Any) -> list[Any]:
    """The objects whose attributes a call of a module, an object or a method may change."""
    function = getattr(function, "__self__", function)
    if isinstance(function, nn.Module):
        return list(function.modules())
    return [function] if hasattr(function, "__dict__") else []


@contextmanager
def unchanged(layers: Iterable[Any]) -> Iterator[None]:
    """A call of which no later one sees anything, as clients and samples must not of each other.

    What it keeps as an attribute is taken away: a trial cannot know whether that is used from the
    hundredth call on.

    Raises:
        Misuse: If it changes a buffer or another tensor of its own.
    """
    modules = [layer for layer in layers if isinstance(layer, nn.Module)]
    buffers = [layer._buffers for layer in modules]
    owners: list[Any] = [vars(layer) for layer in layers]
    owners += [*(layer._parameters for layer in modules), *buffers]
    before = [(own, dict(own)) for own in owners]
    tensors = [
        (name, x, x._version)
        for _, values in before
        for name, x in values.items()
        if isinstance(x, Tensor)
    ]
    try:
        yield
        now = [dict(own) for own in buffers]
    finally:
        for own, values in before:
            own.clear()
            own.update(values)
    changed = [name for name, x, version in tensors if x._version != version]
    for held, own in zip(now, buffers, strict=True):
        changed += [name for name, x in own.items() if held.get(name) is not x]
    if changed:
        raise Misuse(
            f"The model or the loss changes its tensor {changed[0]!r} in training, which is not "
            "part of what clients exchange.",
            "Compute a new tensor, or make it a parameter of the model.",
        )


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
        function = self.local()
        with unchanged(layers_of(function)):
            value: Tensor = function(*arguments)
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
        module = unwrapped(module)
        check_layers(module)
        own, masks = use_keys(copied(module).cpu().train())
        return cls(own, layout, masks)

    def __call__(self, parameters: dict[str, Tensor], inputs: Part, keys: Tensor | None) -> Tensor:
        with self._keyed(keys), unchanged(self._watched):
            positional, named = self.layout.arguments(inputs)
            with self._holding(parameters):
                return logits_of(self.module(*positional, **named))

    @contextmanager
    def _holding(self, parameters: dict[str, Tensor]) -> Iterator[None]:
        """Put parameters into their places in the module, for one call.

        What `torch.func.functional_call` does too, which looks for the places in every call.
        """
        try:
            for name, value in parameters.items():
                for owner, attribute, _ in self._places[name]:
                    owner[attribute] = value
            yield
        finally:
            for name in parameters:
                for owner, attribute, original in self._places[name]:
                    owner[attribute] = original

    @cached_property
    def _places(self) -> dict[str, list[tuple[dict[str, Any], str, Tensor]]]:
        """Where each parameter is in the module, several places if layers share it."""
        found: dict[int, list[tuple[dict[str, Any], str, Tensor]]] = {}
        for layer in self.module.modules():
            for attribute, parameter in layer._parameters.items():
                if parameter is not None:
                    place = (layer._parameters, attribute, parameter)
                    found.setdefault(id(parameter), []).append(place)
        return {name: found[id(p)] for name, p in self.module.named_parameters()}

    @cached_property
    def _watched(self) -> list[nn.Module]:
        """The layers that a call may change: none if all are known."""
        return [] if is_known(self.module) else layers_of(self.module)

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

    def trial(self, inputs: Part, keys: Tensor | None = None) -> Any:
        """The output with the module's own parameters; without keys there is no dropout."""
        positional, named = self.layout.arguments(inputs)
        with self._keyed(keys):
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
