"""Models of runs as files for other programs: PyTorch, safetensors and ONNX."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tacit.core.errors import Misuse, first_line
from tacit.core.shown_paths import without_folders
from tacit.core.storage import replacing, write_json
from tacit.core.version import __version__
from tacit.experiment.saved import SavedRun
from tacit.record.model_files import ModelLayout, metadata
from tacit.tasks.criteria import logits_of

Format = Literal["torch", "safetensors", "onnx"]
SUFFIXES: dict[Format, str] = {"torch": ".pt", "safetensors": ".safetensors", "onnx": ".onnx"}
INSTALL_ONNX = (
    "Install it: pip install 'tacit-learn[onnx]', or in a checkout of the repository "
    "pip install -c constraints.txt '.[onnx]'."
)


def export(
    run: SavedRun, client: int | str, form: Format, out: Path, module: nn.Module | None = None
) -> Path:
    """Write a model of a run to a file, and what it needs to be used to a JSON file beside it.

    Args:
        run: The run.
        client: Whose model, from 0, or "average".
        form: "torch": a state_dict for `torch.load(file, weights_only=True)`; "safetensors": the
            same tensors; "onnx": the whole model, for any number of samples.
        out: The file.
        module: A module of the run's architecture, which is changed. ONNX needs it for runs that
            were made in Python.

    Returns:
        The JSON file: inputs, names of the classes, the data, and how the model was trained.

    Raises:
        Misuse: If there is no such model, it cannot be written, or a package is missing.
    """
    facts = _facts(run, client, form)
    writers: dict[Format, Callable[[Path], None]] = {
        "torch": lambda part: torch.save(run.state_dict(client), part),
        "safetensors": lambda part: _write_safetensors(run.state_dict(client), facts, part),
        "onnx": lambda part: _write_onnx(run, client, facts, part, module),
    }
    beside = out.with_name(f"{out.name}.json")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with replacing(out) as part:
            writers[form](part)
        write_json(beside, facts)
    except OSError as problem:
        raise Misuse(f"Cannot write {out}: {problem}.", "Choose another --out.") from None
    return beside


def _facts(run: SavedRun, client: int | str, form: Format) -> dict[str, Any]:
    layout = run.layout or ModelLayout({})
    summary = run.summary
    return {
        "format": form,
        "client": client,
        "inputs": [asdict(model_input) for model_input in layout.inputs],
        "classes": layout.outputs,
        "class_names": list(layout.class_names),
        "data": without_folders(layout.data),
        "data_section": _shared_data_section(run.config.get("data", {})),
        "preprocessing": dict(layout.preprocessing),
        "model": run.config.get("model", {}),
        "local": local_parameters(run),
        "algorithm": run.config.get("algorithm", {}),
        "steps": run.step,
        **{name: summary.get(name) for name in ("accuracy", "loss", "privacy", "seed")},
        "version": __version__,
    }


def local_parameters(run: SavedRun) -> list[str]:
    """Names or patterns of the local parameters in a model, which no guarantee covers."""
    layout = run.layout or ModelLayout({})
    # The layout of a node's model does not tell its local parameters from others.
    return list(layout.local or run.config.get("model", {}).get("local") or ())


def _shared_data_section(section: dict[str, Any]) -> dict[str, Any]:
    """[data] without the names of the clients, and without folders of this machine."""
    return {
        key: without_folders(value) if isinstance(value, str) else value
        for key, value in section.items()
        if key != "clients"
    }


def _write_safetensors(state: dict[str, Tensor], facts: dict[str, Any], path: Path) -> None:
    from safetensors.torch import save_file

    # Tied parameters are stored under each of their names.
    save_file({name: x.clone() for name, x in state.items()}, path, metadata=metadata(facts))


class _Outputs(nn.Module):
    """The output of a module as a tensor, of inputs in their order."""

    def __init__(self, module: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.module, self.names = module, names

    def forward(self, *inputs: Tensor) -> Tensor:
        if self.names:
            return logits_of(self.module(**dict(zip(self.names, inputs, strict=True))))
        return logits_of(self.module(*inputs))


def _write_onnx(
    run: SavedRun, client: int | str, facts: dict[str, Any], path: Path, given: nn.Module | None
) -> None:
    if missing := [name for name in ("onnx", "onnxscript") if find_spec(name) is None]:
        raise Misuse(f"ONNX files need the package {missing[0]}.", INSTALL_ONNX)
    module = run.module(client, given)
    assert run.layout is not None
    write_onnx(module, run.layout, facts, path)


def write_onnx(module: nn.Module, layout: ModelLayout, facts: dict[str, Any], path: Path) -> None:
    """Write a module as an ONNX file whose inputs have any number of samples."""
    names = tuple(model_input.name for model_input in layout.inputs)
    outputs = _Outputs(module, names if layout.by_name else ()).eval()
    # Two samples: torch.export takes a dimension of one for a constant.
    examples = tuple(model_input.example(2) for model_input in layout.inputs)
    batch = torch.export.Dim("batch")
    try:
        with warnings.catch_warnings(), _without_log("torch.onnx"):
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                outputs,
                examples,
                input_names=list(names),
                output_names=["output"],
                dynamic_shapes={"inputs": tuple({0: batch} for _ in examples)},
                dynamo=True,
                verbose=False,
            )
    except Exception as problem:  # whatever tracing a user's module raises
        raise Misuse(
            f"The model cannot be written as ONNX: {first_line(problem)}",
            "Choose --format torch or safetensors, or use operations that torch.export supports.",
        ) from problem
    assert program is not None
    program.model.metadata_props["tacit"] = json.dumps(facts, ensure_ascii=False)
    program.save(str(path), external_data=False)


@contextmanager
def _without_log(name: str) -> Iterator[None]:
    """Leave out warnings of a logger, such as that torchvision is not installed."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
