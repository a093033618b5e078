"""Modules as functions of one flat vector, and checks that a user's module can be one."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import BuiltinFunctionType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from tacit.core.errors import Misuse
from tacit.core.randomness import derive_key

Loss = Callable[..., Tensor]
# One vector [P], or its parts in their own shapes.
Parameters = Tensor | tuple[Tensor, ...]


class CopyPerThread:
    """A callable with one copy per thread, because calling it may change it."""

    def __init__(self, original: Callable[..., Tensor]) -> None:
        self.original = original
        self._copies: dict[int, Callable[..., Tensor]] = {}

    def local(self) -> Any:
        """The copy of the current thread."""
        thread = threading.get_ident()
        if thread not in self._copies:
            self._copies[thread] = copy.deepcopy(self.original)
        return self._copies[thread]

    def __call__(self, *arguments: Tensor) -> Tensor:
        value: Tensor = self.local()(*arguments)
        return value


def thread_safe(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The function itself, or one copy per thread of an object that calls may change."""
    stateless = isinstance(function, FunctionType | BuiltinFunctionType)
    return function if stateless else CopyPerThread(function)


class FlatModule:
    """A module whose trainable parameters are one vector of P numbers.

    The parameters have the order of `named_parameters`.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = copy.deepcopy(module).cpu()
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
        # A call puts its parameters into the module.
        self._copies = CopyPerThread(self.module)

    def unflatten(self, theta: Parameters) -> dict[str, Tensor]:
        """Parameters by name as views of one vector [P]."""
        pieces = torch.split(theta, self.sizes) if isinstance(theta, Tensor) else theta
        return {
            n: piece.view(s) for n, piece, s in zip(self.names, pieces, self.shapes, strict=True)
        }

    def unflatten_rows(self, rows: Tensor) -> list[Tensor]:
        """Parameters [k, ...] as views of rows [k, P]."""
        pieces = torch.split(rows, self.sizes, dim=1)
        return [piece.unflatten(1, s) for piece, s in zip(pieces, self.shapes, strict=True)]  # type: ignore[no-untyped-call]

    def __call__(self, theta: Parameters, *inputs: Tensor) -> Tensor:
        """The module's output with parameters `theta`: [P], or each of them by itself."""
        output: Tensor = functional_call(self._copies.local(), self.unflatten(theta), inputs)
        return output

    def weights(self) -> Tensor:
        """The module's own parameters as a vector [P]."""
        return self._flatten(self.module)

    def to(self, device: torch.device | str) -> FlatModule:
        """A copy with frozen parameters and buffers on `device`."""
        moved = copy.copy(self)
        moved.module = copy.deepcopy(self.module).to(device)
        moved._copies = CopyPerThread(moved.module)
        return moved

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
    """θ, inputs, targets ↦ criterion(module(inputs; θ), targets)."""

    flat: FlatModule
    criterion: Callable[..., Tensor]

    def __call__(self, theta: Parameters, inputs: Tensor, *targets: Tensor) -> Tensor:
        return self.criterion(self.flat(theta, inputs), *targets)

    def to(self, device: torch.device | str) -> ModuleLoss:
        """This loss with the module's buffers on `device`."""
        return replace(self, flat=self.flat.to(device))


def _check_layers(module: nn.Module) -> None:
    """Raise Misuse for layers that are not pure functions of parameters and input."""
    for name, layer in module.named_modules():
        kind = type(layer).__name__
        tracks = getattr(layer, "track_running_stats", False)
        if tracks and getattr(layer, "running_mean", None) is not None:
            raise Misuse(
                f"Layer {name or 'model'!r} is a {kind}: its running statistics change in training "
                "and are not part of the model that clients exchange.",
                "Use nn.GroupNorm (or track_running_stats=False) instead.",
            )
        if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0:
            raise Misuse(
                f"Layer {name or 'model'!r} is a {kind} with p = {layer.p}: it draws from a hidden "
                "random stream.",
                "Remove it or set p = 0; all randomness in Tacit is keyed.",
            )
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in module.parameters()):
        raise Misuse("The model has lazy layers without sizes.", "Run one batch through it first.")


def check_deterministic(name: str, work: Callable[[], Tensor]) -> Tensor:
    """Run `work` once and return its result; raise Misuse if it drew from torch's random stream."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        stream = torch.get_rng_state()
        result = work()
        drew = not torch.equal(stream, torch.get_rng_state())
    if drew:
        raise Misuse(
            f"The {name} draws from a hidden random stream in training.",
            "Remove its dropout or other random step; all randomness in Tacit is keyed.",
        )
    return result


def check_pure(module: nn.Module, *inputs: Tensor) -> None:
    """Run one batch; raise Misuse if the module draws random numbers or writes to its buffers."""
    trial = copy.deepcopy(module).train()
    before = {name: buffer.clone() for name, buffer in trial.named_buffers()}
    check_deterministic("model", lambda: trial(*inputs))
    for name, buffer in trial.named_buffers():
        if not torch.equal(before[name], buffer):
            raise Misuse(
                f"Buffer {name!r} of the model changes in training and is not part of what clients "
                "exchange.",
                "Make it a parameter, or use a layer without such a buffer (nn.GroupNorm for "
                "BatchNorm).",
            )
