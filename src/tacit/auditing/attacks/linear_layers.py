"""The first and the last linear layer of a flat module, found by running it once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.core.errors import Misuse
from tacit.tasks.flat import FlatModule


@dataclass(frozen=True, eq=False)
class LinearLayer:
    """A linear layer z = W h + b as columns of the flat vector [P]."""

    name: str
    weight: Tensor  # [outputs, inputs]
    bias: Tensor | None  # [outputs]

    def weight_of(self, rows: Tensor) -> Tensor:
        """The weight in rows [..., P]: [..., outputs, inputs]."""
        return rows[..., self.weight]

    def bias_of(self, rows: Tensor) -> Tensor | None:
        """The bias in rows [..., P]: [..., outputs]; None if there is none or it is frozen."""
        return None if self.bias is None else rows[..., self.bias]


def first_linear(flat: FlatModule, shape: Sequence[int]) -> LinearLayer | None:
    """The first trained layer if it is linear and gets the module's input, else None."""
    calls, given, _ = _trace(flat, shape)
    if not calls:
        return None
    name, seen, _ = calls[0]
    unchanged = seen.numel() == given.numel() and torch.equal(seen.reshape(-1), given.reshape(-1))
    layer = _linear(flat, name, calls) if unchanged else None
    return layer if layer is not None and layer.weight.shape[1] == given.numel() else None


def last_linear(flat: FlatModule, shape: Sequence[int]) -> LinearLayer | None:
    """The last trained layer if it is linear and returns the module's output, else None."""
    calls, _, result = _trace(flat, shape)
    if not calls:
        return None
    name, _, output = calls[-1]
    unchanged = output.ndim == 2 and output.shape == result.shape and torch.equal(output, result)
    return _linear(flat, name, calls) if unchanged else None


def first_two_linear(flat: FlatModule, shape: Sequence[int]) -> tuple[LinearLayer, LinearLayer]:
    """The first two trained layers if both are linear with only a ReLU between them.

    Raises:
        Misuse: The model begins in another way, or the first layer has no bias.
    """
    calls, _, _ = _trace(flat, shape)
    first = first_linear(flat, shape)
    if first is not None and first.bias is not None and len(calls) > 1:
        (_, _, output), (name, seen, _) = calls[:2]
        second = _linear(flat, name, calls)
        if second is not None and torch.equal(seen, output.relu()):
            return first, second
    raise Misuse(
        "The model does not begin with a linear layer with bias, a ReLU and another linear layer.",
        'Choose such a model, e.g. "mlp" with hidden layers.',
    )


def activations(module: nn.Module) -> list[str]:
    """The kinds of activation in a module, such as ["Sigmoid"]."""
    kinds = {type(layer) for layer in module.modules()}
    return sorted(kind.__name__ for kind in kinds if kind.__module__ == nn.ReLU.__module__)


Call = tuple[str, Tensor, Tensor]  # the layer's name, its input and its output


def _trace(flat: FlatModule, shape: Sequence[int]) -> tuple[list[Call], Tensor, Tensor]:
    """The calls of trained layers on one random input, that input, and the module's output."""
    owners = {name.rpartition(".")[0] for name in flat.names}
    names = {layer: name for name, layer in flat.module.named_modules() if name in owners}
    calls: list[Call] = []

    def record(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        calls.append((names[layer], inputs[0].clone(), output.clone()))

    handles = [layer.register_forward_hook(record) for layer in names]
    device = next(flat.module.parameters()).device
    generator = torch.Generator().manual_seed(0)
    drawn = torch.rand(1, *shape, generator=generator, dtype=torch.float64)
    given = drawn.to(device, flat.dtype)
    try:
        with torch.no_grad():
            # With dropout: the first layer must get all of the input.
            result = flat.trial(given, samples=1)
    finally:
        for handle in handles:
            handle.remove()
    return calls, given, result


def _linear(flat: FlatModule, name: str, calls: list[Call]) -> LinearLayer | None:
    """The layer if it is linear, called once, and shares no weights."""
    layer = flat.module.get_submodule(name)
    if not isinstance(layer, nn.Linear) or sum(called == name for called, _, _ in calls) > 1:
        return None
    everywhere = [p for _, p in flat.module.named_parameters(remove_duplicate=False)]
    if any(sum(p is weight for p in everywhere) > 1 for weight in layer.parameters()):
        return None
    prefix = f"{name}." if name else ""
    columns = flat.unflatten(torch.arange(flat.width))
    weight, bias = (columns.get(f"{prefix}{kind}") for kind in ("weight", "bias"))
    return None if weight is None else LinearLayer(name, weight, bias)
