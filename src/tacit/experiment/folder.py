"""A run folder: everything that belongs to one run, and nothing of another."""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tacit.config.sections import GRAPH_FILE_KEYS, Config, make_config
from tacit.config.toml import to_toml
from tacit.core.errors import Misuse
from tacit.core.storage import write_text
from tacit.graph import Graph
from tacit.record.history import History

DRAWN_EDGES = 2_000  # a drawing of more shows nothing


@dataclass(frozen=True)
class RunFolder:
    """Names of the files of a run below `path`."""

    path: Path

    @property
    def config(self) -> Path:
        """The configuration as it was run."""
        return self.path / "config.toml"

    @property
    def history(self) -> Path:
        """One JSON record per evaluated round."""
        return self.path / "history.jsonl"

    @property
    def summary(self) -> Path:
        """The outcome in one JSON object; it exists once the run has ended."""
        return self.path / "summary.json"

    @property
    def checkpoints(self) -> Path:
        """Where states are kept."""
        return self.path / "checkpoints"

    def refuse_if_taken(self) -> None:
        """Refuse a folder that is not empty: nothing is ever overwritten."""
        if self.path.exists() and not self.path.is_dir():
            raise Misuse(f"The output folder {self.path} is a file.", "Choose another with --out.")
        if self.config.exists():
            raise Misuse(
                f"The output folder {self.path} holds another run.",
                "Choose another with --out, continue that run with --resume, or remove it first.",
            )
        if self.path.exists() and any(self.path.iterdir()):
            raise Misuse(
                f"The output folder {self.path} is not empty.", "Choose another with --out."
            )

    def create(self, config: Config) -> None:
        """Take possession of an empty or new folder."""
        self.refuse_if_taken()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self.config.touch(
                exist_ok=False
            )  # fails for the second of two runs that found the folder empty
        except OSError as problem:
            raise Misuse(
                f"Cannot make the output folder {self.path}: {problem}.", "Choose another."
            ) from None
        write_text(self.config, to_toml(config.as_dict()))

    def read_config(self) -> Config:
        """The configuration of the run in this folder."""
        try:
            values = tomllib.loads(self.config.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
            raise Misuse(
                f"{self.path} is not a run folder: {problem}.",
                "Give a folder that `tacit run` made.",
            ) from None
        return make_config(values, origin=str(self.config))

    def read_history(self) -> History:
        """The records so far; a last line without its end was being written when the run was killed."""
        try:
            whole, _, _ = self.history.read_text(encoding="utf-8").rpartition("\n")
            return History.from_jsonl(whole)
        except FileNotFoundError:
            return History()
        except (OSError, ValueError, KeyError, TypeError) as problem:
            raise Misuse(f"{self.history} is damaged: {problem}.", "Start the run anew.") from None

    def write_graph(self, graph: Graph) -> None:
        """The graph as the report draws it."""
        drawn = len(graph.edges) <= 2 * DRAWN_EDGES  # an undirected edge is listed both ways
        topology = graph.topology
        picture = {
            "description": graph.describe(),
            "clients": graph.clients,
            "directed": graph.directed,
            "edges": graph.edges.tolist() if drawn else None,
            "positions": topology.layout().tolist() if drawn else None,
        }
        write_text(self.path / "graph.json", json.dumps(picture))

    def write_partition(
        self, counts: list[list[int]], classes: list[str], description: str
    ) -> None:
        """Who has which data, as the report draws it: a row of counts per client, one number per class."""
        table = {"description": description, "classes": classes, "counts": counts}
        write_text(self.path / "partition.json", json.dumps(table))


def fingerprint(config: Config) -> str:
    """What identifies the trajectory a configuration gives: all of it but where and how often to save or look."""
    plain = config.as_dict()
    for key in GRAPH_FILE_KEYS:
        if (name := plain["graph"].get(key)) and Path(name).is_file():
            plain["graph"][key] = hashlib.sha256(Path(name).read_bytes()).hexdigest()
    elsewhere = (
        "device", "evaluate_every", "checkpoint_every", "keep_checkpoints", "gradients", "allow_divergence",
    )  # fmt: skip
    plain["run"] = {key: value for key, value in plain["run"].items() if key not in elsewhere}
    if plain["run"]["prg"] == "philox":
        del plain["run"]["prg"]  # as before there was a choice: runs of that time go on
    plain.pop("transcript", None)
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()
