"""A module as a function of one flat vector, and the checks that a user's module can be one."""

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
from tacit.core.randomness import key_of

Loss = Callable[..., Tensor]


class OwnCopies:
    """A callable of which each thread has a copy of its own, because calling it may change it."""

    def __init__(self, original: Callable[..., Tensor]) -> None:
        self.original = original
        self._copies: dict[int, Callable[..., Tensor]] = {}

    def mine(self) -> Any:
        """This thread's."""
        thread = threading.get_ident()
        if thread not in self._copies:
            self._copies[thread] = copy.deepcopy(self.original)
        return self._copies[thread]

    def __call__(self, *arguments: Tensor) -> Tensor:
        """Call this thread's."""
        value: Tensor = self.mine()(*arguments)
        return value


def for_threads(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A function that several threads may call at the same time: itself, or copies of an object that may change."""
    return (
        function
        if isinstance(function, FunctionType | BuiltinFunctionType)
        else OwnCopies(function)
    )


class FlatModule:
    """A module whose trainable parameters are one vector of P numbers, in the order of `named_parameters`."""

    def __init__(self, module: nn.Module) -> None:
        self.module = copy.deepcopy(module).cpu()
        _refuse_hidden_state(self.module)
        named = [(name, p) for name, p in self.module.named_parameters() if p.requires_grad]
        if not named:
            raise Misuse(
                "The model has no trainable parameters.", "Give a module with parameters to train."
            )
        self.names = [name for name, _ in named]
        self.shapes = [p.shape for _, p in named]
        self.sizes = [p.numel() for _, p in named]
        self.width = sum(self.sizes)
        self.dtype = _one_dtype([p.dtype for _, p in named])
        self._own = OwnCopies(self.module)  # a call puts its parameters into the module

    def unflatten(self, theta: Tensor) -> dict[str, Tensor]:
        """Parameters by name as views of one vector [P]."""
        pieces = torch.split(theta, self.sizes)
        return {
            n: piece.view(s) for n, piece, s in zip(self.names, pieces, self.shapes, strict=True)
        }

    def __call__(self, theta: Tensor, *inputs: Tensor) -> Tensor:
        """The module's output with parameters `theta` [P]."""
        output: Tensor = functional_call(self._own.mine(), self.unflatten(theta), inputs)
        return output

    def weights(self) -> Tensor:
        """The module's own parameters as a vector [P]."""
        parameters = dict(self.module.named_parameters())
        return torch.cat([parameters[name].detach().reshape(-1) for name in self.names])

    def to(self, device: torch.device | str) -> FlatModule:
        """This flat module with frozen parameters and buffers on `device`."""
        moved = copy.copy(self)
        moved.module = copy.deepcopy(self.module).to(device)
        moved._own = OwnCopies(moved.module)
        return moved

    def fresh_weights(self, *key: int | str) -> Tensor:
        """New random parameters [P] by the layers' own `reset_parameters`, keyed."""
        module = copy.deepcopy(self.module)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.default_generator.manual_seed(
                key_of(*key) >> 1
            )  # the CPU's only, which fork_rng restores
            for name, parameter in module.named_parameters():
                if name in self.names:
                    parameter.fill_(torch.nan)  # to see below which ones no layer draws again
            for layer in module.modules():
                if callable(reset := getattr(layer, "reset_parameters", None)):
                    reset()
        parameters = dict(module.named_parameters())
        if left := [name for name in self.names if parameters[name].isnan().any()]:
            raise Misuse(
                f"No layer can draw {left[0]!r} anew: its module has no reset_parameters().",
                'Add one, or let all clients start from the module\'s own weights (init="module").',
            )
        return torch.cat([parameters[name].detach().reshape(-1) for name in self.names])


@dataclass(frozen=True)
class ModuleLoss:
    """θ, inputs, targets ↦ loss(module(inputs; θ), targets)."""

    flat: FlatModule
    criterion: Callable[..., Tensor]

    def __call__(self, theta: Tensor, inputs: Tensor, *targets: Tensor) -> Tensor:
        """The loss of parameters `theta` [P] on one batch."""
        return self.criterion(self.flat(theta, inputs), *targets)

    def to(self, device: torch.device | str) -> ModuleLoss:
        """The same with the module's buffers on `device`."""
        return replace(self, flat=self.flat.to(device))


def _refuse_hidden_state(module: nn.Module) -> None:
    """Refuse layers whose behaviour is not a pure function of parameters and input."""
    for name, layer in module.named_modules():
        kind = type(layer).__name__
        if (
            getattr(layer, "track_running_stats", False)
            and getattr(layer, "running_mean", None) is not None
        ):
            raise Misuse(
                f"Layer {name or 'model'!r} is a {kind}: its running statistics change in training and are not "
                "part of the model that clients exchange.",
                "Use nn.GroupNorm (or track_running_stats=False) instead.",
            )
        if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0:
            raise Misuse(
                f"Layer {name or 'model'!r} is a {kind} with p = {layer.p}: it draws from a hidden random stream.",
                "Remove it or set p = 0; all randomness in Tacit is keyed.",
            )
    if any(isinstance(p, nn.parameter.UninitializedParameter) for p in module.parameters()):
        raise Misuse("The model has lazy layers without sizes.", "Run one batch through it first.")


def _one_dtype(found: list[torch.dtype]) -> torch.dtype:
    if len(set(found)) > 1 or found[0] not in (torch.float32, torch.float64):
        raise Misuse(
            f"The model's parameters are {', '.join(sorted({str(kind) for kind in found}))}.",
            "Make them all float32 or all float64: model.float() or model.double().",
        )
    return found[0]


def refuse_hidden_stream(what: str, work: Callable[[], Tensor]) -> Tensor:
    """Do the work once and refuse it if it drew from torch's random stream; gives what it gave."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        stream = torch.get_rng_state()
        result = work()
        drew = not torch.equal(stream, torch.get_rng_state())
    if drew:
        raise Misuse(
            f"The {what} draws from a hidden random stream in training.",
            "Remove its dropout or other random step; all randomness in Tacit is keyed.",
        )
    return result


def refuse_impure(module: nn.Module, *inputs: Tensor) -> None:
    """Run one batch and refuse a module that drew from torch's random stream or wrote into its buffers."""
    trial = copy.deepcopy(module).train()
    before = {name: buffer.clone() for name, buffer in trial.named_buffers()}
    refuse_hidden_stream("model", lambda: trial(*inputs))
    for name, buffer in trial.named_buffers():
        if not torch.equal(before[name], buffer):
            raise Misuse(
                f"Buffer {name!r} of the model changes in training and is not part of what clients exchange.",
                "Make it a parameter, or use a layer without such a buffer (nn.GroupNorm for BatchNorm).",
            )
