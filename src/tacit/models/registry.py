"""The registry of the models."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

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
