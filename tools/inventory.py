"""What users can name: commands, options, configuration keys, public names.

`python tools/inventory.py > tests/unit/inventory-VERSION.txt` keeps what a release has. A test
compares it with today's code: what is gone must be named under "Removed" in the changelog.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import typer
from pydantic import BaseModel

import tacit
from tacit import data
from tacit.cli.app import COMMANDS, app
from tacit.compression import CODECS
from tacit.config.kinds import options_of_kind
from tacit.config.options import OPTION_FAMILIES, SCHEDULES
from tacit.config.sections import Config
from tacit.config.tasks import TASKS
from tacit.data.partitions import _KINDS
from tacit.graph.named import TOPOLOGIES
from tacit.models import MODELS

# Packages and classes whose own public names users write.
OPEN_PACKAGES = ("callbacks", "compression", "data", "models")
OPEN_CLASSES = ("Audit", "Graph", "Objective", "Privacy", "Run", "SavedRun", "Topology")
OUR_PACKAGES = (None, "tacit-papers", "tacit-benches")


def inventory() -> list[str]:
    """One line for each thing, sorted: its kind, then its name."""
    return sorted({*commands(), *configuration_keys(), *kinds(), *public_names()})


def commands() -> Iterator[str]:
    root = typer.main.get_command(app)
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        if COMMANDS.package(name) in OUR_PACKAGES:
            yield from _options(f"tacit {name}", command)


def _options(path: str, command: Any) -> Iterator[str]:
    yield f"command {path}"
    for name, child in getattr(command, "commands", {}).items():
        yield from _options(f"{path} {name}", child)
    for parameter in command.params:
        for name in (*parameter.opts, *parameter.secondary_opts):
            if name.startswith("--"):
                yield f"option {path} {name}"


def configuration_keys(
    model: type[BaseModel] = Config, path: str = "", above: tuple[type[BaseModel], ...] = ()
) -> Iterator[str]:
    """The keys of a section and of those inside it; of one that contains itself, once."""
    for key, field in model.model_fields.items():
        full = f"{path}{field.alias or key}"
        yield f"key {full}"
        for kind in _models_in(get_type_hints(model)[key]):
            if kind not in (model, *above):
                yield from configuration_keys(kind, f"{full}.", (model, *above))


def _models_in(hint: Any) -> Iterator[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        yield hint
    for argument in get_args(hint):
        yield from _models_in(argument)


def kinds() -> Iterator[str]:
    """Values of the keys that choose something, with the options of each."""
    chosen = {
        "algorithm.name": tacit.ALGORITHMS,
        "data.name": data.names(),
        "graph.kind": TOPOLOGIES,
        "model.name": MODELS,
        "partition.kind": _KINDS,
        "task.name": TASKS,
    }
    for key, names in chosen.items():
        for name in names:
            yield f"choice {key} = {name}"
            for option in options_of_kind(key.split(".")[0], name) or ():
                yield f"choice {key} = {name}, {option}"
    for family in (SCHEDULES, *OPTION_FAMILIES.values()):
        for name, member in family.members.items():
            yield f"choice {family.selector} = {name}"
            for option in inspect.signature(member).parameters:
                yield f"choice {family.selector} = {name}, {option}"
    yield from (f"choice codec = {name}" for name in CODECS)


def public_names() -> Iterator[str]:
    yield from (f"name tacit.{name}" for name in tacit.__all__)
    for package in OPEN_PACKAGES:
        module = getattr(tacit, package)
        # Without a list of public names, those that the module itself defines.
        names = getattr(module, "__all__", None) or [
            name
            for name, value in vars(module).items()
            if getattr(value, "__module__", None) == module.__name__
        ]
        yield from (f"name tacit.{package}.{name}" for name in names if name[0] != "_")
    for name in OPEN_CLASSES:
        for member in (*dir(getattr(tacit, name)), *_fields(getattr(tacit, name))):
            if member[0] != "_":
                yield f"name tacit.{name}.{member}"


def _fields(kind: type[Any]) -> Iterator[str]:
    yield from getattr(kind, "__dataclass_fields__", ())


if __name__ == "__main__":
    print("\n".join(inventory()))
