"""From TOML files, plain values and overrides to checked configurations."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from tacit.config.overrides import Note, apply_overrides
from tacit.config.sections import (
    DATA_FILE_KEYS,
    DATA_SECTIONS,
    GRAPH_FILE_KEYS,
    Config,
    key_names,
)
from tacit.core.errors import Misuse, first_line, unknown_name


def no_note(text: str) -> None:
    """Ignore a note."""


def load_config(path: Path, overrides: Sequence[str] = (), note: Note = no_note) -> Config:
    """Read a TOML file and apply overrides such as "algorithm.lr=0.05".

    `note` is told of options that an override of a kind drops.
    """
    try:
        # Some editors put a byte-order mark in front.
        values = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise Misuse(
            f"There is no configuration file {path}.", "Check the name; examples/ has some."
        ) from None
    except (OSError, UnicodeDecodeError) as problem:
        raise Misuse(
            f"Cannot read {path}: {problem}.", "Give a text file in TOML format."
        ) from None
    except tomllib.TOMLDecodeError as problem:
        raise Misuse(f"{path} is not valid TOML: {problem}.", "Correct that line.") from None
    origin = f"{path} with --set" if overrides else str(path)
    return make_config(_resolve_files(values, path.parent), overrides, origin, note)


def make_config(
    values: dict[str, Any],
    overrides: Sequence[str] = (),
    origin: str = "The configuration",
    note: Note = no_note,
) -> Config:
    """Check plain values and make a configuration from them; errors start with `origin`."""
    if "python" in values:
        raise Misuse(
            f"{origin} describes a run that was made in Python: it has no configuration.",
            "Run the script again, and audit there: tacit.audit(run). `tacit report` and `tacit "
            "export` read its folder.",
        )
    if overrides:
        values = _resolve_files(apply_overrides(values, overrides, note), Path())
    try:
        config = Config.model_validate(values)
    except ValidationError as problem:
        raise _explain(problem, origin) from None
    if config.task is not None:
        conflict = f"does not go with [task]: {config.task.name} makes its own data."
        for section in DATA_SECTIONS:
            if section in config.model_fields_set:
                raise Misuse(f"{origin}: [{section}] {conflict}", "Remove one of the two sections.")
        if "batch_size" in config.run.model_fields_set:
            raise Misuse(f"{origin}: run.batch_size {conflict}", "Set task.batch_size instead.")
    return config


def with_keys(config: Config, section: str, **values: Any) -> Config:
    """A copy of a configuration with other values for some keys of one section."""
    plain = config.as_dict()
    plain[section] = plain.get(section, {}) | values
    return make_config(plain)


def _resolve_files(values: dict[str, Any], base: Path) -> dict[str, Any]:
    """Make file names absolute, so that the config.toml of a run works from any folder."""
    if isinstance(data := values.get("data"), dict):
        values = values | {"data": _absolute(data, DATA_FILE_KEYS, base)}
    if isinstance(graph := values.get("graph"), dict):
        values = values | {"graph": _resolve_graph(graph, base)}
    return values


def _resolve_graph(graph: Any, base: Path) -> Any:
    """A graph, or one of several, with absolute file names; anything else as it is."""
    if not isinstance(graph, dict):
        return graph
    graph = _absolute(graph, GRAPH_FILE_KEYS, base)
    if isinstance(phases := graph.get("phases"), list):
        graph["phases"] = [_resolve_graph(phase, base) for phase in phases]
    if "of" in graph:
        graph["of"] = _resolve_graph(graph["of"], base)
    return graph


def _absolute(section: dict[str, Any], keys: Sequence[str], base: Path) -> dict[str, Any]:
    named = [key for key in keys if isinstance(name := section.get(key), str) and "://" not in name]
    return section | {key: _absolute_name(key, section[key], base) for key in named}


def _absolute_name(key: str, name: str, base: Path) -> str:
    try:
        return str((base / name).resolve())
    except (OSError, ValueError, RuntimeError) as problem:
        # A null character, or links that lead to themselves.
        raise Misuse(
            f"{key} = {name!r} is not the name of a file: {first_line(problem)}.",
            "Give another file.",
        ) from None


def _explain(problem: ValidationError, origin: str) -> Misuse:
    """All errors in words, one for each key."""
    problems: dict[str, Misuse] = {}
    for error in problem.errors():
        path = [str(part) for part in error["loc"]]
        # Where a key takes several types, the last part is the type that was tried.
        while len(path) > 2 and (path[-1] in ("int", "float", "str") or "[" in path[-1]):
            path.pop()
        problems.setdefault(".".join(path), _explain_error(error, path))
    first, *others = problems.values()
    if not others:
        return Misuse(f"{origin}: {first.problem}", first.remedy)
    lines = "".join(f"  {misuse}\n" for misuse in problems.values())
    title = f"{origin} has {len(problems)} problems:\n"
    return Misuse(title + lines, "All keys are in docs/reference/configuration.md.")


def _explain_error(error: ErrorDetails, path: list[str]) -> Misuse:
    key, value = ".".join(path), error.get("input")
    if error["type"] == "extra_forbidden":
        kind = "section" if isinstance(value, dict) else "key"
        return unknown_name(f"there is no {kind} {key!r}.", path[-1], _known_keys(path[:-1]))
    if error["type"] == "missing":
        return Misuse(f"{key} is not set.", f"Add {path[-1]} to [{'.'.join(path[:-1])}].")
    remedy = f"{error['msg']}.".replace("Input", "It", 1)
    if error["type"] == "model_type":
        remedy = f"Write a section [{key}] with its keys below."
    if key == "data.clients" and isinstance(value, int):
        remedy = "It lists the clients' names; their number is graph.clients."
    return Misuse(f"{key} = {value!r} is not possible.", remedy)


def _known_keys(path: list[str]) -> list[str]:
    model: type[BaseModel] = Config
    for key in path:
        if key.isdigit():
            # A place in a list, whose sections are the last model already.
            continue
        annotation = model.model_fields[key].annotation
        parts = [annotation, *get_args(annotation)]
        candidates = [*parts, *(inner for part in parts for inner in get_args(part))]
        model = next(c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel))
    return list(key_names(model).values())
