"""Modules as functions of one flat vector."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from tacit.core.errors import Misuse
from tacit.core.randomness import derive_key
from tacit.models.dropout import without_keys
from tacit.models.parameters import copied, load_weights
from tacit.tasks.criteria import logits_of
from tacit.tasks.inputs import ONE_INPUT, InputLayout
from tacit.tasks.pure import PureModule
from tacit.tasks.purity import checked, in_evaluation

Loss = Callable[..., Tensor]
# One vector [P], or its parts, which have the shapes of the module's parameters.
Parameters = Tensor | tuple[Tensor, ...]


class FlatModule:
    """A module whose trainable parameters are one vector of P numbers.

    The parameters have the order of `named_parameters`. Its dropout is keyed by sample. `layout`
    says how the module takes its inputs.
    """

    def __init__(self, module: nn.Module, layout: InputLayout = ONE_INPUT) -> None:
        if any(tensor.is_meta for tensor in (*module.parameters(), *module.buffers())):
            raise Misuse(
                'The model is on the device "meta", where parameters have no values.',
                'Make it on the CPU, or call model.to_empty(device="cpu") and load its weights.',
            )
        self.layout, self._pure = layout, PureModule.of(module, layout)
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
        if (dtypes := {p.dtype for _, p in named}) not in ({torch.float32}, {torch.float64}):
            remedy = "Make them all float32 or all float64: model.float() or model.double()."
            if any(dtype.is_complex for dtype in dtypes):
                remedy = (
                    "Make them real, with torch.view_as_real, and build complex numbers in forward "
                    "with torch.view_as_complex."
                )
            raise Misuse(
                f"The model's parameters are {', '.join(sorted(map(str, dtypes)))}.", remedy
            )
        self._copies = self._pure.per_thread()
        # Where it was copied to: frozen parameters are on each device once.
        self._moved: dict[torch.device, FlatModule] = {}
        self._in_evaluation: FlatModule | None = None

    @property
    def keyed(self) -> bool:
        """Whether the module has dropout, and so takes keys in training."""
        return self._pure.masks is not None

    @property
    def module(self) -> nn.Module:
        """The module, with keyed dropout."""
        return self._pure.module

    @property
    def in_evaluation(self) -> FlatModule:
        """This module as it evaluates: itself, unless evaluation mode changes its output."""
        return self._in_evaluation or self

    def unflatten(self, theta: Parameters) -> dict[str, Tensor]:
        """Parameters by name as views of one vector [P]."""
        if isinstance(theta, Tensor):
            pieces = torch.split(theta, self.sizes)
            theta = tuple(piece.view(s) for piece, s in zip(pieces, self.shapes, strict=True))
        return dict(zip(self.names, theta, strict=True))

    def unflatten_rows(self, rows: Tensor) -> list[Tensor]:
        """Parameters [k, ...] as views of rows [k, P]."""
        pieces = torch.split(rows, self.sizes, dim=1)
        return [piece.view(len(rows), *s) for piece, s in zip(pieces, self.shapes, strict=True)]

    def __call__(self, theta: Parameters, *inputs: Tensor, keys: Tensor | None = None) -> Tensor:
        """The module's output with parameters `theta`: [P], or each of them by itself.

        Without the keys [B] of the samples there is no dropout.
        """
        output: Tensor = self._copies.local()(self.unflatten(theta), inputs, keys)
        return output

    def trial(self, *inputs: Tensor, samples: int) -> Tensor:
        """The output of the module itself for so many samples, with dropout if it has any."""
        return logits_of(self._pure.trial(inputs, torch.arange(samples, device=inputs[0].device)))

    def weights(self) -> Tensor:
        """The module's own parameters as a vector [P]."""
        return self._flatten(self.module)

    def with_weights(self, theta: Tensor) -> nn.Module:
        """A copy of the module with the parameters theta [P], for use outside of training.

        It is on the CPU, in evaluation mode, and has torch's own dropout again.
        """
        module = without_keys(copied(self.module)).cpu()
        return load_weights(module, theta.detach().cpu()).eval()

    def to(self, device: torch.device | str) -> FlatModule:
        """This module with frozen parameters and buffers on `device`, one for all callers."""
        device = torch.device(device)
        if all(tensor.device == device for tensor in self._pure.tensors()):
            return self
        if device not in self._moved:
            self._moved[device] = self._with(self._pure.to(device))
        return self._moved[device]

    def check(self, *inputs: Tensor) -> None:
        """Try a few samples [B, ...], and find the dropout in the module.

        Raises:
            Misuse: If the module is not pure, but for dropout.
        """
        self._pure = checked(self._pure, *inputs)
        self._copies = self._pure.per_thread()
        if (evaluated := in_evaluation(self._pure, inputs)) is not self._pure:
            self._in_evaluation = self._with(evaluated)
            self._in_evaluation._moved = {}

    def _with(self, pure: PureModule) -> FlatModule:
        other = copy.copy(self)
        other._pure, other._copies = pure, pure.per_thread()
        return other

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

    def evaluated(self) -> ModuleLoss:
        """This loss without dropout, which takes no keys."""
        return replace(self, keyed=False)

    def to(self, device: torch.device | str) -> ModuleLoss:
        """This loss with the module's buffers on `device`."""
        return replace(self, flat=self.flat.to(device))
