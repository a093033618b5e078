"""The final model of a node, read back from its folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file

from tacit.core.errors import Misuse
from tacit.core.storage import read_json
from tacit.data.own.loading import class_names_of
from tacit.experiment.saved import SavedRun
from tacit.peer.federation.agreed_settings import agreed_data
from tacit.peer.federation.folders import NodeFolder
from tacit.peer.federation.manifest import Manifest
from tacit.peer.node.allowed_code import check_allowed
from tacit.record import model_files
from tacit.record.history import History
from tacit.record.model_files import ModelLayout
from tacit.tasks import Objective


def save_layout(task: Objective, manifest: Manifest, note: str, folder: Path) -> None:
    """Write what turns the model of a node into a module: see `model_files`."""
    config = manifest.config
    classes = None if config.task is not None else agreed_data(config)[1] or None
    names = class_names_of(config.data.classes)
    layout = ModelLayout.of(task, classes, names, note)
    if layout is not None:
        # The node's file has its whole model, local parameters included.
        model_files.save(replace(layout, local=()), folder)


def load_node(folder: Path, allowed_code: Sequence[str]) -> SavedRun:
    """The final model of a node, as a run of one client.

    Args:
        folder: The folder of the node.
        allowed_code: Code of the manifest that may run: see `check_allowed`.

    Raises:
        Misuse: If the node has not finished, or its model needs code that is not allowed.
    """
    node = NodeFolder(folder)
    manifest, file = node.manifest(), node.run / "model.safetensors"
    check_allowed(manifest.config, allowed_code)
    try:
        theta = load_file(file)["theta"]
    except (OSError, KeyError, SafetensorError) as problem:
        raise Misuse(
            f"{folder} has no final model: {problem}.", "Wait until the node has finished."
        ) from None
    summary = read_json(node.run / "summary.json")
    return SavedRun(
        node.run,
        manifest.config.as_dict(),
        History(),
        {"theta": theta[None]},
        int(summary.get("steps", 0)),
        model_files.load(node.run),
        # Of one model, so that the names are those of `tacit run`.
        summary | {"names": [node.name]},
    )
