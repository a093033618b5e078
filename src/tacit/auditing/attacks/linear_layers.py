"""Where in a flat vector the first and the last linear layer are, found by running the module once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.tasks.flat import FlatModule


@dataclass(frozen=True)
class LinearLayer:
    """A linear layer z = W h + b as columns of the flat vector [P]."""

    name: str
    outputs: int
    inputs: int
    weight: slice
    bias: slice | None

    def weight_of(self, rows: Tensor) -> Tensor:
        """The part of W in rows [..., P]: [..., outputs, inputs]."""
        return rows[..., self.weight].reshape(*rows.shape[:-1], self.outputs, self.inputs)

    def bias_of(self, rows: Tensor) -> Tensor | None:
        """The part of b in rows [..., P]: [..., outputs]; None if it has none or does not train it."""
        return None if self.bias is None else rows[..., self.bias]


def first_linear(flat: FlatModule, shape: Sequence[int]) -> LinearLayer | None:
    """The first layer with trained parameters if it is linear and sees the inputs themselves, else None."""
    calls, given, _ = _run(flat, shape)
    if not calls:
        return None
    name, seen, _ = calls[0]
    untouched = seen.numel() == given.numel() and torch.equal(seen.reshape(-1), given.reshape(-1))
    layer = _linear(flat, name, calls) if untouched else None
    return layer if layer is not None and layer.inputs == given.numel() else None


def last_linear(flat: FlatModule, shape: Sequence[int]) -> LinearLayer | None:
    """The last layer with trained parameters if it is linear and gives the module's outputs, else None."""
    calls, _, result = _run(flat, shape)
    if not calls:
        return None
    name, _, given = calls[-1]
    untouched = given.ndim == 2 and given.shape == result.shape and torch.equal(given, result)
    return _linear(flat, name, calls) if untouched else None


def activations(module: nn.Module) -> list[str]:
    """The kinds of activation in a module, such as ["Sigmoid"]."""
    kinds = [
        type(layer) for layer in module.modules() if type(layer).__module__ == nn.ReLU.__module__
    ]
    return sorted({kind.__name__ for kind in kinds})


Call = tuple[str, Tensor, Tensor]  # the layer's name, what went in and what came out


def _run(flat: FlatModule, shape: Sequence[int]) -> tuple[list[Call], Tensor, Tensor]:
    """The layers with trained parameters of their own in the order of their calls on one random input."""
    owners = {name.rpartition(".")[0] for name in flat.names}
    calls: list[Call] = []
    handles = []
    for name, layer in flat.module.named_modules():
        if name in owners:

            def note(
                _: nn.Module, inputs: tuple[Tensor, ...], output: Tensor, name: str = name
            ) -> None:
                calls.append((name, inputs[0].clone(), output.clone()))

            handles.append(layer.register_forward_hook(note))
    device = next(flat.module.parameters()).device
    draw = torch.Generator().manual_seed(0)
    given = torch.rand(1, *shape, generator=draw, dtype=torch.float64).to(device, flat.dtype)
    try:
        with torch.no_grad():
            result: Tensor = flat.module(given)
    finally:
        for handle in handles:
            handle.remove()
    return calls, given, result


def _linear(flat: FlatModule, name: str, calls: list[Call]) -> LinearLayer | None:
    """Its place in the vector if this layer is linear, called once and shares its weights with no other."""
    layer = flat.module.get_submodule(name)
    if not isinstance(layer, nn.Linear) or sum(called == name for called, _, _ in calls) > 1:
        return None
    everywhere = [p for _, p in flat.module.named_parameters(remove_duplicate=False)]
    if any(sum(p is own for p in everywhere) > 1 for own in layer.parameters()):
        return None
    prefix = f"{name}." if name else ""
    ends = torch.tensor(flat.sizes).cumsum(0).tolist()
    places = {
        own: slice(end - size, end)
        for own, size, end in zip(flat.names, flat.sizes, ends, strict=True)
    }
    if f"{prefix}weight" not in places:
        return None
    bias = places.get(f"{prefix}bias")
    return LinearLayer(name, layer.out_features, layer.in_features, places[f"{prefix}weight"], bias)
