"""The task of one node: it loads its own data only."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from tacit.config.options import import_object
from tacit.config.own_data import call_user_function, declared_spec, declared_target
from tacit.config.sections import OWN_DATA, Config
from tacit.config.tasks import (
    add_metrics,
    clip_gradients,
    load_data,
    make_partition,
    make_task,
    make_training_task,
)
from tacit.core.errors import Misuse, prefix_errors, unknown_name
from tacit.data.own.arrays import Pair, check_samples, read_arrays
from tacit.data.own.files import TABLE_SUFFIXES, is_database, read_database, read_table
from tacit.data.own.loading import class_names_of, disclosed
from tacit.data.own.reading import Reading
from tacit.data.own.sources import PLACEHOLDER, as_arrays, as_table, rows_by_client
from tacit.data.own.spec import ClientRows, Scaling, public_target
from tacit.data.own.statistics import ColumnSums
from tacit.data.own.table import Table
from tacit.peer.federation.agreed_settings import agreed_data
from tacit.peer.wire.messages import raw_bytes
from tacit.tasks import Objective
from tacit.tasks.evaluation import TestSet
from tacit.tasks.parts import Parts

FUNCTION = re.compile(r"[^\W\d][\w.]*:[^\W\d]\w*")


@dataclass(frozen=True, eq=False)
class LocalData:
    """The task of one node.

    Attributes:
        task: What the node trains on; a draft as long as there are `rows`.
        index: Its part in task.parts.
        note: What describes it in the log.
        rows: The rows of a table, before all members agreed on the scales of its columns.
        table: The rows of a table as they were read, which identify the data.
        class_names: Names of the classes; empty if they are not known.
    """

    task: Objective
    index: int
    note: str
    rows: ClientRows | None = None
    table: ClientRows | None = None
    class_names: tuple[str, ...] = ()

    @cached_property
    def digest(self) -> str:
        """Digest that identifies this node's data; empty if the task generates them."""
        parts, digest = self.task.parts, hashlib.sha256()
        if not isinstance(parts, Parts | Sequence):
            return ""
        if self.table is not None:
            # Which columns are summed decides what masks cover: with others, the salt is new.
            spec = self.table.spec
            summed = f"{spec.columns}, {spec.summed.tolist()}, {spec.target_is_summed};"
            digest.update(summed.encode())
            arrays: Sequence[Tensor] = [torch.from_numpy(one) for one in self.table.arrays]
        else:
            arrays = parts.of(self.index) if isinstance(parts, Parts) else parts[self.index]
        for array in arrays:
            digest.update(f"{array.dtype}:{tuple(array.shape)};".encode())
            digest.update(raw_bytes(array))
        return digest.hexdigest()

    def prepared(self, config: Config, total: ColumnSums) -> LocalData:
        """These data with columns scaled by the sums of all members."""
        assert self.rows is not None
        task = _task_of_rows(config, self.rows, total)
        task = replace(task, names=self.task.names, disclosure=self.task.disclosure)
        return _with_options(config, replace(self, task=task, rows=None))


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
        source: The option --data: "package.module:function", a table or a file of arrays, or the
            folder of files or datasets; None if the configuration needs no data of the node.
    """
    function = config.data.function if source is None and config.task is None else source
    if function is not None and FUNCTION.fullmatch(function):
        origin = f"data.function = {function!r}" if source is None else f"--data {source}"
        local = _from_function(config, clients, number, name, function, origin)
    elif config.task is not None:
        if source is not None:
            raise Misuse(
                f"--data {source} does not go with [task]: {config.task.name} generates its data.",
                'Remove it, or give a "package.module:function" that returns a tacit.Task.',
            )
        task = make_task(config.task, clients)
        local = LocalData(task, position, f"{config.task.name}: client {position} of {clients}")
    elif source is not None and is_database(source):
        local = _from_database(config, clients, name, source)
    elif source is not None and (path := _own_file(config, name, Path(source))) is not None:
        local = _from_file(config, clients, name, path)
    else:
        local = _from_partition(config, clients, position, source)
    names = local.class_names or class_names_of(config.data.classes)
    return _with_options(config, replace(local, class_names=names))


def _with_options(config: Config, local: LocalData) -> LocalData:
    """The data with what [run] says about their task."""
    task = clip_gradients(config, local.task)
    if config.run.metrics is None:
        return replace(local, task=task)
    if not isinstance(task.evaluation, TestSet):
        note = f"{local.note}; without run.metrics, because there are no test samples"
        return replace(local, task=task, note=note)
    return replace(local, task=add_metrics(config, task))


def _own_file(config: Config, name: str, source: Path) -> Path | None:
    """The file of this node: the one that --data names, or its own in that folder."""
    path = source.expanduser()
    if not path.is_dir():
        return path
    named = config.data.files or config.data.file
    return None if named is None else path / _below(named.replace(PLACEHOLDER, name))


def _below(name: str) -> str:
    """A name that a manifest gives to a file; raises Misuse if it leads out of the folder."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        problem = f"The manifest names the data file {name!r}, which is not below --data."
        raise Misuse(problem, "Ask the operator for another name, or give the file with --data.")
    return name


def _from_file(config: Config, clients: int, name: str, path: Path) -> LocalData:
    """Train on a table, or on a file of arrays."""
    if path.suffix not in TABLE_SUFFIXES:
        return _from_arrays(config, f"--data {path}", *read_arrays(path))
    with prefix_errors("--data"):
        reading = _reading(config)
        table = read_table(path, reading)
        test = config.data.test
        held_out = (
            read_table(path.parent / _below(test), reading) if isinstance(test, str) else None
        )
        return _from_table(config, clients, name, table, held_out)


def _from_database(config: Config, clients: int, name: str, url: str) -> LocalData:
    """Train on a table of a database; other members choose its name, but run no queries here."""
    with prefix_errors("--data"):
        reading = _reading(config)
        if reading.query is not None:
            raise Misuse(
                "the federation agreed on a query, and a node runs no queries of others.",
                "Agree on read.table, and make a view of that name that has the columns.",
            )
        if isinstance(config.data.test, str):
            problem = (
                f"data.test = {config.data.test!r} is a file, and there is none in a database."
            )
            raise Misuse(problem, "Agree on a share, such as test = 0.2.")
        return _from_table(config, clients, name, read_database(url, reading), None)


def _reading(config: Config) -> Reading:
    return Reading.of(config.data.read, config.data.recode)


def _from_table(
    config: Config, clients: int, name: str, table: Table, test: Table | None
) -> LocalData:
    """Train on a table; columns that need statistics wait for those of all members."""
    section = config.data
    if section.label is None:
        problem = f"{table.origin} is a table, and the federation agreed on no label."
        raise Misuse(problem, "Agree on data.label, data.classes and [data.schema].")
    if section.client is not None:
        rows_of = rows_by_client(table, section.client)
        if name not in rows_of:
            problem = f"{table.origin}, column {section.client!r}: no row belongs to {name}."
            raise unknown_name(problem, name, rows_of)
        table = table.rows(rows_of[name])
    spec = declared_spec(section)
    rows = spec.rows(table, name, test)
    _check_batch(config, table.origin, len(rows.y))
    note = f"{table.origin}: {len(rows.y):,} samples to train on"
    if rows.y_test is not None:
        note += f", {len(rows.y_test):,} to test on"
    told = disclosed(spec, clients)
    # Its own sums stand in for those of all members until these are known.
    task = replace(_task_of_rows(config, rows, rows.sums()), names=(name,), disclosure=told)
    return LocalData(task, 0, note, rows if told else None, rows)


def _task_of_rows(config: Config, rows: ClientRows, total: ColumnSums) -> Objective:
    """The task of a table with columns scaled by these sums."""
    train, test = rows.scaled(total)
    shape, classes, scaling = (
        (rows.spec.width,),
        len(rows.spec.classes),
        Scaling.of(rows.spec, total),
    )
    task = make_training_task(config, shape, classes, [train], test, scaling.target)
    return replace(task, preprocessing=scaling.describe(rows.spec, config.data.recode or {}))


def _from_function(
    config: Config, clients: int, number: int, name: str, source: str, origin: str
) -> LocalData:
    """Use what a user's function returns: a task with one client, arrays or a table."""
    make = import_object(source, origin.partition(" ")[0])
    made = call_user_function(make, origin, name)
    if isinstance(made, Objective):
        _check_task(made, config, clients, number, origin)
        return LocalData(made, 0, f"{source}: {made!r}")
    if config.task is not None:
        raise Misuse(
            f"{origin} returns a {type(made).__name__}, and [task] has no model to train.",
            f"Return a tacit.Task with one client, or remove --data: {config.task.name} generates "
            "its data.",
        )
    if isinstance(made, Mapping) and name in made:
        # It returns the data of all clients; a node takes its own.
        made = made[name]
    with prefix_errors(origin):
        if (table := as_table(made, source, _reading(config))) is not None:
            return _from_table(config, clients, name, table, None)
        try:
            arrays = as_arrays(made, origin)
        except Misuse:
            raise Misuse(
                f"it returns a {type(made).__name__} that is not data.",
                "Return a table, or (x, y) or ((x, y), (x_test, y_test)) of tensors or arrays, or "
                "a tacit.Task with one client.",
            ) from None
    return _from_arrays(config, origin, *arrays)


def _check_task(task: Objective, config: Config, clients: int, number: int, origin: str) -> None:
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
    _check_batch(config, f"{origin}: x", len(x))
    held_out = None if test is None else check_samples(test, agreed, origin, "_test")
    tested = "evaluated on the same" if held_out is None else f"{len(held_out[0]):,} to test on"
    note = f"{origin.removeprefix('--data ')}: {len(x):,} samples to train on, {tested}"
    declared = declared_target(config.data)
    target = None if declared is None else public_target(declared)
    task = make_training_task(config, *agreed, [(x, y)], held_out, target)
    if target is not None:
        task = replace(task, preprocessing={"target": target.as_dict()})
    return LocalData(task, 0, note)


def _check_batch(config: Config, origin: str, samples: int) -> None:
    batch = config.run.batch_size
    if samples < batch:
        problem = f"{origin} has {samples} samples, fewer than one batch of {batch}."
        raise Misuse(problem, "Provide more, or agree on a smaller run.batch_size.")


def _from_partition(config: Config, clients: int, position: int, folder: str | None) -> LocalData:
    """Use this node's part of a public dataset, for trials."""
    if config.data.name == OWN_DATA:
        given = "--data is not set" if folder is None else f"--data {folder} is a folder"
        problem = f"Every node brings its own data, and {given}."
        remedy = "Give --data FILE (a table, .npz or .safetensors), or a function: "
        raise Misuse(problem, f"{remedy}package.module:function.")
    dataset = load_data(config.data, None if folder is None else Path(folder))
    partition = make_partition(config, dataset, clients)
    indices = partition.indices[position]
    # Copies, so that the rest of the dataset can be freed.
    x, y = dataset.train.x[indices], dataset.train.y[indices]
    test = (dataset.test.x.clone(), dataset.test.y.clone())
    task = make_training_task(config, x.shape[1:], dataset.classes, [(x, y)], test)
    note = f"{dataset.note}: {partition.description}, {len(x):,} samples for this node"
    return LocalData(task, 0, note, class_names=dataset.class_names)
