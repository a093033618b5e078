"""The cells of an artifact, and how each of them is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar, cast

from tacit.config.build import Experiment, build
from tacit.config.loading import with_keys
from tacit.config.sections import Config, DataSection
from tacit.config.tasks import load_data
from tacit.data import Dataset
from tacit.experiment.run import ProgressListener

T = TypeVar("T")
Key = tuple[str, ...]
Values = dict[str, Any]  # the numbers of one repeat, as JSON stores them
CACHE_BYTES = 2 << 30
SIGNIFICANT_DIGITS = 6  # of stored numbers: curves have many


@dataclass(frozen=True)
class Scale:
    """The size of an artifact: as published, or a quick version that takes minutes on two cores."""

    quick: bool = False

    def pick(self, full: T, quick: T) -> T:
        return quick if self.quick else full


class DatasetCache:
    """Recently used datasets, up to `capacity` bytes: the cells of a table share a few of them."""

    def __init__(self, capacity: int = CACHE_BYTES) -> None:
        self._capacity = capacity
        self._datasets: dict[str, Dataset] = {}

    def load(self, section: DataSection, folder: Path | None) -> Dataset:
        name = f"{section.model_dump_json()} in {folder}"
        dataset = self._datasets.pop(name, None) or load_data(section, folder)
        self._datasets[name] = dataset  # last: the most recently used
        while len(self._datasets) > 1 and sum(map(_size, self._datasets.values())) > self._capacity:
            del self._datasets[next(iter(self._datasets))]
        return dataset


def _size(dataset: Dataset) -> int:
    parts = (dataset.train, dataset.test)
    return sum(int(array.nbytes) for part in parts for array in (part.x, part.y))


@dataclass(frozen=True, eq=False)
class MeasureContext:
    """Where a cell is measured, and where progress is reported."""

    device: str = "cpu"
    data_folder: Path | None = None
    scratch: Path = Path()  # keeps what an interrupted measurement needs to continue
    listener: ProgressListener = field(default_factory=ProgressListener)
    progress: Callable[[str, int, int], None] = lambda what, done, total: None
    datasets: DatasetCache = field(default_factory=DatasetCache)

    def dataset(self, config: Config) -> Dataset | None:
        """The dataset of a configuration; None where its task generates the data."""
        return (
            None if config.task is not None else self.datasets.load(config.data, self.data_folder)
        )

    def experiment(self, config: Config, seed: int, *, seed_data: bool = False) -> Experiment:
        """Build a configuration with this seed; `seed_data` draws the samples with it too."""
        config = with_keys(config, "run", seed=seed, device=self.device)
        if seed_data and config.task is None:
            config = with_keys(config, "data", seed=seed)
        return build(config, dataset=self.dataset(config))


class Measure(Protocol):
    """How a cell is measured."""

    def describe(self) -> dict[str, Any]:
        """Everything its numbers depend on, except the seed, as plain values.

        Stored numbers are kept only while the description stays the same.
        """
        ...

    def __call__(self, seed: int, context: MeasureContext) -> Values: ...


class FieldDescription:
    """Describes a measure by its dataclass fields."""

    label: ClassVar[tuple[str, str]]  # a key, and the field that stands under it, first

    def describe(self) -> dict[str, Any]:
        values = {each.name: _plain(getattr(self, each.name)) for each in fields(cast(Any, self))}
        key, first = self.label
        return {key: values.pop(first), **values}


def describe_config(config: Config) -> dict[str, Any]:
    """A configuration as plain values."""
    plain = config.as_dict()
    # Numbers that were stored before these were keys are in float32, and follow from seeds.
    for key, before in (("precision", "float32"), ("secret_noise", False)):
        if plain["run"][key] == before:
            del plain["run"][key]
    return plain


def _plain(value: Any) -> Any:
    if isinstance(value, Config):
        return describe_config(value)
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


@dataclass(frozen=True)
class Combined:
    """Several measures with the same seed; if two give a number of one name, the first one wins."""

    measures: tuple[Measure, ...]

    def describe(self) -> dict[str, Any]:
        return {"together": [measure.describe() for measure in self.measures]}

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        values: Values = {}
        for number, measure in enumerate(self.measures):
            part = replace(context, scratch=context.scratch / str(number))
            values = measure(seed, part) | values
        return values


def rounded(value: float | None) -> float | None:
    """Round to significant digits; None where JSON has no number for the value."""
    if value is None or value - value != 0:
        return None
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


@dataclass(frozen=True)
class Published:
    """A number of the paper, with its deviation if it gives one."""

    mean: float
    deviation: float | None = None

    def __str__(self) -> str:
        return f"{self.mean:g}" if self.deviation is None else f"{self.mean:g} ± {self.deviation:g}"


@dataclass(frozen=True)
class Cell:
    """One entry of a table or one curve of a figure."""

    key: Key  # a label on each axis of the artifact
    measure: Measure
    paper: Published | None = None
