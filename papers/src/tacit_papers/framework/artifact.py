"""What an artifact is made of: cells that are measured, claims about them, a figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from tacit.config.sections import Config
from tacit.data import Dataset
from tacit.experiment.run import ProgressListener
from tacit_papers.framework.dataset_cache import DatasetCache

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tacit_papers.framework.claims import Claim
    from tacit_papers.framework.outcome import ArtifactResult

T = TypeVar("T")
Key = tuple[str, ...]
Values = dict[str, Any]  # what one repeat of a cell gave, as JSON has it


@dataclass(frozen=True)
class Scale:
    """How large an artifact is made: as published, or a smaller version that ends within minutes on two cores."""

    quick: bool = False

    def pick(self, full: T, quick: T) -> T:
        """One of the two."""
        return quick if self.quick else full


@dataclass(frozen=True, eq=False)
class MeasureContext:
    """Where a cell is measured."""

    device: str = "cpu"
    data_folder: Path | None = None
    scratch: Path = Path()  # a folder for what is needed to go on after an interruption
    watcher: ProgressListener = field(default_factory=ProgressListener)
    said: Callable[[str, int, int], None] = lambda what, done, of: (
        None
    )  # how far a part is that is no run
    shelf: DatasetCache = field(default_factory=DatasetCache)

    def dataset(self, config: Config) -> Dataset | None:
        """What a configuration trains on, read at most once; None where its task makes its own data."""
        return (
            None if config.task is not None else self.shelf.dataset(config.data, self.data_folder)
        )


class Measure(Protocol):
    """How a cell is measured."""

    def describe(self) -> dict[str, Any]:
        """All that its numbers depend on beside the seed, as plain values."""
        ...

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """The numbers of one repeat."""
        ...


@dataclass(frozen=True)
class Published:
    """A number of the paper, and its deviation if it gives one."""

    mean: float
    deviation: float | None = None

    def __str__(self) -> str:
        return f"{self.mean:g}" if self.deviation is None else f"{self.mean:g} ± {self.deviation:g}"


@dataclass(frozen=True)
class Cell:
    """One entry of a table or one curve of a figure."""

    key: Key  # its place on each axis of the artifact
    measure: Measure
    paper: Published | None = None


@dataclass(frozen=True)
class Artifact:
    """A table or figure of a paper, or a finding of our own."""

    name: str  # "paper/artifact"
    title: str
    axes: Key  # what the parts of a cell's key are
    cells: Callable[[Scale], list[Cell]]
    metric: str  # the number that the table shows
    claims: Sequence[Claim]
    draw: Callable[[ArtifactResult], Figure]
    protocol: str  # how it was done, and what differs from the paper
    quickly: str  # what is smaller with --quick
    repeats: int = 5
    quick_repeats: int = 2
    form: str = ".2f"  # how numbers of the metric are written
    unit: str = "%"

    @property
    def paper(self) -> str:
        """The name of the paper."""
        return self.name.partition("/")[0]

    def repeats_at(self, scale: Scale) -> int:
        """How often each cell is measured unless said otherwise."""
        return scale.pick(self.repeats, self.quick_repeats)
