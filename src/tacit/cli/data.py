"""`tacit data`: list, show and fetch datasets."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Column, Table

from tacit.cli.arguments import Data

if TYPE_CHECKING:
    from tacit.data import DatasetDescription

app = typer.Typer(no_args_is_help=True, help="Datasets: list, fetch, show; schemas of own tables.")

Name = Annotated[str, typer.Argument(help="Name of a dataset; see `tacit data list`.")]
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


@app.command("list")
def list_datasets(data: Data = None, as_json: Json = False) -> None:
    """List the datasets and whether they are here."""
    from tacit import data as datasets
    from tacit.core.errors import Misuse

    descriptions = []
    for name in datasets.names():
        try:
            descriptions.append(datasets.describe(name, data))
        # A broken plugin must not hide the other datasets.
        except Misuse as problem:
            Console(stderr=True).print(str(problem), markup=False, highlight=False)
    if as_json:
        print(json.dumps([_plain(each) for each in descriptions]))
        return
    names = ("name", "samples", "shape", "classes", "here", "licence")
    table = Table(*(Column(name, overflow="fold") for name in names))
    for each in descriptions:
        table.add_row(
            each.name,
            each.counts,
            "×".join(map(str, each.shape)),
            str(each.classes or ""),
            "yes" if each.present else "no",
            each.licence,
        )
    Console().print(table)


@app.command()
def fetch(name: Name, data: Data = None) -> None:
    """Download a dataset to the data folder and check it."""
    from tacit import data as datasets

    paths = datasets.fetch(name, data)
    for path in paths:
        print(path)
    if not paths:
        print(f"{name} needs no download: there is nothing to fetch.")


@app.command()
def show(name: Name, data: Data = None, as_json: Json = False) -> None:
    """Show what is known about a dataset and where its files are searched."""
    from tacit import data as datasets

    plain = _plain(datasets.describe(name, data))
    if as_json:
        print(json.dumps(plain))
        return
    table = Table(Column(style="bold"), Column(overflow="fold"), show_header=False)
    for key, value in plain.items():
        if isinstance(value, dict):
            value = "\n".join(f"{option}: {meaning}" for option, meaning in value.items())
        elif isinstance(value, list):
            value = ", ".join(map(str, value))
        if value not in ("", None):
            table.add_row(key.replace("_", " "), str(value))
    Console().print(table)


@app.command()
def schema(
    files: Annotated[list[str], typer.Argument(help="Tables: files, or URLs of databases.")],
    label: Annotated[str, typer.Option(help="The column with the class or number to predict.")],
    target: Annotated[
        str, typer.Option(help='What the label is: "classes" or "number".')
    ] = "classes",
    client: Annotated[
        str | None, typer.Option(help="The column that names the client of each row.")
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="A column to leave out; may be repeated.")
    ] = None,
    read: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUE", help="A key of [data.read], such as decimal=,; may be repeated."
        ),
    ] = None,
) -> None:
    """Print a schema of own tables, to complete and put into a configuration.

    It has the classes and categories that occur in these files: add those that others have.
    """
    from tacit.core.toml import to_toml
    from tacit.data.own.files import is_database, read_database, read_table
    from tacit.data.own.reading import Reading
    from tacit.data.own.schema import parse_target
    from tacit.data.own.spec import TableSpec

    options = {key: value for key, _, value in (text.partition("=") for text in read or [])}
    reading = Reading.of(options)
    tables = [
        read_database(name, reading) if is_database(name) else read_table(Path(name), reading)
        for name in files
    ]
    without = () if client is None else (client,)
    number = parse_target(label, target)
    given = TableSpec(label, ignore=tuple(ignore or ()), target=number)
    spec = given.completed(tables, without, fewest_classes=1)
    for table in tables:
        spec.check(table)
    if len(spec.classes) == 1:
        only = f"The label {label!r} is always {spec.classes[0]!r} here"
        print(f"{only}: add the classes that others have.", file=sys.stderr)
    head: dict[str, Any] = {"label": label}
    head |= {"classes": list(spec.classes)} if number is None else {"target": target}
    columns = {column.name: list(column.categories) or "number" for column in spec.columns}
    sections = {"data": head, "data.read": options, "data.schema": columns}
    print(to_toml({name: keys for name, keys in sections.items() if keys}), end="")


def _plain(description: DatasetDescription) -> dict[str, Any]:
    plain = vars(description) | {"options": dict(description.options)}
    for key in ("shape", "class_names", "looked_in", "files"):
        plain[key] = [str(value) if isinstance(value, Path) else value for value in plain[key]]
    return plain
