"""Own data of a configuration: tables and arrays of the clients, from files or a function."""

from __future__ import annotations

import hashlib
import inspect
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from tacit.config.options import check_names, import_object
from tacit.config.sections import OWN_DATA_KEYS, Config, DataSection, key_names
from tacit.core.errors import Misuse, NotReady, prefix_errors
from tacit.data import Dataset, describe
from tacit.data.own.loading import TEST_SHARE, class_names_of, from_tables
from tacit.data.own.schema import Column, parse_schema, parse_target
from tacit.data.own.sources import PLACEHOLDER, client_files
from tacit.data.own.spec import TableSpec

# Fields of [data] that only own data have.
OWN_FIELDS = (
    *OWN_DATA_KEYS, "client", "clients", "label", "target", "classes", "shape", "ignore",
    "standardize", "test", "columns", "recode", "read",
)  # fmt: skip


def load_own_data(section: DataSection, clients: Any = None) -> Dataset:
    """The data of all clients.

    Args:
        section: What [data] says.
        clients: How many clients the graph has, for a function that has no names for them.

    Raises:
        Misuse: Keys, files or values do not fit.
    """
    check_own_keys(section)
    source: Any = section.files or section.file
    if section.files is not None and PLACEHOLDER not in section.files:
        raise Misuse(
            f"[data]: files = {section.files!r} does not say where the client's name is.",
            f'Write it as {PLACEHOLDER}, e.g. "sites/{PLACEHOLDER}.csv"; or set `file`.',
        )
    if section.function is not None:
        source = _call_for_clients(section.function, section.clients, clients)
    if source is None:
        raise Misuse(
            "[data]: own data, but no key says where they are.",
            'Set files = "sites/{client}.csv", or file and client, or function. Without them, '
            "the configuration is for a federation, whose nodes bring data with --data.",
        )
    with prefix_errors("[data]"):
        dataset = from_tables(
            source,
            label=section.label,
            client=section.client,
            clients=section.clients,
            classes=section.classes,
            schema=section.columns,
            ignore=section.ignore or (),
            test=TEST_SHARE if section.test is None else section.test,
            standardize=section.standardize is not False,
            seed=section.seed,
            target=section.target,
            read=section.read,
            recode=section.recode,
        )
        if section.validation is not None:
            dataset = dataset.with_validation(section.validation, section.seed)
    shape = tuple(dataset.train.x.shape[1:])
    if section.shape is not None and tuple(section.shape) != shape:
        problem = f"data.shape = {section.shape}, but the inputs have shape {list(shape)}."
        raise Misuse(problem, "Correct it, or remove it: the data have a shape.")
    return dataset


def check_own_keys(section: DataSection) -> None:
    """Raise Misuse for keys of [data] that do not go together."""
    names = key_names(DataSection)
    check_names("data", section.options, [names[name] for name in OWN_FIELDS], "own data")
    given = [key for key in OWN_DATA_KEYS if getattr(section, key) is not None]
    if len(given) > 1:
        problem = f"[data] sets {' and '.join(given)}."
        raise Misuse(problem, "Set one of them: own data come from one place.")
    for key in ("limit_train", "limit_test"):
        if getattr(section, key) is not None:
            problem = f"[data]: {key} is set for own data."
            raise Misuse(problem, "Remove it: limit the files instead.")


def check_named_keys(section: DataSection) -> None:
    """Raise Misuse if a named dataset has a key of own data that is not an option of it."""
    names = key_names(DataSection)
    for name in OWN_FIELDS:
        key = names[name]
        if getattr(section, name) is not None and key not in describe(section.name).options:
            raise Misuse(
                f"data.{key} is for own data, but data.name = {section.name!r}.",
                f"Remove one of the two, e.g. data.{key}.",
            )


def declared_spec(section: DataSection) -> TableSpec:
    """How a node reads its table, from what the members agreed on.

    Raises:
        Misuse: Columns or classes are not declared: a node sees its own rows only.
    """
    assert section.label is not None
    if not section.columns:
        raise Misuse(
            "[data.schema] is not set, and a node sees its own table only.",
            'Declare every column, e.g. age = "number" and ward = ["A", "B"]; '
            "`tacit data schema` writes it for a table.",
        )
    target = declared_target(section)
    if section.classes is None and target is None:
        problem = f"[data]: classes of the label {section.label!r} are not set."
        remedy = 'Name them in an order that all agree on, e.g. ["no", "yes"]'
        raise Misuse(problem, f'{remedy}; or set target = "number".')
    share = TEST_SHARE if section.test is None else section.test
    with prefix_errors("[data]"):
        return TableSpec(
            section.label,
            class_names_of(section.classes),
            parse_schema(section.columns),
            standardize=section.standardize is not False,
            test=None if isinstance(share, str) else share,
            seed=section.seed,
            target=target,
        )


def declared_target(section: DataSection) -> Column | None:
    """The label as a number to predict; None if it is a class."""
    with prefix_errors("[data]"):
        return parse_target(section.label or "y", section.target)


def check_disclosure(config: Config, disclosure: str) -> None:
    """Raise Misuse if a guarantee would not cover what clients tell to prepare their data."""
    if config.privacy is not None and math.isfinite(config.privacy.epsilon) and disclosure:
        raise Misuse(
            "[privacy] promises a guarantee, which does not cover what clients share before "
            f"training: {disclosure}.",
            "With standardize = false no sums are shared either.",
        )


def call_user_function(make: Any, origin: str, *arguments: Any) -> Any:
    """Call a user's function, with the arguments if it takes some."""
    if not callable(make):
        problem = f"{origin} is a {type(make).__name__}."
        raise Misuse(problem, "Name a function that returns data.")
    try:
        return make(*arguments) if takes_argument(make) else make()
    except Misuse:
        raise
    except Exception as problem:  # whatever the user's code raises
        # OSError: a file that is missing, or a server that is not reached.
        raise (NotReady if isinstance(problem, OSError) else Misuse)(
            f"{origin} fails: {type(problem).__name__}: {problem}.",
            "Call it in Python to see where, and correct it.",
        ) from problem


def takes_argument(make: Callable[..., Any]) -> bool:
    """Whether a function takes a positional argument."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
        return True
    return any(p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in parameters)


def files_digest(section: DataSection) -> str:
    """Digest of the contents of all files that [data] names; empty if it names none."""
    names = [name for name in (section.file, section.test) if isinstance(name, str)]
    files = [Path(name) for name in names]
    if section.files is not None:
        # Without files, a run can still be looked at.
        with suppress(Misuse):
            files += client_files(section.files).values()
    digest = hashlib.sha256()
    for path in files:
        if path.is_file():
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest() if files else ""


def _call_for_clients(path: str, names: list[str] | None, clients: Any) -> Any:
    """What a function returns for all clients, or for one after the other."""
    origin = f"data.function = {path!r}"
    make = import_object(path, "data.function")
    if not callable(make) or not takes_argument(make):
        made = call_user_function(make, origin)
        return dict(enumerate(made)) if _is_list_of_clients(made) else made
    if names is None:
        if not isinstance(clients, int):
            raise Misuse(
                f"{origin} takes a client's name, and nothing names the clients.",
                'Set data.clients = ["a", "b", …], or graph.clients.',
            )
        names = [str(number) for number in range(clients)]
    return {name: call_user_function(make, origin, name) for name in names}


def _is_list_of_clients(made: Any) -> bool:
    """Whether a list has an entry per client, not per row."""
    return isinstance(made, list) and bool(made) and not isinstance(made[0], dict)
