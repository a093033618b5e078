"""`tacit data`: what datasets there are, where they are, and getting them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(no_args_is_help=True, help="Datasets: list, fetch, show.")

Name = Annotated[str, typer.Argument(help="A dataset's name; see `tacit data list`.")]
Folder = Annotated[
    Path | None, typer.Option("--data", help="Folder of the datasets (default: $TACIT_DATA).")
]
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


@app.command("list")
def list_datasets(data: Folder = None, as_json: Json = False) -> None:
    """List the datasets and whether they are here."""
    from tacit import data as datasets

    known = [datasets.describe(name, data) for name in datasets.names()]
    if as_json:
        print(json.dumps([_plain(info) for info in known]))
        return
    table = Table()
    for name in ("name", "samples", "shape", "classes", "here", "licence"):
        table.add_column(name, overflow="fold")
    for info in known:
        shape = "×".join(map(str, info.shape))
        table.add_row(
            info.name,
            info.counts,
            shape,
            str(info.classes),
            "yes" if info.present else "no",
            info.licence,
        )
    Console().print(table)


@app.command()
def fetch(name: Name, data: Folder = None) -> None:
    """Download a dataset into the data folder, with checksums."""
    from tacit import data as datasets

    paths = datasets.fetch(name, data)
    for path in paths:
        print(path)
    if not paths:
        print(f"{name} ships with the package: there is nothing to fetch.")


@app.command()
def show(name: Name, data: Folder = None, as_json: Json = False) -> None:
    """Show what is known about a dataset and where its files are looked for."""
    from tacit import data as datasets

    info = datasets.describe(name, data)
    if as_json:
        print(json.dumps(_plain(info)))
        return
    table = Table(show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in _plain(info).items():
        if isinstance(value, dict):
            value = "\n".join(f"{option}: {meaning}" for option, meaning in value.items())
        elif isinstance(value, list):
            value = ", ".join(map(str, value))
        if value != "":
            table.add_row(key.replace("_", " "), str(value))
    Console().print(table)


def _plain(info: Any) -> dict[str, Any]:
    plain = dict(vars(info))
    for key in ("looked_in", "files"):
        plain[key] = [str(path) for path in plain[key]]
    return plain | {
        "shape": list(info.shape),
        "class_names": list(info.class_names),
        "options": dict(info.options),
    }
