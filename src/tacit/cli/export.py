"""`tacit export`: a model of a run as a file for other programs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.arguments import AllowCode
from tacit.core.errors import Misuse


class Format(StrEnum):
    torch = "torch"
    safetensors = "safetensors"
    onnx = "onnx"


def export(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run or of a node.")],
    client: Annotated[
        str | None,
        typer.Option(
            help="Whose model: a number from 0, a name, or average (the default of a run)."
        ),
    ] = None,
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
    module: Annotated[
        str | None,
        typer.Option(
            metavar="PACKAGE:NAME",
            help="A class or function that makes a module of the run's architecture, for ONNX of a "
            "run that Python saved.",
        ),
    ] = None,
    allow_code: AllowCode = None,
) -> None:
    """Write a trained model to a file for PyTorch, safetensors or ONNX."""
    from tacit.experiment.export import SUFFIXES, export as write, local_parameters
    from tacit.experiment.saved import load

    if (folder / "node.pem").exists():
        from tacit.peer.node.saved_node import load_node

        run = load_node(folder, allow_code or ())
        (name,) = run.summary["names"]
        if client == "average" and name != client:
            raise Misuse(
                f"{folder} is the folder of {name}, which has its own model only.",
                "Leave out --client.",
            )
        client = client or name
    else:
        run, client = load(folder), client or "average"
    names = run.summary.get("names") or ()
    # Where names are numbers, a number is a name.
    is_number = client.isascii() and client.isdigit() and not any(map(str.isdecimal, names))
    path = out or run.folder / f"model-{client.replace('/', '-')}{SUFFIXES[form.value]}"
    architecture = None
    if module is not None:
        from tacit.config.tasks import make_module

        architecture = make_module(module, "--module", {})
    number = int(client) if is_number else client
    beside = write(run, number, form.value, path, architecture)
    print(f"Model: {path}\nDescription: {beside}")
    if local := local_parameters(run):
        print(
            f"Caution: the file has local parameters ({', '.join(local)}). They are computed from "
            "the client's data without noise, and no guarantee covers them."
        )
