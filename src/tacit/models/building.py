"""Make registered models."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from tacit.core.errors import Misuse, first_line, unknown_name
from tacit.models.registry import MODELS


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
