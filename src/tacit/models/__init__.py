"""Small networks of the papers, by name.

Packages can register further models under the entry-point group `tacit.models`: a function
`(shape, classes, *, option=…) -> nn.Module`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from tacit.core.errors import Misuse, first_line, unknown_name
from tacit.core.plugins import Registry
from tacit.models.networks import (
    deep_tanh_cnn,
    lenet,
    linear,
    mlp,
    sigmoid_cnn,
    tanh_cnn,
    two_layer_cnn,
)

MODELS: Registry[Callable[..., nn.Module]] = Registry(
    "tacit.models",
    "model",
    {
        "cnn2": two_layer_cnn,
        "sigmoid-cnn3": sigmoid_cnn,
        "tanh-cnn2": tanh_cnn,
        "tanh-cnn6": deep_tanh_cnn,
        "lenet": lenet,
        "mlp": mlp,
        "linear": linear,
    },
)


def build(name: str, shape: Sequence[int], classes: int, **options: object) -> nn.Module:
    """Make a registered model for inputs of `shape` (without the batch) and `classes` outputs."""
    if name not in MODELS:
        also = '; or your own as "package.module:Class"'
        raise unknown_name(f"There is no model {name!r}.", name, MODELS, also)
    try:
        module = MODELS[name](tuple(shape), classes, **options)
    except Misuse:
        raise
    # Wrong options raise many types of errors, and a plugin can raise anything.
    except Exception as problem:
        given = ", ".join(f"{key} = {value!r}" for key, value in options.items())
        raise Misuse(
            f"Model {name!r} cannot be made with {given or 'these inputs'}: {first_line(problem)}.",
            "Check its options in docs/reference/configuration.md.",
        ) from problem
    if not isinstance(module, nn.Module):
        raise Misuse(
            f"Model {name!r} is {type(module).__name__}, not a torch.nn.Module.",
            f"Repair or uninstall {MODELS.package(name)}.",
        )
    return module


__all__ = [
    "MODELS",
    "build",
    "deep_tanh_cnn",
    "lenet",
    "linear",
    "mlp",
    "sigmoid_cnn",
    "tanh_cnn",
    "two_layer_cnn",
]
