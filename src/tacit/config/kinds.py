"""Which options a kind of graph, a model, an algorithm and so on has."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable

from tacit.core.errors import Misuse

# The key of each section that says what its other keys are options of.
SELECTORS = {
    "graph": "kind",
    "partition": "kind",
    "model": "name",
    "algorithm": "name",
    "data": "name",
    "task": "name",
}


def options_of_kind(section: str, kind: str) -> set[str] | None:
    """The options of a kind; None of one that is not known, which is an error elsewhere."""
    try:
        return set(_OPTIONS[section](kind))
    except (Misuse, KeyError, ValueError, TypeError):
        return None


def options_of_member(selector: str, name: str) -> set[str] | None:
    """The fields of a member of an option family, such as a law of noise; None if unknown."""
    from tacit.config.options import OPTION_FAMILIES, SCHEDULES

    for family in (SCHEDULES, *OPTION_FAMILIES.values()):
        if family.selector == selector and name in family.members:
            return {field.name for field in dataclasses.fields(family.members[name])}
    return None


def _graph(kind: str) -> list[str]:
    from tacit.graph.named import TOPOLOGIES

    if kind == "matrix":
        return ["matrix"]
    names = inspect.signature(TOPOLOGIES[kind]).parameters
    return ["clients" if name == "n" else name for name in names]


def _partition(kind: str) -> list[str]:
    from tacit.data.partitions import option_of

    return [name for name in [option_of(kind)] if name is not None]


def _model(name: str) -> list[str]:
    from tacit.config.options import import_object
    from tacit.models.registry import MODELS

    if ":" in name:
        return list(inspect.signature(import_object(name, "model.name")).parameters)
    # The first two are the shape of the data and the number of classes.
    return list(inspect.signature(MODELS.find(name)).parameters)[2:]


def _algorithm(name: str) -> list[str]:
    from tacit.algorithms.algorithm import options_of
    from tacit.config.options import algorithm_class

    return list(options_of(algorithm_class(name, "algorithm.name")))


def _data(name: str) -> list[str]:
    from tacit import data

    return list(data.describe(name).options)


def _task(name: str) -> list[str]:
    from tacit.config.tasks import TASKS

    return list(inspect.signature(TASKS[name]).parameters)


_OPTIONS: dict[str, Callable[[str], list[str]]] = {
    "graph": _graph,
    "partition": _partition,
    "model": _model,
    "algorithm": _algorithm,
    "data": _data,
    "task": _task,
}
