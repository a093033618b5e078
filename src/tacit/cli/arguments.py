"""Arguments that several commands share."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

ConfigFile = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="TOML file of the experiment; see examples/.")
]
Out = Annotated[Path, typer.Option("--out", help="Folder for the results, new or empty.")]
Data = Annotated[
    Path | None, typer.Option("--data", help="Folder of the datasets (default: $TACIT_DATA).")
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Override a key, e.g. --set algorithm.lr=0.05; KEY= removes it (repeatable).",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in the output folder.")]
Jobs = Annotated[
    int,
    typer.Option(min=1, help="Runs at the same time, each in a process with its share of threads."),
]
Seeds = Annotated[
    int, typer.Option(min=1, help="Number of seeds, counted up from the experiment's.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
AllowCode = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-code",
        "--allow-model",
        metavar="MODULE",
        help="Let the manifest name classes and functions of this package.module, which nodes "
        "otherwise refuse to import; package.module:Name for a single one (repeatable).",
    ),
]
TranscriptSize = Annotated[
    str | None,
    typer.Option(
        "--transcript",
        metavar="SIZE",
        help="Keep what the node sends and receives in run/transcript, for `tacit audit`: the last "
        "messages, up to this size, e.g. 2GB.",
    ),
]


def print_note(text: str) -> None:
    """Print what a command decides without being asked, on the error stream."""
    print(f"Note: {text}", file=sys.stderr)
