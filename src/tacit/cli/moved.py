"""`tacit compare` and `tacit sweep`, which `tacit grid` replaces: the line that does the same."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, NoReturn

import typer

from tacit.core.errors import Misuse

# The number of seeds of `tacit compare`, where none was given.
COMPARED_SEEDS = "3"
# Whatever options are given, the answer is the same line with them.
ANY_OPTIONS: dict[str, Any] = {
    "hidden": True,
    "add_help_option": False,
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
}

compare = typer.Typer(add_completion=False)
sweep = typer.Typer(add_completion=False)


@compare.command(**ANY_OPTIONS)
def compare_line(context: typer.Context) -> None:
    """Is `tacit grid --over algorithm=…` now, and prints that line."""
    words = list(context.args)
    if not any(word.partition("=")[0] == "--seeds" for word in words):
        words += ["--seeds", COMPARED_SEEDS]
    _point_to_grid("compare", words)


@sweep.command(**ANY_OPTIONS)
def sweep_line(context: typer.Context) -> None:
    """Is `tacit grid` now, and prints that line."""
    _point_to_grid("sweep", context.args)


def _point_to_grid(command: str, words: Sequence[str]) -> NoReturn:
    raise Misuse(f"`tacit {command}` is `tacit grid` now.", f"Use:\n  {grid_line(words)}")


def grid_line(words: Sequence[str]) -> str:
    """The command with the same effect, from the words after `compare` or `sweep`.

    >>> grid_line(["a.toml", "--algorithms", "dsgt,lppa", "--jobs=2"])
    'tacit grid a.toml --over algorithm=dsgt,lppa --jobs=2'
    """
    line, remaining = ["tacit", "grid"], iter(words)
    for word in remaining:
        option, equals, value = word.partition("=")
        if option == "--algorithms":
            line += ["--over", f"algorithm={value if equals else next(remaining, 'NAME,NAME')}"]
        else:
            line.append(word)
    return shlex.join(line)
