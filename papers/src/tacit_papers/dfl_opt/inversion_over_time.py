"""Yu et al. 2025: Figures 4 and 11, reconstruction at several iterations of a run."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.figure import Figure

from tacit.report.style import MARKERS, MUTED, PALETTE, plot_style
from tacit_papers.dfl_opt.drawing import SSIM_LIMITS, over_time
from tacit_papers.dfl_opt.setting import (
    ATTACKS,
    PROTOCOL,
    PROTOCOLS,
    QUICKLY,
    RELATIVE,
    SSIM,
    config,
    search,
)
from tacit_papers.framework.artifact import Artifact
from tacit_papers.framework.cells import Cell, Key, Scale
from tacit_papers.framework.claims import (
    Claim,
    ClaimVerdict,
    above_throughout,
    claim,
    grade,
    grade_least,
    steady,
)
from tacit_papers.framework.contradictions import Cause, Contradiction
from tacit_papers.framework.drawing import HEIGHT, WIDTH, legend_below
from tacit_papers.framework.results import ArtifactResult
from tacit_papers.measures.inversion_over_time import InversionOverTime, SumInversionOverTime

SIZES = (2, 4, 8)
GRADIENT, DIFFERENCE, SUM, BOTH = "CFL, gradient", "DFL, difference", "DFL, sum", "DFL, both"
AMPLIFIED = 0.05  # SSIM by which both reveal more than either, if they do
MARGIN = 0.02  # SSIM by which gradients reveal more
LESS = "DFL, {}: differences reveal much less in late iterations"
TIMES = (1, *range(100, 1000, 100))


def _fig4(scale: Scale) -> list[Cell]:
    times = scale.pick(TIMES, (1, 50, 150, 300))
    return [
        Cell(
            (f"{protocol}, {attack}",),
            InversionOverTime(
                config("MNIST", protocol, scale),
                "gradient" if protocol == "CFL" else "difference",
                search(attack, scale, labels_known=protocol == "CFL"),
                times,
                scale.pick(10, 2),
            ),
        )
        for attack in ATTACKS
        for protocol in PROTOCOLS
    ]


@claim
def _worse_later(result: ArtifactResult, key: Key) -> ClaimVerdict:
    first, last = (result.mean(key, when) for when in ("first", "last"))
    return ClaimVerdict(grade_least(first - last, 0.1, 0.02), f"{first:.3f} to {last:.3f}")


def _fig11(scale: Scale) -> list[Cell]:
    times, victims = scale.pick(TIMES, (1, 150)), scale.pick(10, 2)
    central, decentral = (config("MNIST", protocol, scale) for protocol in PROTOCOLS)
    cells = []
    for attack in ATTACKS:
        known = search(attack, scale)
        single = {
            GRADIENT: InversionOverTime(central, "gradient", known, times, victims),
            DIFFERENCE: InversionOverTime(decentral, "difference", known, times, victims),
        }
        cells += [Cell((attack, "1", series), measure) for series, measure in single.items()]
        cells += [
            Cell(
                (attack, f"{size}", BOTH if both else SUM),
                SumInversionOverTime(decentral, size, both, known, times, victims),
            )
            for size in scale.pick(SIZES, SIZES[:2])
            for both in (False, True)
        ]
    return cells


def _panel_keys(attack: str, size: int) -> dict[str, Key]:
    """The keys of a panel by series."""
    return {
        name: (attack, "1" if name in (GRADIENT, DIFFERENCE) else f"{size}", name)
        for name in (GRADIENT, DIFFERENCE, SUM, BOTH)
    }


@claim
def _gain(result: ArtifactResult, keys: Mapping[str, Key]) -> ClaimVerdict:
    difference, total, both = (result.mean(keys[name]) for name in (DIFFERENCE, SUM, BOTH))
    better = max(difference, total)
    left = "" if better < 1 - AMPLIFIED else "; nothing was left to gain"
    return ClaimVerdict(
        grade(max(0.0, both - better), AMPLIFIED),
        f"{both - better:+.3f}",
        f"both {both:.3f}, difference {difference:.3f}, sum {total:.3f}{left}",
    )


def _not_amplified(attack: str, size: int) -> Claim:
    text = f"{attack}, {size} nodes: both together reveal no more than the better one (SSIM)"
    paper = "not amplified" if attack == "DLG" else "not tried"
    return _gain(text, paper, _panel_keys(attack, size))


def _gradients_reveal_more(attack: str, size: int) -> Claim:
    keys = _panel_keys(attack, size)
    text = f"{attack}, {size} nodes: gradients (CFL) reveal more than both together (DFL)"
    paper = "at all t" if attack == "DLG" else "not tried"
    return above_throughout(text, paper, (keys[GRADIENT], keys[BOTH]), MARGIN)


def _draw_fig11(result: ArtifactResult) -> Figure:
    """A row per attack, a panel per size; gradients and differences are the same in a row."""
    attacks = result.labels(0)
    # A single panel if only gradients and differences were measured.
    sizes = [size for size in SIZES if f"{size}" in result.labels(1)] or [1]
    shape = (max(WIDTH, 1 + 2.7 * len(sizes)), 1 + 0.8 * HEIGHT * len(attacks))
    with plot_style():
        figure = Figure(figsize=shape, layout="constrained")
        grid = figure.subplots(len(attacks), len(sizes), squeeze=False, sharex=True, sharey=True)
        for row, attack in zip(grid, attacks, strict=True):
            for axes, size in zip(row, sizes, strict=True):
                for number, (name, key) in enumerate(_panel_keys(attack, size).items()):
                    if key not in result:
                        continue
                    curve = result.curve(key)
                    # Later curves are thinner, so that equal ones stay visible.
                    width = {"linewidth": 3.4 - 0.7 * number, "markersize": 10 - 2 * number}
                    style = {"color": PALETTE[number], "label": name}
                    line = MARKERS[number] + "-"
                    axes.plot(curve["iteration"], curve["ssim"], line, **style, **width)
                axes.set_title(f"{attack}, {size} nodes" if size > 1 else attack, color=MUTED)
                axes.set_ylim(SSIM_LIMITS)
            row[0].set_ylabel("SSIM")
        for axes in grid[-1]:
            axes.set_xlabel("iteration t")
        legend_below(figure, grid[0][0])
    return figure


ARTIFACTS = (
    Artifact(
        name="dfl-opt/fig4",
        title="Figure 4: SSIM over the iterations on MNIST, gradients (CFL) and differences (DFL)",
        axes=("series",),
        cells=_fig4,
        claims=[
            above_throughout(
                "DLG: gradients reveal more than differences",
                "at all t",
                (("CFL, DLG",), ("DFL, DLG",)),
                MARGIN,
            ),
            steady(
                "CFL, DLG: gradients reveal equally much at all times",
                "relatively stable",
                ("CFL, DLG",),
                0.1,
            ),
            _worse_later(LESS.format("DLG"), "falling curve", ("DFL, DLG",)),
            above_throughout(
                "a stronger attack: gradients reveal more than differences",
                "not tried",
                (("CFL, ours",), ("DFL, ours",)),
                MARGIN,
            ),
            _worse_later(LESS.format("ours"), "not tried", ("DFL, ours",)),
        ],
        contradictions=(
            Contradiction(
                "CFL, DLG: gradients reveal equally much at all times",
                Cause.OPEN,
                "The settings of the search are not given. Torch's L-BFGS stops at absolute "
                "tolerances, which gradients meet sooner as training makes them small (SSIM "
                "{{ mean('dfl-opt/fig4', 'CFL, DLG', 'first', '.3f') }} at t = 1, "
                "{{ mean('dfl-opt/fig4', 'CFL, DLG', 'last', '.3f') }} at 900). Searched: these "
                "tolerances, and tolerances relative to the evidence with a line search. Best "
                "match: the second, with {{ mean('dfl-opt/fig4', 'CFL, ours', 'first', '.3f') }} "
                "and {{ mean('dfl-opt/fig4', 'CFL, ours', 'last', '.3f') }}. Neither has both of "
                "the paper's curves: with the second, differences do not fall ({{ "
                "claim('dfl-opt/fig4', 'DFL, ours: differences reveal much less in late "
                "iterations') }}).",
            ),
            Contradiction(
                "a stronger attack: gradients reveal more than differences",
                Cause.EXPECTATION,
                RELATIVE,
            ),
            Contradiction(
                "DFL, ours: differences reveal much less in late iterations",
                Cause.EXPECTATION,
                RELATIVE,
            ),
        ),
        draw=over_time,
        protocol=(
            f"{PROTOCOL}. nᵢ = 2; differences are computed from three messages each, with their "
            "rounding; models and CFL's gradients are the true ones, as Proposition 1 says that "
            "they are known; the number shown is the mean over the iterations attacked"
        ),
        quickly=f"{QUICKLY}; t = 1, 50, 150, 300",
        **SSIM,
    ),
    Artifact(
        name="dfl-opt/fig11",
        title="Figure 11: differences and the sum of gradients inverted together, by size",
        axes=("attack", "nodes in the component", "inverted"),
        cells=_fig11,
        claims=[
            make(attack, size)
            for attack in ATTACKS
            for make in (_not_amplified, _gradients_reveal_more)
            for size in SIZES
        ],
        contradictions=(
            Contradiction(
                "DLG, *: gradients (CFL) reveal more than both together (DFL)",
                Cause.OPEN,
                "The settings of the search are not given. As in Figure 4, torch's L-BFGS stops "
                "at absolute tolerances, which late gradients meet sooner than sums: their SSIM "
                "is {{ mean('dfl-opt/fig11', 'DLG · 1 · CFL, gradient', form='.2f') }} in the "
                "mean over t, that of both together "
                "{{ mean('dfl-opt/fig11', 'DLG · 2 · DFL, both', form='.2f') }} over 2 nodes and "
                "{{ mean('dfl-opt/fig11', 'DLG · 4 · DFL, both', form='.2f') }} over 4. Searched: "
                "tolerances relative to the evidence. With these, gradients reveal "
                "{{ mean('dfl-opt/fig11', 'ours · 1 · CFL, gradient', form='.3f') }} and both "
                "together {{ mean('dfl-opt/fig11', 'ours · 2 · DFL, both', form='.3f') }} and "
                "{{ mean('dfl-opt/fig11', 'ours · 4 · DFL, both', form='.3f') }} over 2 and 4 "
                "nodes.",
            ),
            Contradiction(
                "ours, *: gradients (CFL) reveal more than both together (DFL)",
                Cause.EXPECTATION,
                "We expected a gap as in the paper. With a search relative to the evidence "
                "gradients give "
                "{{ mean('dfl-opt/fig11', 'ours · 1 · CFL, gradient', form='.3f') }} in the mean "
                "over t, differences alone "
                "{{ mean('dfl-opt/fig11', 'ours · 1 · DFL, difference', form='.3f') }}, and "
                "differences and sum together "
                "{{ mean('dfl-opt/fig11', 'ours · 2 · DFL, both', form='.3f') }} over 2 nodes and "
                "{{ mean('dfl-opt/fig11', 'ours · 4 · DFL, both', form='.3f') }} over 4: at most "
                "iterations the difference is below our margin of 0.02.",
            ),
        ),
        draw=_draw_fig11,
        protocol=(
            f"{PROTOCOL}. Here labels are known in all: only the evidence differs. nᵢ = 2; a "
            "victim and the nodes nearest to it are honest. The samples of all nodes of the "
            "component are searched at once; both: the change of each node's gradient from t to "
            "t + 1 and the sum of all gradients at t, the mean of their squared distances (ours: "
            "each relative to its value; the paper does not say how it weighs them). Models, sums "
            "and CFL's gradients are the true ones, as in Figure 4; the number shown is the mean "
            "over the iterations attacked. The paper draws only gradients and both"
        ),
        quickly=f"{QUICKLY}; components of 2 and 4; t = 1, 150",
        **SSIM,
    ),
)
