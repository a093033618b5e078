"""A node's share of the task: it loads its own data only."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, PositiveInt

from tacit import data
from tacit.config.build import load_data, make_model, make_partition, make_task
from tacit.config.options import import_object, prefix_errors, validate_value
from tacit.config.sections import Config
from tacit.core.errors import Misuse, unknown_name
from tacit.peer.node.local_arrays import Pair, checked_samples, read_arrays
from tacit.peer.wire.frames import raw_bytes
from tacit.tasks import Task
from tacit.tasks.parts import Parts

OWN = "own"  # what data.name says where every client brings its own data
FUNCTION = re.compile(r"[^\W\d][\w.]*:[^\W\d]\w*")
AGREED = {
    "shape": Annotated[list[PositiveInt], Field(min_length=1)],
    "classes": Annotated[int, Field(ge=2)],
}


@dataclass(frozen=True, eq=False)
class LocalData:
    """The task as one client holds it."""

    task: Task
    place: int  # where this client's part is in task.parts: 0 where only its own are here
    note: str  # one line for the log: what was loaded

    def digest(self) -> str:
        """By which other data are told apart; empty where a task makes its own."""
        parts, total = self.task.parts, hashlib.sha256()
        if not isinstance(parts, Parts | Sequence):
            return ""
        for array in parts.of(self.place) if isinstance(parts, Parts) else parts[self.place]:
            total.update(f"{array.dtype}:{tuple(array.shape)};".encode())
            total.update(raw_bytes(array))
        return total.hexdigest()


def load_local_data(
    config: Config, clients: int, position: int, number: int, name: str, source: str | None
) -> LocalData:
    """What the member `number`, at `position` among the `clients` of the graph, learns from.

    `source` is its own data: "package.module:function", a file .npz or .safetensors, or the folder of a dataset that
    is dealt out for a trial; None where the federation's configuration says it all.
    """
    if source is not None and FUNCTION.fullmatch(source):
        share = _made(config, clients, number, name, source)
    elif config.task is not None:
        if source is not None:
            raise Misuse(
                f"--data {source} does not go with [task]: {config.task.name} makes its own data.",
                'Leave it out, or give a "package.module:function" that returns a tacit.Task.',
            )
        task = make_task(config.task, clients)
        share = LocalData(task, position, f"{config.task.name}: client {position} of {clients}")
    elif source is not None and not Path(source).expanduser().is_dir():
        share = _trained(config, f"--data {source}", *read_arrays(Path(source).expanduser()))
    else:
        share = _dealt(config, clients, position, source)
    if (clip := config.run.clip) is None:
        return share
    return LocalData(share.task.clipped(clip.bound, clip.norm), share.place, share.note)


def expected(config: Config) -> tuple[tuple[int, ...], int]:
    """The shape of one input and the number of classes that the federation agreed on."""
    section = config.data
    if section.name != OWN:
        with prefix_errors("[data]"):
            known = data.describe(section.name)
        if "features" in section.options and "features" in known.options:
            return (
                validate_value("data.features", section.options["features"], PositiveInt),
            ), known.classes
        return known.shape, known.classes
    for key in section.options:
        if key not in AGREED:
            raise unknown_name(f"[data]: {key} is not an option of own data.", key, AGREED)
    for key in ("limit_train", "limit_test"):
        if getattr(section, key) is not None:
            raise Misuse(
                f"[data]: {key} is set for own data.", "Leave it out: each client decides itself."
            )
    for key in AGREED:
        if key not in section.options:
            raise Misuse(
                f"[data]: own data need {key}, which is not set.",
                "Add what all clients agree on, e.g. shape = [30] and classes = 2.",
            )
    shape, classes = (
        validate_value(f"data.{key}", section.options[key], hint) for key, hint in AGREED.items()
    )
    return tuple(shape), classes


def _made(config: Config, clients: int, number: int, name: str, source: str) -> LocalData:
    """What the user's function returns: a task of one client, or its data."""
    origin = f"--data {source}"
    made = _called(import_object(source, "--data"), origin, name)
    if isinstance(made, Task):
        _check_task(made, config, clients, number, origin)
        return LocalData(made, 0, f"{source}: {made!r}")
    if config.task is not None:
        raise Misuse(
            f"{origin} returns a {type(made).__name__}, and [task] has no model to train.",
            f"Return a tacit.Task with one client, or leave it out: {config.task.name} makes its own data.",
        )
    both = list(made) if isinstance(made, tuple | list) else []
    if len(both) == 2 and not any(isinstance(one, tuple | list) for one in both):
        return _trained(config, origin, (both[0], both[1]), None)
    if len(both) == 2 and all(isinstance(one, tuple | list) and len(one) == 2 for one in both):
        return _trained(config, origin, tuple(both[0]), tuple(both[1]))
    raise Misuse(
        f"{origin} returns a {type(made).__name__}, which is no data.",
        "Return (x, y) or ((x, y), (x_test, y_test)) of tensors or arrays, or a tacit.Task with one client.",
    )


def _called(make: Any, origin: str, name: str) -> Any:
    """What the function returns, asked with the node's name if it takes an argument."""
    if not callable(make):
        raise Misuse(
            f"{origin} is a {type(make).__name__}.",
            "Name a function that returns this node's data.",
        )
    try:
        return make(name) if _takes_argument(make) else make()
    except Exception as problem:  # whatever the user's code raises
        raise Misuse(
            f"{origin} fails: {type(problem).__name__}: {problem}.",
            "Call it in Python to see where, and correct it.",
        ) from problem


def _takes_argument(make: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # some built-in functions do not say
        return True
    return any(p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in parameters)


def _check_task(task: Task, config: Config, clients: int, number: int, origin: str) -> None:
    """Refuse a user's task that is not one client's, or not the federation's."""
    if task.clients != 1:
        raise Misuse(
            f"{origin} returns a task with {task.clients} clients.",
            "Make it of this node's part only: one client.",
        )
    if config.task is not None:
        named = make_task(config.task, clients)
        if (task.parameters, task.dtype) != (named.parameters, named.dtype):
            raise Misuse(
                f"{origin} returns a task of {task.parameters} parameters of type {task.dtype}.",
                f"{config.task.name} has {named.parameters} of type {named.dtype}: make it alike.",
            )
    try:
        task.initial(config.run.seed, [number])
    except IndexError:
        raise Misuse(
            f"{origin} returns a task that has no first model for client number {number}.",
            "Give theta0 as one vector [P], the same at all nodes.",
        ) from None


def _trained(config: Config, origin: str, train: Pair, test: Pair | None) -> LocalData:
    """The federation's model on own data, after a look at them."""
    shape, classes = expected(config)
    x, y = checked_samples(origin, "", *train, shape, classes)
    batch = config.run.batch_size
    if len(x) < batch:
        raise Misuse(
            f"{origin}: x has {len(x)} samples, fewer than one batch of {batch}.",
            "Bring more, or agree on a smaller run.batch_size.",
        )
    held_out = None if test is None else checked_samples(origin, "_test", *test, shape, classes)
    tested = "judged on the same" if held_out is None else f"{len(held_out[0]):,} to test on"
    note = f"{origin.removeprefix('--data ')}: {len(x):,} samples to train on, {tested}"
    return LocalData(_training(config, shape, classes, (x, y), held_out), 0, note)


def _dealt(config: Config, clients: int, position: int, folder: str | None) -> LocalData:
    """For trials: what a client gets of a dataset that all of them know."""
    if config.data.name == OWN:
        given = "no --data are given" if folder is None else f"--data {folder} is a folder"
        raise Misuse(
            f"Every node brings its own data, and {given}.",
            "Give --data FILE.npz, FILE.safetensors or package.module:function.",
        )
    train, test, classes, note = _part(config, clients, position, folder)
    task = _training(config, tuple(train[0].shape[1:]), classes, train, test)
    return LocalData(task, 0, f"{note}, {len(train[0]):,} samples of them")


def _part(
    config: Config, clients: int, position: int, folder: str | None
) -> tuple[Pair, Pair, int, str]:
    """Copies of one client's part and of the test set, so that the rest can be freed."""
    dataset = load_data(config.data, None if folder is None else Path(folder))
    deal = make_partition(config, dataset, clients)
    mine = deal.indices[position]
    note = f"{dataset.note}: {deal.description}"
    held_out = (dataset.test.x.clone(), dataset.test.y.clone())
    return (dataset.train.x[mine], dataset.train.y[mine]), held_out, dataset.classes, note


def _training(
    config: Config, shape: tuple[int, ...], classes: int, train: Pair, test: Pair | None
) -> Task:
    with prefix_errors("[model]"):
        return Task.from_module(
            make_model(config.model, shape, classes, config.run.seed),
            [train],
            batch_size=config.run.batch_size,
            test=test,
            init=config.model.init,
        )
