"""The files of a run that was made in Python: those of a run folder, without a configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from tacit.algorithms.algorithm import Algorithm, options_of
from tacit.algorithms.private_algorithm import data_cautions
from tacit.core.errors import Misuse
from tacit.core.storage import write_json, write_text
from tacit.core.toml import to_toml
from tacit.core.version import __version__
from tacit.graph import Graph
from tacit.record import checkpoint, model_files, transcript_files
from tacit.record.history import History
from tacit.record.transcript import Transcript
from tacit.tasks.objective import Objective

MAX_DRAWN_EDGES = 2_000  # drawings with more show nothing
NOTE = "# A run that was made in Python. This file describes it; `tacit run` cannot repeat it.\n"


def save(
    folder: Path,
    algorithm: Algorithm,
    task: Objective,
    graph: Graph,
    state: checkpoint.Checkpoint,
    history: History,
    transcript: Transcript | None,
    run: dict[str, Any],
) -> None:
    """Write all files of a run into a new or empty folder.

    Args:
        folder: Where to write.
        algorithm: What ran.
        task: What was minimised.
        graph: Between which clients.
        state: The state at the end.
        history: The records; the last is that of the end.
        transcript: The messages, if they were recorded.
        run: Further facts of the run, such as its seed.

    Raises:
        Misuse: If the folder is not empty or cannot be written.
    """
    if folder.is_dir() and any(folder.iterdir()):
        raise Misuse(f"The folder {folder} is not empty.", "Choose another, or remove it first.")
    layout = model_files.ModelLayout.of(task)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint.save(folder / "checkpoints", state)
        write_text(folder / "history.jsonl", history.to_jsonl())
        write_json(folder / "graph.json", graph_facts(graph, task.names))
        if transcript is not None:
            transcript_files.save(transcript, folder)
        if layout is not None:
            model_files.save(layout, folder)
        described = {
            "python": {"task": repr(task)},
            "algorithm": {"name": algorithm.name, **_options(algorithm)},
            "graph": {"description": graph.describe()},
            "run": run,
        }
        write_text(folder / "config.toml", NOTE + to_toml(described))
        last = history[-1].as_dict()
        notes = [*filter(None, [task.disclosure]), *data_cautions(algorithm, task)]
        facts: dict[str, Any] = {"privacy": state.privacy, "notes": notes}
        if state.diverged:
            facts["diverged"] = state.diverged
        whole = summary_of(algorithm, task, last, state.step, last["round"], run["seed"], **facts)
        write_json(folder / "summary.json", whole)
    except OSError as problem:
        raise Misuse(f"Cannot write {folder}: {problem}.", "Choose another folder.") from None


def graph_facts(graph: Graph, names: Sequence[str] = ()) -> dict[str, Any]:
    """What graph.json holds; edges and positions only if they are few enough to draw."""
    # A Graph lists undirected edges in both directions.
    drawable = len(graph.edges) <= 2 * MAX_DRAWN_EDGES
    return {
        "description": graph.describe(),
        "clients": graph.clients,
        "directed": graph.directed,
        "edges": graph.edges.tolist() if drawable else None,
        "positions": graph.topology.layout().tolist() if drawable else None,
        **({"names": list(names)} if names else {}),
    }


def _options(algorithm: Algorithm) -> dict[str, Any]:
    """The options that are not the default ones; others than plain values as text."""
    defaults = {field.name: field.default for field in fields(algorithm)}  # type: ignore[arg-type]
    given = {name: getattr(algorithm, name) for name in options_of(type(algorithm))}
    return {
        name: value if isinstance(value, bool | int | float | str) else repr(value)
        for name, value in given.items()
        if value is not None and value != defaults[name]
    }


def summary_of(
    algorithm: Algorithm,
    task: Objective,
    last: Mapping[str, Any],
    steps: int,
    rounds: int,
    seed: int,
    **further: Any,
) -> dict[str, Any]:
    """What summary.json holds of any run: what ran, its last record, and further facts."""
    return {
        "algorithm": algorithm.name,
        "steps": steps,
        "rounds": rounds,
        "clients": task.clients,
        **({"names": list(task.names)} if task.names else {}),
        "parameters": task.parameters,
        **{name: value for name, value in last.items() if name not in ("round", "step")},
        "seed": seed,
        **further,
        "version": __version__,
    }
