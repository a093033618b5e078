"""The models by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tacit.core.errors import Misuse, first_line, unknown_name
from tacit.core.plugins import Registry

if TYPE_CHECKING:
    from torch import nn

MODELS: Registry[Callable[..., nn.Module]] = Registry(
    "tacit.models",
    "model",
    {
        "cnn2": "tacit.models.networks:two_layer_cnn",
        "sigmoid-cnn3": "tacit.models.networks:sigmoid_cnn",
        "tanh-cnn2": "tacit.models.networks:tanh_cnn",
        "tanh-cnn6": "tacit.models.networks:deep_tanh_cnn",
        "lenet": "tacit.models.networks:lenet",
        "vgg11": "tacit.models.networks:vgg11",
        "resnet18-gn": "tacit.models.resnet:resnet18",
        "transformer": "tacit.models.transformer:transformer",
        "mlp": "tacit.models.networks:mlp",
        "linear": "tacit.models.networks:linear",
    },
)


def build(name: str, shape: Sequence[int], classes: int, **options: object) -> nn.Module:
    """Make a registered model for inputs of `shape` (without the batch) and `classes` outputs."""
    from torch import nn

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
