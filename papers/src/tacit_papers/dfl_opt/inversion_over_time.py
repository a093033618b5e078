"""Yu et al. 2025: figure 11, differences and the sum of a component's gradients inverted together."""

from __future__ import annotations

from matplotlib.figure import Figure

from tacit.report.style import MUTED, PALETTE, MARKERS, plot_style
from tacit_papers.dfl_opt.setting import PROTOCOL, QUICKLY, config, search
from tacit_papers.framework.artifact import Artifact, Cell, Key, Scale
from tacit_papers.framework.claims import Claim, ClaimVerdict, graded
from tacit_papers.framework.drawing import HEIGHT, WIDTH
from tacit_papers.framework.outcome import ArtifactResult
from tacit_papers.framework.trends import above_throughout
from tacit_papers.measures.combining import CombiningOverTime
from tacit_papers.measures.inverting_over_time import InvertingOverTime

ATTACKS = ("DLG", "ours")
SIZES = (2, 4, 8)
GRADIENT, DIFFERENCE, SUM, BOTH = "CFL, gradient", "DFL, difference", "DFL, sum", "DFL, both"
AMPLIFIED = 0.05  # SSIM by which both tell more than either, if they do
MARGIN = 0.02  # by which gradients do


def _cells(scale: Scale) -> list[Cell]:
    times, victims = scale.pick((1, *range(100, 1000, 100)), (1, 150)), scale.pick(10, 2)
    central, decentral = (config("MNIST", protocol, scale) for protocol in ("CFL", "DFL"))
    cells = []
    for attack in ATTACKS:
        known = search(attack, scale)
        cells += [
            Cell(
                (attack, "1", GRADIENT),
                InvertingOverTime(central, "gradient", known, times, victims),
            ),
            Cell(
                (attack, "1", DIFFERENCE),
                InvertingOverTime(decentral, "difference", known, times, victims),
            ),
        ]
        cells += [
            Cell(
                (attack, f"{size}", BOTH if both else SUM),
                CombiningOverTime(decentral, size, both, known, times, victims),
            )
            for size in scale.pick(SIZES, SIZES[:2])
            for both in (False, True)
        ]
    return cells


def _here(attack: str, size: int) -> dict[str, Key]:
    """The keys of a panel by their series."""
    return {
        name: (attack, "1" if name in (GRADIENT, DIFFERENCE) else f"{size}", name)
        for name in (GRADIENT, DIFFERENCE, SUM, BOTH)
    }


def _not_amplified(attack: str, size: int) -> Claim:
    def check(outcome: ArtifactResult) -> ClaimVerdict:
        difference, total, both = (
            outcome.mean(_here(attack, size)[n]) for n in (DIFFERENCE, SUM, BOTH)
        )
        better = max(difference, total)
        left = "" if better < 1 - AMPLIFIED else "; nothing was left to gain"
        return ClaimVerdict(
            graded(max(0.0, both - better), AMPLIFIED),
            f"{both - better:+.3f}",
            f"both {both:.3f}, difference {difference:.3f}, sum {total:.3f}{left}",
        )

    text = f"{attack}, {size} nodes: both together tell no more than the better of the two (SSIM)"
    return Claim(text, "not amplified" if attack == "DLG" else "not tried", check)


def _gradients_tell_more(attack: str, size: int) -> Claim:
    return above_throughout(
        _here(attack, size)[GRADIENT],
        _here(attack, size)[BOTH],
        f"{attack}, {size} nodes: gradients (CFL) tell more than both together (DFL)",
        "at all t" if attack == "DLG" else "not tried",
        MARGIN,
    )


def _draw(outcome: ArtifactResult) -> Figure:
    """A row of panels per attack, a panel per size; gradients and differences are the same in all of a row.

    Later curves are thinner, so that equal ones do not hide each other.
    """
    attacks = outcome.places(0)
    sizes = [size for size in SIZES if f"{size}" in outcome.places(1)] or [
        1
    ]  # of one node if no more was measured
    with plot_style():
        figure = Figure(
            figsize=(max(WIDTH, 1 + 2.7 * len(sizes)), 1 + 0.8 * HEIGHT * len(attacks)),
            layout="constrained",
        )
        grid = figure.subplots(len(attacks), len(sizes), squeeze=False, sharex=True, sharey=True)
        for row, attack in zip(grid, attacks, strict=True):
            for axes, size in zip(row, sizes, strict=True):
                for number, (name, key) in enumerate(_here(attack, size).items()):
                    if key not in outcome:
                        continue
                    curve = outcome.curve(key)
                    axes.plot(
                        curve["iteration"], curve["ssim"], MARKERS[number] + "-", label=name,
                        color=PALETTE[number], linewidth=3.4 - 0.7 * number, markersize=10 - 2 * number,
                    )  # fmt: skip
                axes.set_title(f"{attack}, {size} nodes" if size > 1 else attack, color=MUTED)
                axes.set_ylim(-0.1, 1.08)
            row[0].set_ylabel("SSIM")
        for axes in grid[-1]:
            axes.set_xlabel("iteration t")
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


ARTIFACTS = (
    Artifact(
        name="dfl-opt/fig11",
        title="Figure 11: differences and the sum of gradients inverted together, by the size of the component",
        axes=("attack", "nodes in the component", "inverted"),
        cells=_cells,
        metric="ssim",
        claims=[
            claim(attack, size)
            for attack in ATTACKS
            for claim in (_not_amplified, _gradients_tell_more)
            for size in SIZES
        ],
        draw=_draw,
        protocol=(
            f"{PROTOCOL}. Here labels are known in all: only the evidence differs. nᵢ = 2; a victim and the nodes "
            "nearest to it are honest. The samples of all nodes of the component are searched at once; both: the "
            "change of each node's gradient from t to t + 1 and the sum of all gradients at t, the mean of their "
            "squared distances (ours: each relative to its value; the paper does not say how it weighs them). "
            "Models, sums and CFL's gradients are those inside, as in Figure 4; the number shown is the mean over "
            "the iterations attacked. The paper draws gradients and both only"
        ),
        quickly=f"{QUICKLY}; components of 2 and 4; t = 1, 150",
        repeats=3,
        quick_repeats=1,
        form=".3f",
        unit="SSIM",
    ),
)
