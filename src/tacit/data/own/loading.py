"""Own data as a dataset: each client's rows, and what was shared to prepare them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.core.checks import check_flag, check_number, is_count
from tacit.core.errors import Misuse
from tacit.core.shown_paths import without_folders
from tacit.data.dataset import Dataset, Target, join
from tacit.data.hold_out import held_out
from tacit.data.own.arrays import check_samples
from tacit.data.own.problems import Problem, TableProblems, check
from tacit.data.own.reading import Reading
from tacit.data.own.schema import SCHEMA_REMEDY, parse_schema, parse_target
from tacit.data.own.sources import Arrays, OneTable, client_sources, one_source
from tacit.data.own.spec import ClientRows, Scaling, TableSpec, public_target
from tacit.data.own.table import Table, check_recoding

TEST_SHARE = 0.2
COUNTED_CLASSES = (
    "the number of classes is one more than the largest in the clients' arrays: all clients learn "
    "it. To avoid this, declare data.classes"
)


# One client's inputs and labels to train on, and to test on, if it has some of its own.
ClientData = tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor] | None]


def from_tables(
    source: Any,
    *,
    label: str | None = None,
    client: str | None = None,
    clients: Sequence[str] | None = None,
    classes: Sequence[Any] | int | None = None,
    schema: Mapping[str, Any] | None = None,
    ignore: Sequence[str] = (),
    test: Any = TEST_SHARE,
    standardize: bool = True,
    seed: int = 0,
    target: str | Mapping[str, float] | None = None,
    read: Mapping[str, str] | None = None,
    recode: Mapping[str, Mapping[str, str]] | None = None,
) -> Dataset:
    """Make a dataset of the clients' own tables or arrays.

    Args:
        source: A file per client, such as "sites/{client}.csv"; one file or table for all, with
            `client`; or a dictionary with the file, table or arrays of each client by name. Files
            are .csv, .tsv, .dta (Stata), .sas7bdat and .xpt (SAS), .npz or .safetensors, and with
            the extra `tables` .xlsx, .parquet, .sav and .zsav (SPSS), or the URL of a database.
            Tables are pandas data frames, Hugging Face datasets, dictionaries of columns or lists
            of records. Arrays are (x, y) or ((x, y), (x_test, y_test)).
        label: The column with the class, or with the number to predict; tables need it.
        client: The column that names the client of each row. None: one table without clients.
        clients: Names of clients, in the order of the graph; by default all, sorted.
        classes: Names of the classes in order, or their number; by default all that occur.
        schema: The columns to use and what they are: "number", a list of categories, or
            {"mean": …, "std": …} with public constants; by default all columns.
        ignore: Columns to leave out where there is no schema.
        test: The share of each client's rows to hold out, or a file, table or arrays for all.
        standardize: Shift and scale numbers by mean and deviation over all clients' training rows.
        seed: Seed of the rows that are held out.
        target: What the label is: "classes" (the default), or "number" for a regression, or
            {"mean": …, "std": …} with public constants. Numbers to predict are standardised in
            training as inputs are; those of arrays by public constants only.
        read: Options of reading tables: `separator`, `quote`, `encoding`, `decimal` and `thousands`
            of texts, the `sheet` of an Excel file, the `table` or `query` of a database.
        recode: By column, values that are written differently in some tables and what they stand
            for: {"sex": {"m": "male", "M": "male"}}. An empty text is a missing value.

    Returns:
        The dataset; `clients`, `client_parts` and `client_tests` have one entry per client.

    Raises:
        Misuse: Files, columns or values do not fit; the message names file, line and column.

    Example:
        >>> table = {"age": [30, 41, 52, 63], "site": ["a", "a", "b", "b"], "ill": [0, 1, 0, 1]}
        >>> from_tables(table, label="ill", client="site", test=0.5).clients
        ('a', 'b')
    """
    _check_arguments(label, client, clients, schema, ignore, standardize)
    reading = Reading.of(read, recode)
    origin, parts = client_sources(source, client, clients, reading)
    arrays = [name for name, part in parts.items() if not isinstance(part, Table)]
    if arrays and len(arrays) < len(parts):
        other = next(name for name in parts if name not in arrays)
        problem = f"{origin}: {other} has a table, {arrays[0]} has arrays."
        raise Misuse(problem, "Give all clients the same.")
    shared = None if isinstance(test, float | int | None) else one_source(test, "test", reading)
    share = test if shared is None else None
    preprocessing: dict[str, Any] = {}
    declared = parse_target(label or "y", target)
    if arrays:
        if declared is not None and classes is not None:
            raise Misuse(f"target = {target!r}, but classes are set.", "Remove one of them.")
        number = None if declared is None else public_target(declared)
        loaded, class_names = _load_arrays(parts, classes, shared, share, seed, number is not None)
        collected = classes is None and number is None
        inputs, disclosure = "arrays", COUNTED_CLASSES if collected else ""
    else:
        if label is None:
            raise Misuse(f"{origin} is a table, and label is not set.", "Name the column to learn.")
        spec = TableSpec(
            label,
            class_names_of(classes),
            parse_schema(schema or {}),
            tuple(ignore),
            standardize,
            share,
            seed,
            declared,
        )
        announced = spec
        loaded, spec, scaling = _load_tables(parts, spec, client, shared)
        preprocessing, number = scaling.describe(spec, reading.recode), scaling.target
        class_names, disclosure = spec.classes, disclosed(spec, len(parts), announced)
        inputs = f"{spec.width} inputs from {len(spec.columns)} columns"
    if number is not None:
        preprocessing = preprocessing | {"target": number.as_dict()}
        inputs += f", {describe_target(number)}"
    elif not arrays:
        inputs += f", classes {', '.join(class_names[:10])}{', …' if len(class_names) > 10 else ''}"
    shown = without_folders(origin)
    note = f"{shown}: {len(parts)} clients, {inputs}"
    named = tuple(parts)
    if client is None and isinstance(parts, OneTable):
        named, note = (), f"{shown}: {inputs}"
    dataset = _combine(loaded, named, class_names, shared is not None, number)
    return replace(dataset, note=note, disclosure=disclosure, preprocessing=preprocessing)


def describe_target(target: Target) -> str:
    """What is predicted, and in which unit errors and the loss are."""
    moments = f"mean {target.mean:.4g}, standard deviation {target.std:.4g}"
    return (
        f"target {target.name} ({moments} in training; errors are in its unit, the loss in squares "
        "of that deviation)"
    )


def _check_arguments(
    label: Any, client: Any, clients: Any, schema: Any, ignore: Any, standardize: Any
) -> None:
    for key, value in (("label", label), ("client", client)):
        if not isinstance(value, str | None):
            raise Misuse(f"{key} is {value!r}.", "Give the name of a column.")
    for key, value in (("clients", clients), ("ignore", ignore)):
        listed = isinstance(value, Sequence) and not isinstance(value, str | bytes)
        if value is not None and not (listed and all(isinstance(name, str) for name in value)):
            raise Misuse(f"{key} is {value!r}.", 'Give a list of names, such as ["a", "b"].')
    if not isinstance(schema, Mapping | None):
        raise Misuse(f"schema is {schema!r}.", f"Give a dictionary of columns. {SCHEMA_REMEDY}")
    check_flag("standardize", standardize)


def disclosed(spec: TableSpec, clients: int, declared: TableSpec | None = None) -> str:
    """What clients tell each other before training and how to avoid it, in words.

    Args:
        spec: What is read from the tables, with all columns and classes.
        clients: Number of clients.
        declared: The same before it was completed from the tables; by default `spec`.

    Returns:
        A text without its last full stop; empty if nothing is told.
    """
    declared = spec if declared is None else declared
    told, remedies = [], []
    if count := len(spec.summed) + spec.target_is_summed:
        tail = ", so each of the two learns the sums of the other" if clients == 2 else ""
        if clients > 2:
            tail = "; all neighbours of a client together learn its sums"
        told.append(
            f"numbers are standardised by the counts, sums and sums of squares of {count} column"
            f"{'' if count == 1 else 's'} over all clients' training rows: all clients learn these "
            f"totals, which nodes compute in a masked sum{tail}"
        )
        constants = "{ mean = …, std = … }"
        if len(spec.summed):
            name = spec.input_names[spec.summed[0]]
            remedies.append(f"public constants in [data.schema], such as {name} = {constants}")
        if spec.target_is_summed:
            remedies.append(f"data.target = {constants}")
    collected = []
    categories = [each.name for each in spec.columns if each.categories and not declared.columns]
    if categories:
        collected.append(f"the categories of {', '.join(categories)}")
        remedies.append(f"{collected[-1]} there" if told else f"{collected[-1]} in [data.schema]")
    if not declared.classes and spec.target is None:
        collected.append(f"the classes of {spec.label}")
        remedies.append("data.classes")
    if collected:
        told.append(
            f"{' and '.join(collected)} are all that occur in the clients' tables: all clients "
            "learn which values there are"
        )
    if not told:
        return ""
    *first, last = remedies
    listed = f"{', '.join(first)} and {last}" if first else last
    return f"{'; '.join(told)}. To avoid this, declare {listed}"


def class_names_of(classes: Sequence[Any] | int | None) -> tuple[str, ...]:
    """The names of the classes, which are numbers if only their number is known; empty if not."""
    if classes is None:
        return ()
    if is_count(classes, 2):
        return tuple(map(str, range(classes)))
    if isinstance(classes, Sequence) and not isinstance(classes, str) and len(classes) > 1:
        return tuple(str(name).strip() for name in classes)
    remedy = 'Name two or more, e.g. ["no", "yes"], or give their number.'
    raise Misuse(f"classes = {classes!r} is not possible.", remedy)


def _load_tables(
    parts: Mapping[str, Table], spec: TableSpec, client: str | None, shared: Any
) -> tuple[list[ClientData], TableSpec, Scaling]:
    if shared is not None and not isinstance(shared, Table):
        raise Misuse("test holds arrays, clients have tables.", "Give a table to test on.")
    tables = list(parts.values())
    every = tables if shared is None else [*tables, shared]
    check_recoding(every)
    spec = spec.completed(every, () if client is None else (client,))
    rows: list[ClientRows] = []
    problems: list[Problem] = []
    for name, table in parts.items():
        try:
            rows.append(spec.rows(table, name, shared))
        except TableProblems as problem:
            problems += problem.problems
    check(problems)
    # Training rows only: nothing of what is held out enters.
    total = reduce(add, (client.sums() for client in rows))
    return [client.scaled(total) for client in rows], spec, Scaling.of(spec, total)


def _load_arrays(
    parts: Mapping[str, Arrays],
    classes: Sequence[Any] | int | None,
    shared: Any,
    share: Any,
    seed: int,
    numeric: bool,
) -> tuple[list[ClientData], tuple[str, ...]]:
    if isinstance(shared, Table):
        raise Misuse("test is a table, clients have arrays.", "Give arrays to test on.")
    names = class_names_of(classes)
    count = len(names)
    first = next(iter(parts.values()))[0][0]
    shape = tuple(getattr(first, "shape", (0,))[1:])
    if not count and not numeric:
        # Checked below, where errors can name the client.
        labels = [np.asarray(train[1]) for train, _ in parts.values()]
        whole = [y for y in labels if y.dtype.kind in "iu" and y.size]
        count = max([2, *(int(y.max()) + 1 for y in whole)])
    agreed, loaded = (shape, count), []
    common = None if shared is None else check_samples(shared[0], agreed, "test")
    for name, (train, test) in parts.items():
        x, y = check_samples(train, agreed, name or "own data")
        held = common
        if held is None and test is not None:
            held = check_samples(test, agreed, name, "_test")
        elif held is None and share is not None:
            check_number("test", share, above=0, below=1, example=0.2)
            out = torch.from_numpy(held_out(y.numpy(), share, seed, name))
            x, y, held = x[~out], y[~out], (x[out], y[out])
        loaded.append(((x, y), held))
    return loaded, names or tuple(map(str, range(count)))


def _combine(
    loaded: Sequence[ClientData],
    names: tuple[str, ...],
    classes: tuple[str, ...],
    common: bool,
    target: Target | None,
) -> Dataset:
    """One dataset that knows which rows are whose."""
    train, owners = join([pair for pair, _ in loaded])
    # Where nothing is held out, models are evaluated on the data of all clients.
    tests = [held for _, held in loaded if held is not None] or [pair for pair, _ in loaded]
    test, test_owners = join(tests[:1] if common else tests)
    dataset = Dataset("own", train, test, len(classes), classes, target=target)
    if not names:
        return dataset
    own_tests = None if common or len(tests) < len(loaded) else test_owners
    return replace(dataset, clients=names, owners=owners, test_owners=own_tests)
