"""Layers of modules: those that are not pure functions, and those that are known to be."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tacit.core.errors import Misuse

# Files of torch.nn with layers that keep parameters in further places, or have paths of their own.
KEPT = (".rnn", ".transformer")


def check_layers(module: nn.Module) -> None:
    """Raise Misuse for layers that are not pure functions of parameters and input."""
    for name, layer in module.named_modules():
        kind = type(layer).__name__
        named = f"Layer {name or 'model'!r} is a {kind}"
        tracks = getattr(layer, "track_running_stats", False)
        if tracks and getattr(layer, "running_mean", None) is not None:
            raise Misuse(
                f"{named}: its running statistics change in training and are not part of the "
                "model that clients exchange.",
                "Call tacit.models.replace_batch_norm(model), which puts nn.GroupNorm in its "
                "place, or set track_running_stats=False.",
            )
        if isinstance(layer, torch.jit.ScriptModule):
            raise Misuse(
                f"{named}, whose parameters cannot be replaced.",
                "Give the module as it was before torch.jit.script or torch.jit.trace.",
            )
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None:
            raise Misuse(
                f"Layer {name!r} has max_norm: it changes its weights whenever it is called.",
                "Leave max_norm out; weight_decay of the algorithm keeps weights small.",
            )
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.sparse:
            raise Misuse(
                f"Layer {name!r} has sparse gradients, but clients exchange whole vectors.",
                "Set sparse=False.",
            )
    for name, parameter in module.named_parameters():
        hooks: Any = (parameter._backward_hooks, parameter._post_accumulate_grad_hooks)
        if parameter.requires_grad and any(hooks):
            raise Misuse(
                f"Parameter {name!r} has a hook for its gradient, which is lost when clients get "
                "parameters of their own.",
                "Change the gradient in the model's forward instead of in a hook, or freeze the "
                "parameter: requires_grad_(False).",
            )


def is_known(module: nn.Module) -> bool:
    """Whether a module has only layers of torch and Tacit that are functions of their parameters.

    Not the recurrent ones, which keep a list of their parameters, nor any with hooks.
    """
    return all(map(_is_known_layer, module.modules()))


def _is_known_layer(layer: nn.Module) -> bool:
    kind = type(layer)
    origin = kind.__module__
    ours = origin.startswith(("tacit.models.", "tacit.tasks."))
    known = ours or (origin.startswith("torch.nn.modules.") and not origin.endswith(KEPT))
    hooks = (
        layer._forward_hooks, layer._forward_pre_hooks,
        layer._backward_hooks, layer._backward_pre_hooks,
    )  # fmt: skip
    calls = kind.__call__ is nn.Module.__call__ and "forward" not in vars(layer)
    return known and calls and not any(hooks) and not isinstance(layer, nn.MultiheadAttention)


def has_backward_hooks(module: nn.Module) -> bool:
    """Whether a layer has hooks of its backward pass, which torch.func does not call."""
    return any(layer._backward_hooks or layer._backward_pre_hooks for layer in module.modules())
