"""The task of one node: it loads its own data only."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tacit.config.options import import_object
from tacit.config.sections import OWN_DATA, Config
from tacit.config.tasks import (
    clip_gradients,
    load_data,
    make_partition,
    make_task,
    make_training_task,
)
from tacit.core.errors import Misuse, NotReady
from tacit.data.own.arrays import Pair, check_samples, read_arrays
from tacit.peer.federation.agreed_settings import agreed_data
from tacit.peer.wire.messages import raw_bytes
from tacit.tasks import Task
from tacit.tasks.parts import Parts

FUNCTION = re.compile(r"[^\W\d][\w.]*:[^\W\d]\w*")


@dataclass(frozen=True, eq=False)
class LocalData:
    """The task of one node; `index` is its part in task.parts, `note` describes it in the log."""

    task: Task
    index: int
    note: str

    @cached_property
    def digest(self) -> str:
        """Digest that identifies this node's data; empty if the task generates them."""
        parts, digest = self.task.parts, hashlib.sha256()
        if not isinstance(parts, Parts | Sequence):
            return ""
        for array in parts.of(self.index) if isinstance(parts, Parts) else parts[self.index]:
            digest.update(f"{array.dtype}:{tuple(array.shape)};".encode())
            digest.update(raw_bytes(array))
        return digest.hexdigest()


def load_local_data(
    config: Config, clients: int, position: int, number: int, name: str, source: str | None
) -> LocalData:
    """Load what a node trains on.

    Args:
        config: The federation's configuration.
        clients: Number of nodes in the graph.
        position: The node's row in the graph.
        number: The node's permanent number, which keys its random draws.
        name: The node's name.
        source: The option --data: "package.module:function", a .npz or .safetensors file, or the
            folder of the datasets; None if the configuration needs no data of the node.
    """
    if source is not None and FUNCTION.fullmatch(source):
        local = _from_function(config, clients, number, name, source)
    elif config.task is not None:
        if source is not None:
            raise Misuse(
                f"--data {source} does not go with [task]: {config.task.name} generates its data.",
                'Remove it, or give a "package.module:function" that returns a tacit.Task.',
            )
        task = make_task(config.task, clients)
        local = LocalData(task, position, f"{config.task.name}: client {position} of {clients}")
    elif source is not None and not (path := Path(source).expanduser()).is_dir():
        local = _from_arrays(config, f"--data {source}", *read_arrays(path))
    else:
        local = _from_partition(config, clients, position, source)
    return replace(local, task=clip_gradients(config, local.task))


def _from_function(config: Config, clients: int, number: int, name: str, source: str) -> LocalData:
    """Use what a user's function returns: a task with one client, or arrays."""
    origin = f"--data {source}"
    made = _call_user_function(import_object(source, "--data"), origin, name)
    if isinstance(made, Task):
        _check_task(made, config, clients, number, origin)
        return LocalData(made, 0, f"{source}: {made!r}")
    if config.task is not None:
        raise Misuse(
            f"{origin} returns a {type(made).__name__}, and [task] has no model to train.",
            f"Return a tacit.Task with one client, or remove --data: {config.task.name} generates "
            "its data.",
        )
    pair = list(made) if isinstance(made, tuple | list) else []
    if len(pair) == 2 and not any(isinstance(one, tuple | list) for one in pair):
        return _from_arrays(config, origin, (pair[0], pair[1]), None)
    if len(pair) == 2 and all(isinstance(one, tuple | list) and len(one) == 2 for one in pair):
        return _from_arrays(config, origin, tuple(pair[0]), tuple(pair[1]))
    raise Misuse(
        f"{origin} returns a {type(made).__name__} that is not data.",
        "Return (x, y) or ((x, y), (x_test, y_test)) of tensors or arrays, or a tacit.Task with "
        "one client.",
    )


def _call_user_function(make: Any, origin: str, name: str) -> Any:
    if not callable(make):
        problem = f"{origin} is a {type(make).__name__}."
        raise Misuse(problem, "Name a function that returns this node's data.")
    try:
        return make(name) if _takes_argument(make) else make()
    except Exception as problem:  # whatever the user's code raises
        # OSError: a file that is missing, or a server that is not reached.
        raise (NotReady if isinstance(problem, OSError) else Misuse)(
            f"{origin} fails: {type(problem).__name__}: {problem}.",
            "Call it in Python to see where, and correct it.",
        ) from problem


def _takes_argument(make: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
        return True
    return any(p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in parameters)


def _check_task(task: Task, config: Config, clients: int, number: int, origin: str) -> None:
    """Check that a user's task has one client and fits the federation."""
    if task.clients != 1:
        problem = f"{origin} returns a task with {task.clients} clients."
        raise Misuse(problem, "Make it with this node's part only: one client.")
    if config.task is not None:
        named = make_task(config.task, clients)
        if (task.parameters, task.dtype) != (named.parameters, named.dtype):
            raise Misuse(
                f"{origin} returns a task of {task.parameters} parameters of type {task.dtype}.",
                f"{config.task.name} has {named.parameters} of type {named.dtype}: use the same.",
            )
    try:
        task.initial(config.run.seed, [number])
    except IndexError:
        raise Misuse(
            f"{origin} returns a task that has no initial model for client number {number}.",
            "Give theta0 as one vector [P], the same at all nodes.",
        ) from None


def _from_arrays(config: Config, origin: str, train: Pair, test: Pair | None) -> LocalData:
    """Train the federation's model on the node's own arrays."""
    agreed = agreed_data(config)
    x, y = check_samples(train, agreed, origin)
    batch = config.run.batch_size
    if len(x) < batch:
        problem = f"{origin}: x has {len(x)} samples, fewer than one batch of {batch}."
        raise Misuse(problem, "Provide more, or agree on a smaller run.batch_size.")
    held_out = None if test is None else check_samples(test, agreed, origin, "_test")
    tested = "evaluated on the same" if held_out is None else f"{len(held_out[0]):,} to test on"
    note = f"{origin.removeprefix('--data ')}: {len(x):,} samples to train on, {tested}"
    task = make_training_task(config, *agreed, [(x, y)], held_out)
    return LocalData(task, 0, note)


def _from_partition(config: Config, clients: int, position: int, folder: str | None) -> LocalData:
    """Use this node's part of a public dataset, for trials."""
    if config.data.name == OWN_DATA:
        given = "--data is not set" if folder is None else f"--data {folder} is a folder"
        problem = f"Every node brings its own data, and {given}."
        raise Misuse(problem, "Give --data FILE.npz, FILE.safetensors or package.module:function.")
    dataset = load_data(config.data, None if folder is None else Path(folder))
    partition = make_partition(config, dataset, clients)
    indices = partition.indices[position]
    # Copies, so that the rest of the dataset can be freed.
    x, y = dataset.train.x[indices], dataset.train.y[indices]
    test = (dataset.test.x.clone(), dataset.test.y.clone())
    task = make_training_task(config, x.shape[1:], dataset.classes, [(x, y)], test)
    note = f"{dataset.note}: {partition.description}, {len(x):,} samples for this node"
    return LocalData(task, 0, note)
