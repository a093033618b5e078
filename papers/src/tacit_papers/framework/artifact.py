"""An artifact: a published table or figure, or a finding, with its claims and its figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from tacit_papers.framework.cells import Cell, Key, Scale
from tacit_papers.framework.claims import Claim
from tacit_papers.framework.contradictions import Contradiction
from tacit_papers.framework.results import ArtifactResult, CellResult


@dataclass(frozen=True)
class Artifact:
    """A table or figure of a paper, or a finding."""

    name: str  # "paper/artifact"
    title: str
    axes: Key  # the name of each part of a cell's key
    cells: Callable[[Scale], list[Cell]]
    metric: str  # the number that the table shows
    claims: Sequence[Claim]
    draw: Callable[[ArtifactResult], Figure]
    protocol: str  # how it was done, and what differs from the paper
    quickly: str  # what is smaller with --quick
    repeats: int = 3
    quick_repeats: int = 1
    form: str = ".2f"  # how numbers of the metric are formatted
    unit: str = "%"
    contradictions: Sequence[Contradiction] = ()  # why claims are not reproduced; the first counts

    @property
    def paper(self) -> str:
        return self.name.partition("/")[0]

    def new_result(self, scale: Scale) -> ArtifactResult:
        """A result with all cells, before anything is measured."""
        cells = [
            CellResult(cell.key, cell.paper, cell.measure.describe()) for cell in self.cells(scale)
        ]
        return ArtifactResult(self.axes, self.metric, self.form, scale, cells)
