"""Which options a kind of graph, a model, an algorithm and so on has."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import get_type_hints

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
        return set(_option_names(section, kind))
    except (Misuse, KeyError, ValueError, TypeError):
        return None


# What knows the options takes seconds to import, and few commands need it.
def _option_names(section: str, kind: str) -> Iterable[str]:
    match section:
        case "graph":
            from tacit.graph.named import TOPOLOGIES

            if kind == "matrix":
                return ["matrix"]
            names = inspect.signature(TOPOLOGIES[kind]).parameters
            return ["clients" if name == "n" else name for name in names]
        case "partition":
            from tacit.data.partitions import option_of

            return filter(None, [option_of(kind)])
        case "model" if ":" in kind:
            from tacit.config.options import import_object

            return inspect.signature(import_object(kind, "model.name")).parameters
        case "model":
            from tacit.models.registry import MODELS

            # The first two are the shape of the data and the number of classes.
            return list(inspect.signature(MODELS.find(kind)).parameters)[2:]
        case "algorithm":
            from tacit.algorithms.algorithm import options_of
            from tacit.config.algorithms import algorithm_class

            return options_of(algorithm_class(kind, "algorithm.name"))
        case "data":
            from tacit import data

            return data.describe(kind).options
        case _:
            from tacit.config.tasks import TASKS

            return inspect.signature(TASKS[kind]).parameters


def options_of_member(selector: str, name: str) -> set[str] | None:
    """The fields of a member of an option family, such as a law of noise; None if unknown."""
    from tacit.config.options import OPTION_FAMILIES, SCHEDULES

    for family in (SCHEDULES, *OPTION_FAMILIES.values()):
        if family.selector == selector and name in family.members:
            return set(inspect.signature(family.members[name]).parameters)
    return None


def selector_of(algorithm: str, option: str) -> str | None:
    """The key that names what an option of an algorithm is, such as "codec"; None if none does."""
    from tacit.config.algorithms import algorithm_class
    from tacit.config.options import OPTION_FAMILIES

    try:
        hints = get_type_hints(algorithm_class(algorithm, "algorithm.name"))
    except Misuse:
        return None
    family = OPTION_FAMILIES.get(hints.get(option))
    return None if family is None else family.selector
