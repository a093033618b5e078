"""The code that a configuration names: classes and functions by path, and entries of plugins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tacit.algorithms import ALGORITHMS
from tacit.compression import CODECS
from tacit.config.sections import Config
from tacit.core.plugins import Registry
from tacit.data.registry import DATASETS
from tacit.models import MODELS


@dataclass(frozen=True)
class NamedCode:
    """Something that runs when a configuration is used.

    Attributes:
        key: The key that names it, such as "model.name".
        name: The value of that key.
        path: "package.module:Name" if it is not part of Tacit, else None.
        package: The installed package that registers the name, if one does.
        installed: Whether this machine knows the name. Paths are not looked up.
    """

    key: str
    name: str
    path: str | None = None
    package: str | None = None
    installed: bool = True


def named_code(config: Config) -> list[NamedCode]:
    """Everything that runs when a configuration is used; nothing is imported to find it."""
    codes = [_find("algorithm.name", config.algorithm.name, ALGORITHMS)]
    # A codec is an option of any name, at any depth. A plugin's name counts wherever it stands.
    for text in _strings(config.algorithm.options):
        if (code := _find("algorithm: codec", text, CODECS)).package is not None:
            codes.append(code)
    for name in config.run.metrics or ():
        if ":" in name:
            codes.append(NamedCode("run.metrics", name, name))
    if config.task is not None:
        return [*codes, NamedCode("task.name", config.task.name)]
    codes.append(_find("model.name", config.model.name, MODELS))
    if (function := config.data.function) is not None:
        return [*codes, NamedCode("data.function", function, function)]
    return [*codes, _find("data.name", config.data.name, DATASETS, by_path=False)]


def _find(key: str, name: str, registry: Registry[Any], *, by_path: bool = True) -> NamedCode:
    if by_path and ":" in name:
        return NamedCode(key, name, name)
    return NamedCode(
        key, name, registry.path(name), registry.package(name), installed=name in registry
    )


def _strings(value: Any) -> Iterator[str]:
    """All texts in an option and its tables and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _strings(item)
