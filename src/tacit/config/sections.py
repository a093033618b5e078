"""The configuration of an experiment: typed sections, read from TOML, with errors that name key, value, remedy."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, ValidationError

from tacit.core.errors import Misuse, unknown

GRAPH_FILE_KEYS = ("matrix", "path")  # keys of [graph] that name files
DATA_SECTIONS = ("data", "partition", "model")  # sections that a [task] stands for


class ConfigSection(BaseModel):
    """A section whose keys are all known."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class OpenSection(BaseModel):
    """A section with further options, checked by what they are options of."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)

    @property
    def options(self) -> dict[str, Any]:
        """The keys beyond the declared ones."""
        return dict(self.model_extra or {})


class TaskSection(OpenSection):
    """A task that makes its own data, instead of [data], [partition] and [model]; further keys are its options."""

    name: str


class DataSection(OpenSection):
    """Which dataset; further keys are options of its loader."""

    name: str = "mnist-mini"
    limit_train: PositiveInt | None = None
    limit_test: PositiveInt | None = None
    seed: NonNegativeInt = (
        0  # of what is drawn at random from the files; the same for all seeds of a run
    )


class PartitionSection(OpenSection):
    """How samples are dealt to clients; further keys are options of the kind (`alpha`, `k`)."""

    kind: str = "iid"
    seed: NonNegativeInt | None = None  # the run's seed if not given


class ModelSection(OpenSection):
    """Which model: a name or "package.module:Class"; further keys are its options."""

    name: str = "mlp"
    init: Literal["same", "independent", "module"] = (
        "same"  # module: as its constructor leaves it, keyed
    )


class GraphSection(OpenSection):
    """Who talks to whom (further keys are options of the kind) and with which weights."""

    kind: str = "ring"
    seed: NonNegativeInt | None = None  # the run's seed if not given
    mixing: Literal["metropolis", "laplacian", "sinkhorn", "matrix"] = "metropolis"
    lazy: bool = False
    kappa: float | None = None  # of the Laplacian rule
    random_weights: bool = (
        False  # Sinkhorn–Knopp from a random positive pattern, drawn by the graph's seed
    )
    matrix: str | None = (
        None  # file of W for mixing = "matrix": numbers as text, one row per line, or .npy
    )


class AlgorithmSection(OpenSection):
    """Which algorithm: a name or "package.module:Class"; further keys are its options."""

    name: str = "lppa"


class ClipSection(ConfigSection):
    """No gradient is longer than `bound`: what differential privacy needs (l1 for Laplace noise, l2 for Gaussian)."""

    bound: float
    norm: Literal["l1", "l2"] = "l2"


class TranscriptSection(ConfigSection):
    """Which messages to keep, for later audits: iterations, clients that send or receive them, tags."""

    first: NonNegativeInt = 0
    last: NonNegativeInt = 20
    clients: list[NonNegativeInt] | None = None
    tags: list[str] | None = None
    insides: list[
        NonNegativeInt
    ] = []  # clients of which also gradients and noise are kept: they may be corrupt
    theta0: bool = False  # keep all first models: somebody may know them


class RunSection(ConfigSection):
    """How long, how, and what to keep."""

    rounds: PositiveInt = 20
    batch_size: PositiveInt = 32
    iterations_per_round: PositiveInt | None = (
        None  # one pass over the average client's data if not given
    )
    seed: NonNegativeInt = 0
    device: str = "cpu"
    gradients: Literal["auto", "layered", "batched", "looped"] = "auto"
    prg: Literal["philox", "chacha20"] = (
        "philox"  # of noise; chacha20: keystreams, as peers derive them
    )
    evaluate_every: PositiveInt = 1
    checkpoint_every: PositiveInt = 10
    keep_checkpoints: PositiveInt = 2
    allow_divergence: bool = False
    clip: ClipSection | None = None


class Config(ConfigSection):
    """A whole experiment: a model trained on data that were dealt out, or a task that makes its own data."""

    task: TaskSection | None = None
    data: DataSection = DataSection()
    partition: PartitionSection = PartitionSection()
    model: ModelSection = ModelSection()
    graph: GraphSection = GraphSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    run: RunSection = RunSection()
    transcript: TranscriptSection | None = None

    @property
    def subject(self) -> str:
        """What is learnt from: the name of the task or of the dataset."""
        return self.data.name if self.task is None else self.task.name

    def as_dict(self) -> dict[str, Any]:
        """Plain values without the keys that are None or that a task replaces."""
        plain = self.model_dump(exclude_none=True)
        if self.task is not None:
            for section in DATA_SECTIONS:
                del plain[section]
            del plain["run"]["batch_size"]
        return plain


def load_config(path: Path, overrides: Sequence[str] = ()) -> Config:
    """Read a TOML file and apply overrides such as "algorithm.lr=0.05"."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Misuse(
            f"There is no configuration file {path}.", "Check the name; examples/ has some."
        ) from None
    except (OSError, UnicodeDecodeError) as problem:
        raise Misuse(
            f"Cannot read {path}: {problem}.", "Give a text file in TOML format."
        ) from None
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise Misuse(f"{path} is not valid TOML: {problem}.", "Correct that line.") from None
    origin = f"{path} with --set" if overrides else str(path)
    return make_config(_located(values, path.parent), overrides, origin)


def _located(values: dict[str, Any], base: Path) -> dict[str, Any]:
    """Files named relative to `base`, with their full names, so that a run's config.toml finds them from anywhere."""
    graph = values.get("graph")
    if not isinstance(graph, dict):
        return values
    named = {key: graph[key] for key in GRAPH_FILE_KEYS if isinstance(graph.get(key), str)}
    return values | {
        "graph": graph | {key: str((base / name).resolve()) for key, name in named.items()}
    }


def make_config(
    values: dict[str, Any], overrides: Sequence[str] = (), origin: str = "The configuration"
) -> Config:
    """Check plain values and make a configuration of them."""
    for override in overrides:
        values = _located(_overridden(values, override), Path())
    try:
        config = Config.model_validate(values)
    except ValidationError as problem:
        raise _explained(problem, origin) from None
    _refuse_what_a_task_replaces(config, origin)
    return config


def _refuse_what_a_task_replaces(config: Config, origin: str) -> None:
    if config.task is None:
        return
    why = f"does not go with [task]: {config.task.name} makes its own data."
    for section in DATA_SECTIONS:
        if section in config.model_fields_set:
            raise Misuse(f"{origin}: [{section}] {why}", "Remove one of the two sections.")
    if "batch_size" in config.run.model_fields_set:
        raise Misuse(f"{origin}: run.batch_size {why}", "Set task.batch_size instead.")


def with_keys(config: Config, section: str, **values: Any) -> Config:
    """A copy of a configuration with some keys of one section replaced."""
    plain = config.as_dict()
    plain[section] = plain.get(section, {}) | values
    return make_config(plain)


def parse_override(text: str) -> tuple[list[str], Any]:
    """The path and the value of "section.key=value"; the value is TOML, a bare word is a string."""
    key, equals, value = text.partition("=")
    path = [step.strip() for step in key.split(".")]
    if not equals or not all(path):
        raise Misuse(
            f"{text!r} is not of the form key=value.",
            "E.g. run.seed=3 or algorithm.noise.scale=0.5.",
        )
    try:
        return path, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return path, value.strip()


def _overridden(values: dict[str, Any], override: str) -> dict[str, Any]:
    path, value = parse_override(override)
    if len(path) < 2:
        raise Misuse(
            f"The override {override!r} names no section.",
            "Write section.key=value, e.g. run.seed=3.",
        )

    def put(table: Any, steps: list[str]) -> Any:
        if not isinstance(table, dict):
            raise Misuse(
                f"The override {override!r} goes into something that is no table.",
                "Check its path.",
            )
        inner = put(table.get(steps[0], {}), steps[1:]) if len(steps) > 1 else value
        return table | {steps[0]: inner}

    return cast(dict[str, Any], put(values, path))


def _explained(problem: ValidationError, origin: str) -> Misuse:
    """The first thing that is wrong, in words."""
    error = problem.errors()[0]
    path = [str(step) for step in error["loc"]]
    key = ".".join(path)
    value = error.get("input")
    if error["type"] == "extra_forbidden":
        what = "section" if isinstance(value, dict) else "key"
        return unknown(f"{origin}: there is no {what} {key!r}.", path[-1], _known_keys(path[:-1]))
    if error["type"] == "missing":
        return Misuse(f"{origin}: {key} is not set.", f"Add {path[-1]} to [{'.'.join(path[:-1])}].")
    impossible = f"{origin}: {key} = {value!r} is not possible."
    if error["type"] == "model_type":
        return Misuse(impossible, f"Write a section [{key}] with its keys below.")
    return Misuse(impossible, f"{error['msg']}.".replace("Input", "It", 1))


def _known_keys(path: list[str]) -> list[str]:
    model: type[BaseModel] = Config
    for step in path:
        annotation = model.model_fields[step].annotation
        choices = [annotation, *get_args(annotation)]
        model = next(c for c in choices if isinstance(c, type) and issubclass(c, BaseModel))
    return list(model.model_fields)
