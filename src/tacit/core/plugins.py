"""Registries that other packages can extend through Python's entry points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar, cast

from tacit.core.errors import Misuse, first_line, unknown_name

T = TypeVar("T")


class Registry(Mapping[str, T], Generic[T]):
    """Named objects: the built-in ones, then those that installed packages register.

    A package registers an object in its own `pyproject.toml`:

        [project.entry-points."tacit.algorithms"]
        gossip = "mypackage.gossip:GossipAveraging"

    Entries are imported when they are used, so a broken plugin affects only its own users.

    Args:
        group: Entry-point group, such as `"tacit.algorithms"`.
        kind: What an entry is called in messages, such as `"algorithm"`.
        builtin: The built-in entries, as objects or as `"module:attribute"` paths.
    """

    def __init__(self, group: str, kind: str, builtin: Mapping[str, T | str]) -> None:
        self.group, self.kind = group, kind
        self._builtin = dict(builtin)

    @cached_property
    def _plugins(self) -> dict[str, EntryPoint]:
        points = {point.name: point for point in entry_points(group=self.group)}
        return {name: points[name] for name in sorted(points) if name not in self._builtin}

    def __getitem__(self, name: str) -> T:
        if name in self._builtin:
            entry = self._builtin[name]
            if isinstance(entry, str):
                module, _, attribute = entry.partition(":")
                entry = self._builtin[name] = cast(T, getattr(import_module(module), attribute))
            return entry
        if name not in self._plugins:
            raise KeyError(name)
        point = self._plugins[name]
        try:
            return cast(T, point.load())
        except Exception as problem:  # whatever another package's module raises
            raise Misuse(
                f"The {self.kind} {name!r} is registered by {_package(point)}, but {point.value} "
                f"cannot be imported: {first_line(problem)}.",
                "Repair or uninstall that package.",
            ) from problem

    def __iter__(self) -> Iterator[str]:
        yield from self._builtin
        yield from self._plugins

    def __len__(self) -> int:
        return len(self._builtin) + len(self._plugins)

    def __contains__(self, name: object) -> bool:
        return name in self._builtin or name in self._plugins

    def find(self, name: str) -> T:
        """The entry called `name`; an unknown name is refused with the closest one."""
        if name not in self:
            raise unknown_name(f"There is no {self.kind} {name!r}.", name, self)
        return self[name]

    def loadable(self) -> tuple[dict[str, T], list[Misuse]]:
        """All entries that can be imported, and the errors of those that cannot."""
        entries, problems = {}, []
        for name in self:
            try:
                entries[name] = self[name]
            except Misuse as problem:
                problems.append(problem)
        return entries, problems

    def package(self, name: str) -> str | None:
        """The package that registers an entry; None for a built-in one."""
        return _package(self._plugins[name]) if name in self._plugins else None

    def path(self, name: str) -> str | None:
        """The "module:attribute" that a plugin registers as `name`; None for other names."""
        return self._plugins[name].value if name in self._plugins else None


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an installed package"
