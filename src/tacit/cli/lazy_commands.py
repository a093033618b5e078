"""Commands that are imported when they are used, so that the others do not slow them down."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import typer
from typer.core import TyperGroup

from tacit.core.errors import Misuse
from tacit.core.plugins import Registry

Commands = Registry[Callable[..., None] | typer.Typer]


class LazyCommands(Mapping[str, Any]):
    """The commands of a registry; one that cannot be imported fails only when it is used."""

    def __init__(self, registry: Commands) -> None:
        self._registry = registry
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            try:
                command = self._registry[name]
            except Misuse as problem:
                command = _broken_command(problem)
            parent = typer.Typer()
            if not isinstance(command, typer.Typer):
                parent.command(name)(command)
                made: Any = typer.main.get_group(parent).commands[name]
            elif _is_single(command):
                made = typer.main.get_command(command)
            else:
                parent.add_typer(command, name=name)
                made = typer.main.get_group(parent).commands[name]
            self._made[name] = made
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._registry

    def __iter__(self) -> Iterator[str]:
        return iter(self._registry)

    def __len__(self) -> int:
        return len(self._registry)


def lazy_group(registry: Commands) -> type[TyperGroup]:
    """The `cls` of a `typer.Typer` that has the commands of a registry."""

    class LazyGroup(TyperGroup):
        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            commands: Any = LazyCommands(registry)
            self.commands = commands

    return LazyGroup


def _is_single(app: typer.Typer) -> bool:
    """Whether an app has one command and nothing else: it is then that command."""
    commands = len(app.registered_commands)
    return commands == 1 and not app.registered_groups and app.registered_callback is None


def _broken_command(problem: Misuse) -> Callable[..., None]:
    def command() -> None:
        raise problem

    command.__doc__ = f"Not available: {problem.problem}"
    return command
