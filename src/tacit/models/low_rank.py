"""Low-rank adapters (LoRA, Hu et al. 2022): only they are trained, and only they travel.

A linear layer y = W x + b becomes y = W x + b + (α/r) B A x with frozen W and b, a random A [r, in]
and B [out, r] = 0. Clients share the frozen weights: what differs between them is A and B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.core.checks import check_count, check_positive
from tacit.core.errors import Misuse
from tacit.models.attention import PlainAttention
from tacit.models.parameters import copied, replace_layers


class LoRALinear(nn.Linear):
    """A linear layer with frozen weights and a low-rank adapter."""

    lora_a: nn.Parameter
    lora_b: nn.Parameter
    scale: float

    @classmethod
    def of(cls, layer: nn.Linear, rank: int, alpha: float) -> LoRALinear:
        """The layer itself, with an adapter."""
        layer.__class__ = cls
        assert isinstance(layer, cls)
        layer.requires_grad_(False)
        layer.scale = alpha / rank
        like = layer.weight
        layer.lora_a = nn.Parameter(like.new_empty(rank, layer.in_features))
        layer.lora_b = nn.Parameter(like.new_empty(layer.out_features, rank))
        layer.reset_parameters()
        prevent_fast_path(layer)
        return layer

    def reset_parameters(self) -> None:
        _reset(self.lora_a, self.lora_b)

    def forward(self, x: Tensor) -> Tensor:
        low = functional.linear(functional.linear(x, self.lora_a), self.lora_b)
        return super().forward(x) + self.scale * low

    def merged(self) -> nn.Linear:
        """A plain layer that computes the same."""
        plain = nn.Linear(self.in_features, self.out_features, self.bias is not None)
        plain.weight = nn.Parameter(self.weight.detach() + self.scale * (self.lora_b @ self.lora_a))
        plain.bias = self.bias
        return plain


class ProjectionAdapter(nn.Module):
    """Adapters of the projections of queries, keys and values of attention with E features."""

    def __init__(self, like: Tensor, rank: int, alpha: float) -> None:
        super().__init__()
        self.scale, features = alpha / rank, like.shape[1]
        self.lora_a = nn.Parameter(like.new_empty(3, rank, features))
        self.lora_b = nn.Parameter(like.new_empty(3, features, rank))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _reset(self.lora_a, self.lora_b)

    def forward(self, *inputs: Tensor) -> list[Tensor]:
        """What is added to queries, keys and values, of three inputs or of one for all."""
        if len(inputs) == 1:
            low = functional.linear(inputs[0], self.lora_a.flatten(0, 1)).chunk(3, -1)
        else:
            low = tuple(map(functional.linear, inputs, self.lora_a))
        return [self.scale * functional.linear(x, b) for x, b in zip(low, self.lora_b, strict=True)]


def lora(
    module: nn.Module,
    rank: int = 8,
    alpha: float = 16,
    targets: Sequence[str] | None = None,
    train: Sequence[str] = (),
) -> nn.Module:
    """A copy of a module with frozen weights and low-rank adapters, which are all that is trained.

    Args:
        module: A trained model; it is not changed.
        rank: The rank r of the adapters.
        alpha: The adapters' outputs are scaled by alpha/rank.
        targets: Names of the layers that get adapters, whole or from a dot on, such as
            ["linear1", "self_attn"]. They are nn.Linear or nn.MultiheadAttention, which gets
            adapters of all its projections. Default: all of them.
        train: Names of layers that are trained as a whole, such as a new last layer.

    Returns:
        A module for `Task`. `merge_lora` turns it into a plain one.

    Raises:
        Misuse: If a name is none of a suitable layer, or there is no such layer.

    Example:
        >>> import tacit
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
        >>> adapted = tacit.models.lora(model, rank=4, targets=["0"], train=["2"])
        >>> sum(p.numel() for p in adapted.parameters() if p.requires_grad)
        707
    """
    check_count("rank", rank)
    check_positive("alpha", alpha, example=16)
    adapted = copied(module).requires_grad_(False)
    named = dict(adapted.named_modules())
    whole = {layer for name in train for layer in _matching(name, named, "train")}
    inner = {part for layer in whole for part in layer.modules()}
    suitable: dict[str, nn.Module] = {
        name: layer
        for name, layer in named.items()
        if _is_adaptable(layer) and layer not in inner and not _is_projection(name, named)
    }
    chosen = list(suitable.values())
    if targets is not None:
        chosen = [layer for name in targets for layer in _matching(name, suitable, "targets")]
    if not chosen:
        raise Misuse(
            "The model has no nn.Linear or nn.MultiheadAttention to adapt.",
            "Give a model with such layers, or train it as a whole.",
        )
    for layer in dict.fromkeys(chosen):
        _adapt(layer, rank, alpha)
    for layer in whole:
        layer.requires_grad_(True)
    for layer in adapted.modules():
        if isinstance(layer, nn.TransformerEncoder):
            # Nested tensors are for the fast path, which reads weights without their adapters.
            layer.use_nested_tensor = False
    return adapted


def merge_lora(module: nn.Module) -> nn.Module:
    """A copy of a module with its adapters added to its weights, which are all trainable again.

    Args:
        module: A module that `lora` returned, such as with weights of a run in it: see
            `load_weights`.
    """
    merged = replace_layers(
        copied(module), lambda layer: layer.merged() if isinstance(layer, LoRALinear) else None
    )
    for layer in list(merged.modules()):
        if isinstance(layer, PlainAttention) and isinstance(layer.adapter, ProjectionAdapter):
            _merge_projections(layer, layer.adapter)
    return merged.requires_grad_(True)


def prevent_fast_path(layer: nn.Module) -> None:
    """Keep transformer layers from their fast path in evaluation, which would skip adapters."""
    layer.register_forward_pre_hook(_nothing)


def _nothing(layer: nn.Module, arguments: Any) -> None:
    return None


def _adapt(layer: nn.Module, rank: int, alpha: float) -> None:
    if isinstance(layer, nn.Linear):
        LoRALinear.of(layer, rank, alpha)
        return
    assert isinstance(layer, nn.MultiheadAttention)
    if not layer._qkv_same_embed_dim:
        raise Misuse(
            "The model has attention with keys or values of other sizes than its queries.",
            "Give `targets` without it.",
        )
    attention = PlainAttention.of(layer)
    attention.adapter = ProjectionAdapter(attention.in_proj_weight, rank, alpha)
    LoRALinear.of(attention.out_proj, rank, alpha)
    prevent_fast_path(attention)


def _merge_projections(layer: PlainAttention, adapter: ProjectionAdapter) -> None:
    low = adapter.scale * (adapter.lora_b @ adapter.lora_a).detach()
    layer.in_proj_weight = nn.Parameter(layer.in_proj_weight.detach() + low.flatten(0, 1))
    hooks = layer._forward_pre_hooks
    for number in [number for number, hook in hooks.items() if hook is _nothing]:
        del hooks[number]
    layer.become_usual()


def _matching(name: str, named: dict[str, nn.Module], option: str) -> list[nn.Module]:
    """The layers with this name, whole or from a dot on."""
    layers = [layer for path, layer in named.items() if f".{path}".endswith(f".{name}")]
    if not layers:
        known = ", ".join(path for path in list(named)[:12] if path)
        raise Misuse(f"{option} has {name!r}, which is no layer.", f"Choose among: {known}.")
    return layers


def _is_adaptable(layer: nn.Module) -> bool:
    linear = isinstance(layer, nn.Linear) and type(layer).forward is nn.Linear.forward
    return linear or isinstance(layer, nn.MultiheadAttention)


def _is_projection(name: str, named: dict[str, nn.Module]) -> bool:
    """Whether a layer is part of attention, which is adapted as a whole."""
    parent = name.rpartition(".")[0]
    return name != parent and isinstance(named[parent], nn.MultiheadAttention)


def _reset(a: Tensor, b: Tensor) -> None:
    """Random A, with the deviation of a linear layer's weights, and B = 0."""
    with torch.no_grad():
        bound = 1 / math.sqrt(a.shape[-1])
        a.uniform_(-bound, bound)
        b.zero_()
