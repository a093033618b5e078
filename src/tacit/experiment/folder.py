"""The folder of a run: its files, and what identifies the run that they belong to."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

from tacit.config.loading import make_config
from tacit.config.own_data import files_digest
from tacit.config.sections import GRAPH_FILE_KEYS, Config, PrivacySection
from tacit.core.errors import Misuse, first_line
from tacit.core.storage import write_text
from tacit.core.toml import flatten, to_toml
from tacit.record.checkpoint import saved_fingerprint
from tacit.record.history import History
from tacit.report.finished_run import StoredModel, read_history

# Keys of [run] that do not change the states, only where they are computed and what is kept.
NEUTRAL_RUN_KEYS = (
    "device", "evaluate_every", "checkpoint_every", "keep_checkpoints", "gradients",
    "allow_divergence", "metrics", "keep_best",
)  # fmt: skip

# Bytes of a label in the name of a folder; file systems allow 255 in all.
MAX_NAME = 120

# How much a message says of what differs between two configurations.
MAX_DIFFERENCES, MAX_SHOWN = 5, 60

# Sections that do not change the states either.
NEUTRAL_SECTIONS = ("transcript", "stop", "log")

# Keys of [run] that were added later, and what runs did before.
LATER_RUN_KEYS = {"prg": "philox", "precision": "float32", "secret_noise": False}
# Keys of schedules in version 0.1, by the schedule and the key of today.
EARLIER_TIMES = {
    ("exponential", "steps"): "every",
    ("inverse", "steps"): "every",
    ("multi-step", "epochs"): "at",
    ("multi-step", "steps"): "at",
    ("warmup", "epochs"): "length",
    ("warmup", "steps"): "length",
}
DEFAULT_CLIP = PrivacySection.model_fields["clip"].default


class RunFolder:
    """The files of one run below `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.toml"
        self.history = path / "history.jsonl"
        # Exists once the run has ended.
        self.summary = path / "summary.json"
        self.checkpoints = path / "checkpoints"

    def require_empty(self) -> None:
        """Raise Misuse if the folder holds anything: a run never overwrites files."""
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

    def require_new(self, config: Config, resume: str) -> None:
        """Raise Misuse if the folder holds anything; of a run, say which and how to continue it.

        Args:
            config: What is to run.
            resume: The command that continues the run in the folder.
        """
        try:
            existing = self.read_config() if self.config.exists() else None
        except Misuse:
            # No configuration of this version; what it is, the user knows.
            existing = None
        if existing is None:
            self.require_empty()
            return
        if different := self._differences(existing, config):
            problem = f"The output folder {self.path} holds another run: {different}."
        elif self.summary.exists():
            problem = f"The output folder {self.path} holds this run, which has ended."
            raise Misuse(problem, "Choose another with --out, or remove it first.")
        else:
            problem = f"The output folder {self.path} holds this run, which was stopped."
        other = "Choose another with --out, or continue" if different else "Continue"
        raise Misuse(problem, f"{other} that run with --resume:\n  {resume}")

    def require_same_run(self, config: Config, remedy: str) -> None:
        """Raise Misuse if the folder holds a run with another configuration."""
        if self.config.exists() and (different := self._differences(self.read_config(), config)):
            problem = f"The run in {self.path} has another configuration: {different}."
            raise Misuse(problem, remedy)

    def fingerprint_of(self, config: Config) -> str:
        """What identifies the run of this configuration here, which version 0.1 may have begun.

        Raises:
            Misuse: If that version trained it on other rows than this one would.
        """
        saved = saved_fingerprint(self.checkpoints)
        if saved is None or saved not in _earlier_fingerprints(config):
            return fingerprint(config)
        if config.data.validation is not None:
            raise Misuse(
                f"Version 0.1, which began the run in {self.path}, held out other rows for "
                f"data.validation = {config.data.validation:g}, so it cannot be continued or "
                "audited.",
                "Run it again into another folder. `tacit report` and `tacit export` still read "
                "this one.",
            )
        return saved

    def _differences(self, existing: Config, given: Config) -> str:
        """What distinguishes the run here from another; empty if nothing does."""
        saved = saved_fingerprint(self.checkpoints)
        if (listed := differences(existing, given)) or saved in (None, self.fingerprint_of(given)):
            return listed
        return "the files that it names have changed since"

    def create(self, config: Config) -> None:
        """Make the folder, or use an empty one, and write the configuration."""
        self.require_empty()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            # Fails for the second of two runs that found the folder empty.
            self.config.touch(exist_ok=False)
        except OSError as problem:
            raise Misuse(
                f"Cannot make the output folder {self.path}: {problem}.", "Choose another."
            ) from None
        write_text(self.config, to_toml(config.as_dict()))

    def read_config(self) -> Config:
        return make_config(self.read_sections(), origin=str(self.config))

    def read_sections(self) -> dict[str, Any]:
        """The sections of config.toml, which need not be a configuration that can be run."""
        try:
            return tomllib.loads(self.config.read_text(encoding="utf-8"))
        # Also text that is not UTF-8 or TOML, and names with a null character.
        except (OSError, ValueError) as problem:
            raise Misuse(
                f"{self.path} is not a run folder: {first_line(problem)}.",
                "Give a folder that `tacit run` or Run.save wrote.",
            ) from None

    def read_history(self) -> History:
        """The records so far, without a last line that a killed run did not complete."""
        return read_history(self.history) if self.history.exists() else History()

    def write(self, name: str, content: StoredModel) -> None:
        write_text(self.path / name, json.dumps(content.model_dump()))


def folder_name(label: str, suffix: str = "") -> str:
    """A name for the folder of a labelled run: the label, shortened if file systems refuse it.

    >>> folder_name("lppa+fresh=true", "-seed3")
    'lppa+fresh=true-seed3'
    """
    name = label.replace("/", "_").replace("\0", "_")
    if name != label or len(name.encode()) > MAX_NAME:
        # Two labels that are shortened alike stay apart.
        digest = hashlib.sha256(label.encode()).hexdigest()[:8]
        name = f"{name.encode()[:MAX_NAME].decode(errors='ignore')}-{digest}"
    return name + suffix


def fingerprint(config: Config) -> str:
    """Digest of every key that influences the states of a run, and of the files they name."""
    plain = _identity(config)
    if plain.get("data", {}).get("validation") is not None:
        # Version 0.1 held out other rows.
        plain["data"]["held_out"] = "by class"
    return _digest(plain)


def _earlier_fingerprints(config: Config) -> set[str]:
    """The fingerprints that version 0.1 may have given to a run of this configuration."""
    plain = _identity(config)
    plain["algorithm"] = _earlier_times(plain["algorithm"])
    algorithm = plain["algorithm"]
    clip = plain.get("privacy", {}).pop("clip", DEFAULT_CLIP)
    # It was an option of the algorithm: left out, or a number as it was written.
    spelled: list[dict[str, Any]] = [{"clip": clip}]
    if clip == DEFAULT_CLIP:
        spelled.append({})
    if clip.is_integer():
        spelled.append({"clip": int(clip)})
    return {_digest(plain | {"algorithm": algorithm | option}) for option in spelled}


def _earlier_times(value: Any) -> Any:
    """The options of an algorithm with schedules as version 0.1 wrote them."""
    if not isinstance(value, dict):
        return value
    table = {key: _earlier_times(inner) for key, inner in value.items()}
    kind = str(table.get("schedule"))
    epochs, steps = (EARLIER_TIMES.get((kind, key)) for key in ("epochs", "steps"))
    if "epochs" in table and epochs is not None:
        table[epochs] = table.pop("epochs")
    elif "steps" in table and steps is not None:
        table[steps] = table.pop("steps")
        if steps != "every":
            # It counted rounds unless it said otherwise.
            table["every"] = 1
    return table


def _digest(plain: dict[str, Any]) -> str:
    # Dates are possible in TOML, though no key takes one.
    text = json.dumps(plain, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def differences(existing: Config, given: Config) -> str:
    """What distinguishes the run of a folder from one that is asked for; empty if nothing does."""
    flat = [flatten(_identity(config)) for config in (existing, given)]
    names = sorted(key for key in flat[0].keys() | flat[1].keys() if _differ(key, *flat))
    texts = []
    for name in names[:MAX_DIFFERENCES]:
        if name.startswith("data.contents") or name.rpartition(".")[2] in GRAPH_FILE_KEYS:
            texts.append(f"the files of [{name.partition('.')[0]}] differ")
        else:
            values = (_shown(table[name]) if name in table else "not set" for table in flat)
            texts.append("{} is {} there and {} here".format(name, *values))
    more = len(names) - MAX_DIFFERENCES
    return ", ".join(dict.fromkeys(texts)) + (f", and {more} more keys differ" if more > 0 else "")


def _differ(key: str, *values: dict[str, Any]) -> bool:
    texts = {_plain(table[key]) if key in table else None for table in values}
    return len(texts) > 1


def _plain(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def _shown(value: Any) -> str:
    text = _plain(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def _identity(config: Config) -> dict[str, Any]:
    """Every key that influences the states of a run, with digests of the files they name."""
    plain = config.as_dict()
    graph = plain["graph"]
    for section in (graph, graph.get("of", {}), *graph.get("phases", ())):
        for key in GRAPH_FILE_KEYS:
            if (name := section.get(key)) and Path(name).is_file():
                section[key] = hashlib.sha256(Path(name).read_bytes()).hexdigest()
    if config.task is None and config.data.is_own:
        plain["data"]["contents"] = files_digest(config.data)
    for key in NEUTRAL_RUN_KEYS:
        plain["run"].pop(key, None)
    for key, default in LATER_RUN_KEYS.items():
        # Runs from before this key existed keep their fingerprint.
        if plain["run"][key] == default:
            del plain["run"][key]
    for section in NEUTRAL_SECTIONS:
        plain.pop(section, None)
    return plain
