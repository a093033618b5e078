"""`tacit export`: a model of a run as a file for other programs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    torch = "torch"
    safetensors = "safetensors"
    onnx = "onnx"


def export(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")],
    client: Annotated[
        str, typer.Option(help="Whose model: a number from 0, or average.")
    ] = "average",
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            help="A state_dict for PyTorch, the same as safetensors, or the whole model as ONNX.",
        ),
    ] = Format.safetensors,
    out: Annotated[
        Path | None, typer.Option("--out", help="The file (default: in the folder).")
    ] = None,
) -> None:
    """Write a trained model to a file for PyTorch, safetensors or ONNX."""
    from tacit.experiment.export import SUFFIXES, export as write
    from tacit.experiment.saved import load

    chosen: int | str = int(client) if client.isascii() and client.isdigit() else client
    path = out or folder / f"model-{client}{SUFFIXES[form.value]}"
    beside = write(load(folder), chosen, form.value, path)
    print(f"Model: {path}\nDescription: {beside}")
