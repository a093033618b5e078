"""The tasks that a configuration can ask for by name: they make their own data."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Any, get_args, get_type_hints

from torch import Tensor

from tacit.config.options import prefix_errors, validate_value
from tacit.config.sections import TaskSection
from tacit.core.errors import Misuse, unknown
from tacit.tasks import Task, adaptive_filtering, localization

TASKS: dict[str, Callable[..., Task]] = {
    "adaptive-filtering": adaptive_filtering,
    "localization": localization,
}


def make_task(section: TaskSection, clients: int) -> Task:
    """The task of a section for a graph of so many clients."""
    if section.name not in TASKS:
        raise unknown(f"task.name = {section.name!r} is not a task.", section.name, TASKS)
    make = TASKS[section.name]
    options = _options(section, make)
    if "clients" in inspect.signature(make).parameters:
        options["clients"] = clients
    with prefix_errors("[task]"):
        task = make(**options)
    if task.clients != clients:
        raise Misuse(
            f"[task]: {section.name} has {task.clients} clients, the graph has {clients}.",
            f"Set graph.clients = {task.clients}, or give the task as many.",
        )
    return task


def _options(section: TaskSection, make: Callable[..., Task]) -> dict[str, Any]:
    """The options as the task's function wants them."""
    hints = get_type_hints(make)
    known = [
        name for name in inspect.signature(make).parameters if name not in ("clients", "dtype")
    ]
    if "clients" in section.options:
        raise Misuse(
            "task.clients is set.", "Leave it out: the graph says how many clients there are."
        )
    for key in section.options:
        if key not in known:
            raise unknown(f"task.{key} is not an option of {section.name}.", key, known)
    return {
        key: validate_value(f"task.{key}", value, _plain(hints[key]))
        for key, value in section.options.items()
    }


def _plain(hint: Any) -> Any:
    """A type without the tensors among its alternatives: a configuration has lists."""
    alternatives = get_args(hint)
    return (
        reduce(or_, (kind for kind in alternatives if kind is not Tensor))
        if Tensor in alternatives
        else hint
    )
