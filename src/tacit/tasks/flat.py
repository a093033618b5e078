"""Modules as functions of one flat vector, and checks that a user's module can be one."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tacit.core.errors import Misuse
from tacit.core.randomness import derive_key
from tacit.models.dropout import MaskKeys, use_keys
from tacit.models.parameters import copied
from tacit.tasks.criteria import logits_of
from tacit.tasks.inputs import ONE_INPUT, InputLayout
from tacit.tasks.parts import Part

Loss = Callable[..., Tensor]
# One vector [P], or its parts in their own shapes.
Parameters = Tensor | tuple[Tensor, ...]


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
    """A module as a function of parameters, inputs and keys; `masks` is None without dropout."""

    module: nn.Module
    masks: MaskKeys | None
    layout: InputLayout

    def __call__(self, parameters: dict[str, Tensor], inputs: Part, keys: Tensor | None) -> Tensor:
        used = nullcontext() if self.masks is None else self.masks.used(keys)
        with used:
            return logits_of(
                functional_call(self.module, parameters, *self.layout.arguments(inputs))
            )

    def per_thread(self) -> CopyPerThread:
        """One copy per thread, since a call puts its parameters into the module."""
        return CopyPerThread(self, _tensors(self.module))


class FlatModule:
    """A module whose trainable parameters are one vector of P numbers.

    The parameters have the order of `named_parameters`. Its dropout is keyed by sample. `layout`
    says how the module takes its inputs.
    """

    def __init__(self, module: nn.Module, layout: InputLayout = ONE_INPUT) -> None:
        self.layout = layout
        # In training, the model may not take paths that hide its parameters from torch.func.
        self.module, self._masks = use_keys(copied(module).cpu().train())
        _check_layers(self.module)
        named = [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]
        if not named:
            raise Misuse(
                "The model has no trainable parameters.", "Give a module with parameters to train."
            )
        self.names = [name for name, _ in named]
        self.shapes = [p.shape for _, p in named]
        self.sizes = [p.numel() for _, p in named]
        self.width = sum(self.sizes)
        self.dtype = named[0][1].dtype
        if (found := {p.dtype for _, p in named}) not in ({torch.float32}, {torch.float64}):
            raise Misuse(
                f"The model's parameters are {', '.join(sorted(map(str, found)))}.",
                "Make them all float32 or all float64: model.float() or model.double().",
            )
        self._copies = PureModule(self.module, self._masks, layout).per_thread()
        # Where it was copied to: frozen parameters are on each device once.
        self._moved: dict[torch.device, FlatModule] = {}

    @property
    def keyed(self) -> bool:
        """Whether the module has dropout, and so takes keys in training."""
        return self._masks is not None

    def unflatten(self, theta: Parameters) -> dict[str, Tensor]:
        """Parameters by name as views of one vector [P]."""
        pieces = torch.split(theta, self.sizes) if isinstance(theta, Tensor) else theta
        return {
            n: piece.view(s) for n, piece, s in zip(self.names, pieces, self.shapes, strict=True)
        }

    def unflatten_rows(self, rows: Tensor) -> list[Tensor]:
        """Parameters [k, ...] as views of rows [k, P]."""
        pieces = torch.split(rows, self.sizes, dim=1)
        return [piece.view(-1, *s) for piece, s in zip(pieces, self.shapes, strict=True)]

    def __call__(self, theta: Parameters, *inputs: Tensor, keys: Tensor | None = None) -> Tensor:
        """The module's output with parameters `theta`: [P], or each of them by itself.

        Without the keys [B] of the samples there is no dropout.
        """
        output: Tensor = self._copies.local()(self.unflatten(theta), inputs, keys)
        return output

    def weights(self) -> Tensor:
        """The module's own parameters as a vector [P]."""
        return self._flatten(self.module)

    def to(self, device: torch.device | str) -> FlatModule:
        """This module with frozen parameters and buffers on `device`, one for all callers."""
        device = torch.device(device)
        if all(tensor.device == device for tensor in _tensors(self.module)):
            return self
        if device not in self._moved:
            self._moved[device] = self._copied_to(device)
        return self._moved[device]

    def _copied_to(self, device: torch.device) -> FlatModule:
        moved = copy.copy(self)
        moved.module, moved._masks = copy.deepcopy((self.module, self._masks))
        moved.module.to(device)
        moved._copies = PureModule(moved.module, moved._masks, self.layout).per_thread()
        return moved

    def check(self, *inputs: Tensor) -> None:
        """Run a few samples [B, ...].

        Raises:
            Misuse: If the module draws random numbers, writes to its buffers, or has dropout of
                tensors that do not divide into samples.
        """
        check_pure(self.module, *inputs, layout=self.layout)
        if self._masks is None:
            return
        shapes = []
        for count in (2, 3):
            some = tuple(array[torch.arange(count) % len(array)] for array in inputs)
            positional, named = self.layout.arguments(some)
            with torch.no_grad(), self._masks.recorded(torch.arange(count)) as found:
                self.module(*positional, **named)
            shapes.append(found)
        self._masks.find_batch_dims(*shapes)

    def random_weights(self, *key: int | str) -> Tensor:
        """Keyed random parameters [P], drawn by the layers' own `reset_parameters`."""
        module = copy.deepcopy(self.module)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            # Seeds the CPU's generator only, which fork_rng restores.
            torch.default_generator.manual_seed(derive_key(*key) >> 1)
            for name, parameter in module.named_parameters():
                if name in self.names:
                    # Marks the parameter: the check below finds those that no layer draws.
                    parameter.fill_(torch.nan)
            for layer in module.modules():
                if callable(reset := getattr(layer, "reset_parameters", None)):
                    reset()
        parameters = dict(module.named_parameters())
        if left := [name for name in self.names if parameters[name].isnan().any()]:
            raise Misuse(
                f"No layer draws {left[0]!r}: its module has no reset_parameters().",
                'Add one, or let all clients start from the module\'s own weights (init="module").',
            )
        return self._flatten(module)

    def _flatten(self, module: nn.Module) -> Tensor:
        parameters = dict(module.named_parameters())
        return torch.cat([parameters[name].detach().reshape(-1) for name in self.names])


@dataclass(frozen=True)
class ModuleLoss:
    """θ, *inputs, *targets ↦ criterion(module(*inputs; θ), *targets).

    If it is `keyed`, the last array has the keys of the samples, by which dropout is drawn.
    """

    flat: FlatModule
    criterion: Callable[..., Tensor]
    keyed: bool = False

    def __call__(self, theta: Parameters, *arrays: Tensor) -> Tensor:
        keys = None
        if self.keyed:
            *arrays, keys = arrays  # type: ignore[assignment]
        inputs, targets = self.flat.layout.split(arrays)
        return self.criterion(self.flat(theta, *inputs, keys=keys), *targets)

    def to(self, device: torch.device | str) -> ModuleLoss:
        """This loss with the module's buffers on `device`."""
        return replace(self, flat=self.flat.to(device))


def _tensors(module: nn.Module) -> list[Tensor]:
    return [*module.parameters(), *module.buffers()]


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


def check_deterministic(name: str, work: Callable[[], Any]) -> Any:
    """Run `work` once and return its result; raise Misuse if it drew from torch's random stream."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        stream = torch.get_rng_state()
        result = work()
        drew = not torch.equal(stream, torch.get_rng_state())
    if drew:
        raise Misuse(
            f"The {name} draws from a hidden random stream in training.",
            "Use layers such as nn.Dropout, which Tacit keys, in place of functions such as "
            "functional.dropout, or remove the random step.",
        )
    return result


def check_pure(module: nn.Module, *inputs: Tensor, layout: InputLayout = ONE_INPUT) -> None:
    """Run one batch; raise Misuse if the module draws random numbers or writes to its buffers."""
    trial = copy.deepcopy(module).train()
    before = {name: buffer.clone() for name, buffer in trial.named_buffers()}
    positional, named = layout.arguments(inputs)
    check_deterministic("model", lambda: trial(*positional, **named))
    for name, buffer in trial.named_buffers():
        if not torch.equal(before[name], buffer):
            raise Misuse(
                f"Buffer {name!r} of the model changes in training and is not part of what clients "
                "exchange.",
                "Make it a parameter, or use a layer without such a buffer (nn.GroupNorm for "
                "BatchNorm).",
            )
