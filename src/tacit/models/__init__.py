"""The small networks of the papers, by name, for given input shapes and numbers of classes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import nn

from tacit.core.errors import Misuse, unknown_name
from tacit.models.convolutional import lenet, sigmoid_cnn, two_layer_cnn
from tacit.models.perceptron import linear, mlp

MODELS: dict[str, Callable[..., nn.Module]] = {
    "cnn2": two_layer_cnn,
    "sigmoid-cnn3": sigmoid_cnn,
    "lenet": lenet,
    "mlp": mlp,
    "linear": linear,
}


def build(name: str, shape: Sequence[int], classes: int, **options: object) -> nn.Module:
    """The model called `name` for inputs of `shape` (without the batch) and `classes` outputs."""
    if name not in MODELS:
        raise unknown_name(
            f"There is no model {name!r}.", name, MODELS, '; or your own as "package.module:Class"'
        )
    try:
        return MODELS[name](tuple(shape), classes, **options)
    except (TypeError, ValueError, RuntimeError, ZeroDivisionError) as problem:
        if isinstance(problem, Misuse):
            raise
        given = ", ".join(f"{key} = {value!r}" for key, value in options.items())
        raise Misuse(
            f"Model {name!r} cannot be made with {given}: {problem}.", "See docs/configuration.md."
        ) from None


__all__ = ["MODELS", "build", "lenet", "linear", "mlp", "sigmoid_cnn", "two_layer_cnn"]
