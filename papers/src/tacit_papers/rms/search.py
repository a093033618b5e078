"""The dual-protection paper's Figure 1(c): a search over the window of the sliding mean.

The paper gives neither the window nor a number. PD-LMS's estimate forgets over 1/γ iterations, so
that the noise in it is averaged out only by windows of many times that length.
"""

from __future__ import annotations

from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Cell, Scale
from tacit_papers.framework.drawing import beside_paper
from tacit_papers.measures.sliding_mean_attack import SlidingMeanAttack
from tacit_papers.rms.fig1_fig3 import OWN, PD_FAINT, filtering

# The filter changes its sign after 15,000 iterations of 30,000, in the quick version 600 of 1,200.
WINDOWS, QUICK_WINDOWS = (2_000, 10_000), (20, 200)


def _cells(scale: Scale) -> list[Cell]:
    config, runs = filtering(PD_FAINT, OWN, scale), scale.pick(10, 4)
    return [
        Cell((f"{window:,}", PD_FAINT), SlidingMeanAttack(config, runs, window))
        for window in scale.pick(WINDOWS, QUICK_WINDOWS)
    ]


ARTIFACTS = (
    Artifact(
        name="rms/search-windows",
        title="Search: the window of the sliding mean, against the target of PD-LMS",
        axes=("window", "rule"),
        cells=_cells,
        metric="target_off_by",
        claims=[],
        draw=beside_paper("distance of the mean from the target (%)"),
        protocol="as rms/fig1, heterogeneous, with the last messages of a run in the mean",
        quickly="as rms/fig1, two windows",
    ),
)
