"""The sections and keys of a configuration: their types, defaults and descriptions.

The string below a key is its description.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    field_validator,
    model_validator,
)

# Keys of [graph] that name files.
GRAPH_FILE_KEYS = ("matrix", "path")
# Keys of [data] that name files.
DATA_FILE_KEYS = ("files", "file", "test")
# Keys of [data] that say where own data come from.
OWN_DATA_KEYS = ("function", "files", "file")
OWN_DATA = "own"  # the data.name of data that the clients bring
# What `run.gradients` was in version 0.1, which wrote it into the config.toml of each run.
EARLIER_GRADIENTS = ("layered", "batched")
# Sections that a [task] replaces.
DATA_SECTIONS = ("data", "partition", "model")


class Section(BaseModel):
    """A section that accepts no other keys than its own."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        defer_build=True,
        use_attribute_docstrings=True,
    )


class OpenSection(Section):
    """A section that also takes the options of whatever its `name` or `kind` selects."""

    model_config = ConfigDict(extra="allow")

    @property
    def options(self) -> dict[str, Any]:
        """The keys beyond the declared ones, not checked yet."""
        return dict(self.model_extra or {})


class TaskSection(OpenSection):
    """A task that generates its own data, in place of [data], [partition] and [model]."""

    name: str
    """The task: "adaptive-filtering" or "localization"."""


class AugmentSection(Section):
    """Random changes of the images that gradients see; models are evaluated on the given ones."""

    crop: NonNegativeInt = 0
    """Pixels that an image is moved by at most; what leaves it is cut off, zeros come in."""
    flip: bool = False
    """Whether half of the images are mirrored, left to right."""


class DataSection(OpenSection):
    """A named dataset, or own data: a file per client, one table for all, or a function."""

    name: str = "mnist-mini"
    """A dataset of `tacit data list`, or "own": data from `files`, `file` or `function`."""
    files: str | None = None
    """A file per client, such as "sites/{client}.csv": a table, or arrays in .npz, .safetensors."""
    file: str | None = None
    """One table for all, or a database's URL; without `client`, [partition] divides it."""
    function: str | None = None
    """Your own "package.module:function", which returns the data of all clients or of one."""
    client: str | None = None
    """The column of `file` that names the client of each row."""
    clients: list[str] | None = None
    """Names of the clients, in the order of the graph; default: all, sorted."""
    label: str | None = None
    """The column with the class, or with the number to predict; tables need it."""
    target: str | dict[str, float] | None = None
    """What the label is: "classes" (default), "number", or { mean = …, std = … } of a number."""
    classes: int | list[str | int] | None = None
    """Names of the classes in order, or their number; default: all that occur."""
    shape: list[PositiveInt] | None = None
    """Shape of one input; a federation needs it for own data that are no tables."""
    ignore: list[str] | None = None
    """Columns to leave out where there is no `schema`; not all tables need to have them."""
    standardize: bool | None = None
    """Standardise numbers over all clients' training rows, and fill in the mean; default: yes."""
    test: float | str | None = None
    """Share of each client's rows that is held out, or a file for all to test on; default: 0.2."""
    columns: dict[str, Any] | None = Field(default=None, alias="schema")
    """The columns to use: "number", a list of categories, or { mean = …, std = … } each."""
    recode: dict[str, dict[str, str]] | None = None
    """Other spellings of values by column, such as sex = { m = "male" }; "" is a missing value."""
    read: dict[str, str] | None = None
    """How tables are read: separator, quote, encoding, decimal, thousands, sheet, table, query."""
    limit_train: PositiveInt | None = None
    """Number of training samples to keep, drawn at random; default: all."""
    limit_test: PositiveInt | None = None
    """Number of test samples to keep, drawn at random; default: all."""
    validation: float | None = None
    """Share of the training samples that models are evaluated on instead of the test samples."""
    seed: NonNegativeInt = 0
    """Seed of everything that is drawn from the dataset's files; independent of `run.seed`."""
    augment: AugmentSection | None = None
    """Random changes of the images in training; default: none."""

    @model_validator(mode="before")
    @classmethod
    def _name_own_data(cls, values: Any) -> Any:
        if isinstance(values, dict) and "name" not in values and values.keys() & {*OWN_DATA_KEYS}:
            return {"name": OWN_DATA, **values}
        return values

    @property
    def is_own(self) -> bool:
        """Whether the clients bring their own data."""
        return self.name == OWN_DATA


class PartitionSection(OpenSection):
    """The division of the training samples among the clients."""

    kind: str = "iid"
    """One of "iid", "quantity", "dirichlet", "classes", "missing" and "explicit"."""
    seed: NonNegativeInt | None = None
    """Seed of the partition; default: `run.seed`."""


class ModelSection(OpenSection):
    """The model that every client trains."""

    name: str = "mlp"
    """A model of the table below, such as "cnn2", or your own "package.module:Class"."""
    init: Literal["same", "independent", "module"] = "same"
    """Initial weights: one draw for all clients, one draw each, or the constructor's own."""
    local: list[str] | None = None
    """Parameters that each client keeps to itself, such as ["head"]; patterns may have a `*`."""
    local_lr: float | None = None
    """Step size of the local parameters; default: that of the algorithm."""


class GraphSection(OpenSection):
    """The graph of the clients and its mixing weights."""

    kind: str = "ring"
    """The family of the graph; its options are further keys."""
    seed: NonNegativeInt | None = None
    """Seed of random graphs and random weights; default: `run.seed`."""
    mixing: Literal["metropolis", "laplacian", "sinkhorn", "out-degree", "matrix"] = "metropolis"
    """The rule that makes the mixing weights W from the graph."""
    lazy: bool = False
    """Use (I + W)/2 in place of W."""
    kappa: float | None = None
    """κ of laplacian mixing, W = I − L/κ; default: the largest degree + 1."""
    random_weights: bool = False
    """With sinkhorn mixing, balance random positive entries instead of ones."""
    matrix: str | None = None
    """File of W, one row per line or .npy; relative names start at the configuration file."""
    of: GraphSection | None = None
    """With kind "matchings", the graph whose edges are matched; default: a complete graph."""
    phases: list[PhaseSection] | None = None
    """With kind "phases", the graphs that follow each other, again and again."""


class PhaseSection(GraphSection):
    """One graph of several that follow each other: the keys of [graph], and its iterations."""

    iterations: PositiveInt
    """For how many iterations this graph stays."""


class AbsenceSection(Section):
    """A client that drops out and returns."""

    client: NonNegativeInt
    """The number of the client."""
    first: NonNegativeInt = 0
    """The first iteration that it misses, counted from 0."""
    last: NonNegativeInt | None = None
    """The last iteration that it misses; default: it never returns."""


class ParticipationSection(Section):
    """Which clients take part in an iteration, and which messages are late; default: all, none."""

    share: float = 1.0
    """The share of the clients that take part in an iteration, drawn anew each time."""
    absences: list[AbsenceSection] = []
    """Clients that drop out and return, as [[participation.absences]]."""
    delay: NonNegativeInt = 0
    """Messages arrive up to this many iterations late."""
    stragglers: list[NonNegativeInt] | None = None
    """Only messages of these clients are late; default: those of all clients."""


class AlgorithmSection(OpenSection):
    """The algorithm; its options are further keys."""

    name: str = "lppa"
    """An algorithm of `tacit algorithms`, or your own "package.module:Class"."""


class ClipSection(Section):
    """Clipping of every client's gradient, which differential privacy needs."""

    bound: float
    """Largest norm of a gradient; larger ones are scaled down."""
    norm: Literal["l1", "l2"] = "l2"
    """The norm: "l2" for Gaussian noise, "l1" for Laplace noise."""


class PrivacySection(Section):
    """The guarantee that the run must keep, with an algorithm such as private-sgd."""

    epsilon: float
    """ε of the guarantee for the whole run; inf: sums without noise, and no guarantee."""
    delta: float = 1e-5
    """δ of the guarantee; less than one over the number of samples."""
    unit: Literal["sample", "client"] = "sample"
    """What the guarantee protects: one training sample, or all data of one client."""
    honest: PositiveInt | None = None
    """Clients that are assumed to be honest; default: all but one."""
    samples: PositiveInt | None = None
    """Training samples of all clients, a public number; needed in a federation."""
    sampling_rate: float | None = None
    """Probability that an iteration draws a sample; default: the clients' batches over samples."""
    noise_multiplier: float | None = None
    """Noise instead of as much as the rounds need; the run then stops when epsilon is spent."""
    clip: float = 1.0
    """Largest norm of one sample's gradient, or of one client's update; inf with epsilon = inf."""


class FederationSection(Section):
    """What the members of a federation agree on beside the training; `tacit run` ignores it."""

    share_metrics: bool = False
    """Whether nodes with `--share-scores` tell members and operator their loss and accuracy."""


class RobustSection(Section):
    """Mixing that bounds what lying neighbours can do; without this section there is none."""

    rule: Literal["centred-clipping", "trimmed-mean"] = "centred-clipping"
    """How a client combines its own row with those that it receives."""
    liars: PositiveInt = 1
    """How many neighbours of one client may lie; more break the rule."""
    allow_inexact: bool = False
    """Run algorithms that need exact averages, too: cautions and audits say what that costs."""


class TranscriptSection(Section):
    """The messages to record for later audits; without this section none are recorded."""

    first: NonNegativeInt = 0
    """First tick to record; 0 is the start."""
    last: NonNegativeInt = 20
    """Last tick to record; tick t is the exchange of iteration t."""
    clients: list[NonNegativeInt] | None = None
    """Record only what these clients send or receive; default: all clients."""
    tags: list[str] | None = None
    """Record only messages with these tags, such as ["gamma"]; default: all tags."""
    insides: list[NonNegativeInt] = []
    """Clients whose gradients, noise and initial models are recorded too: they may be corrupt."""
    theta0: bool = False
    """Record the initial models of all clients, for adversaries that know them."""


class RunSection(Section):
    """The length of the run, how it computes, and what it records."""

    rounds: PositiveInt = 20
    """Number of passes over the average client's data, or of iterations with a [task]."""
    batch_size: PositiveInt = 32
    """Samples per client in one gradient."""
    iterations_per_round: PositiveInt | None = None
    """Iterations in a round; default: one pass over the average client's data."""
    seed: NonNegativeInt = 0
    """Seed of everything that is drawn at random."""
    device: str = "cpu"
    """Where tensors live: "cpu", "cuda" or a numbered device such as "cuda:1"."""
    gradients: Literal["auto", "stacked", "looped"] = "auto"
    """Gradients of all clients at once ("stacked"), one by one, or at once where possible."""
    precision: Literal["float32", "tf32", "bf16"] = "float32"
    """Gradients in float32, with products in TF32 (on a GPU), or in bf16 by autocast."""
    prg: Literal["philox", "chacha20"] = "philox"
    """Generator of the noise: "philox" is fast, "chacha20" uses pairwise keys as nodes do."""
    secret_noise: bool = False
    """Samples of private sums and noise from a secret key, not from the seed; nodes always do."""
    evaluate_every: PositiveInt = 1
    """Rounds between two history records."""
    metrics: list[str] | None = None
    """Metrics beside loss and accuracy, such as ["auc", "f1"], or "package.module:function"."""
    checkpoint_every: PositiveInt = 10
    """Rounds between two checkpoints."""
    keep_checkpoints: PositiveInt = 2
    """Number of checkpoints to keep; older ones are removed."""
    keep_best: str | None = None
    """Metric such as "auc" or "loss.mean"; the best state by it is kept in the folder `best`."""
    allow_divergence: bool = False
    """Continue when a state becomes NaN or infinite, and report it in the summary."""
    clip: ClipSection | None = None
    """Clipping of the gradients; default: none."""

    @field_validator("gradients", mode="before")
    @classmethod
    def _replace_earlier_ways(cls, value: Any) -> Any:
        return "auto" if value in EARLIER_GRADIENTS else value


class StopSection(Section):
    """When to end a run early; without this section it runs to its end. Nodes ignore it."""

    metric: str = "loss.mean"
    """Metric such as "auc" or "loss.mean"; of losses and distances less is better, else more."""
    patience: PositiveInt = 5
    """Number of records without a better one after which the run ends."""
    min_change: float = 0.0
    """What counts as better: by more than this."""


class LogSection(Section):
    """Other tools that get every record of the history. Nodes ignore it."""

    tensorboard: bool = False
    """Write events for TensorBoard into the folder `tensorboard` of the run."""
    mlflow: str | None = None
    """Experiment of MLflow to log to, at $MLFLOW_TRACKING_URI."""
    wandb: str | None = None
    """Project of Weights & Biases; $WANDB_MODE says how, by default "offline"."""


class Config(Section):
    """A whole experiment: [data], [partition] and [model], or a [task], and how to run it."""

    task: TaskSection | None = None
    data: DataSection = DataSection()
    partition: PartitionSection = PartitionSection()
    model: ModelSection = ModelSection()
    graph: GraphSection = GraphSection()
    algorithm: AlgorithmSection = AlgorithmSection()
    run: RunSection = RunSection()
    participation: ParticipationSection | None = None
    privacy: PrivacySection | None = None
    robust: RobustSection | None = None
    transcript: TranscriptSection | None = None
    federation: FederationSection | None = None
    stop: StopSection | None = None
    log: LogSection | None = None

    @property
    def shares_metrics(self) -> bool:
        """Whether a federation allows nodes to tell their loss and accuracy."""
        return self.federation is not None and self.federation.share_metrics

    @property
    def task_name(self) -> str:
        """The name of the task, or of the dataset if there is no [task], for titles."""
        if self.task is not None:
            return self.task.name
        return "own data" if self.data.name == OWN_DATA else self.data.name

    def as_dict(self) -> dict[str, Any]:
        """Plain values, without keys that are None or that a [task] replaces."""
        plain = self.model_dump(exclude_none=True, by_alias=True)
        if self.task is not None:
            for section in DATA_SECTIONS:
                del plain[section]
            del plain["run"]["batch_size"]
        return plain


def key_names(section: type[BaseModel]) -> dict[str, str]:
    """The keys of a section as they are written, by the field that holds them."""
    return {name: field.alias or name for name, field in section.model_fields.items()}
