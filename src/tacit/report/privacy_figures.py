"""The figure of a plan of private training: ε over rounds, and noise against ε."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from tacit.core.errors import Misuse
from tacit.privacy.planning import (
    Plan,
    epsilon_by_round,
    epsilon_text,
    relative_noise_by_epsilon,
    round_up,
)
from tacit.report.figures import write_figure
from tacit.report.style import INK, MUTED, PAPER, plot_style, series_style

FORMATS = (".png", ".svg", ".pdf")
WIDTH, HEIGHT, DOTS_PER_INCH = 9.6, 4.0, 160


def write_privacy_figure(plan: Plan, path: Path) -> None:
    """Draw a plan and write it as PNG, SVG or PDF."""
    if path.suffix.lower() not in FORMATS:
        raise Misuse(f"{str(path)!r} is not a file for a plot.", f"End it in {', '.join(FORMATS)}.")
    if not path.parent.is_dir():
        raise Misuse(f"There is no folder {str(path.parent)!r} for the plot.", "Create it first.")
    form = path.suffix.lower().removeprefix(".")
    write_figure(privacy_figure(plan), path, form, dpi=DOTS_PER_INCH, facecolor=PAPER)


@plot_style()
def privacy_figure(plan: Plan) -> Figure:
    """ε over the rounds of a plan, and the noise that every ε needs."""
    training = plan.training
    if not 0 < plan.epsilon < math.inf:
        raise Misuse(
            f"ε is {plan.epsilon:g}: there is nothing to draw.",
            "Change the noise multiplier, or leave out the plot.",
        )
    figure = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
    left, right = figure.subplots(1, 2)
    _draw_rounds(left, plan)
    _draw_noise(right, plan)
    unit = "one sample" if training.unit == "sample" else "one client"
    sigma = round_up(plan.noise_multiplier, 4)
    figure.suptitle(
        f"ε = {epsilon_text(plan.epsilon)}, δ = {training.delta:.3g} for {unit}: "
        f"noise multiplier σ = {sigma:.4g}, {training.iterations:,} iterations",
        fontsize=11,
    )
    return figure


def _draw_rounds(axes: Any, plan: Plan) -> None:
    rounds, per_round = plan.training.rounds, plan.training.iterations // plan.training.rounds
    # The first round is the steepest part of the curve.
    early = sorted({1, max(per_round // 8, 1), max(per_round // 3, 1)} - {per_round})
    curve = {0.0: 0.0} | {steps / per_round: plan.budget.spent(steps) for steps in early}
    curve |= {float(count): value for count, value in epsilon_by_round(plan, points=40).items()}
    colour = series_style(0)[0]
    axes.plot([*curve], [*curve.values()], color=colour, gid="epsilon")
    axes.axhline(plan.epsilon, color=MUTED, linestyle="--", linewidth=1)
    axes.plot([rounds], [plan.epsilon], "o", color=INK, clip_on=False, zorder=4)
    axes.set(xlabel="round", ylabel="ε", xlim=(0, rounds), ylim=(0, 1.12 * plan.epsilon))
    axes.set_title("ε spent over the run", loc="left", fontsize=10)
    note = {"xytext": (5, 5), "textcoords": "offset points", "color": MUTED, "fontsize": 9}
    axes.annotate(f"whole run: ε = {epsilon_text(plan.epsilon)}", (0, plan.epsilon), **note)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, steps=(1, 2, 5, 10)))


def _draw_noise(axes: Any, plan: Plan) -> None:
    planned, unit = plan.training.contributions, plan.training.unit
    for count, points in relative_noise_by_epsilon(plan).items():
        epsilons, noise = zip(*points, strict=True)
        percent = [100 * value for value in noise]
        colour = series_style(0 if count == planned else 1 if count < planned else 2)[0]
        label = f"batch {count:,}" if unit == "sample" else f"{count:,} clients"
        axes.plot(epsilons, percent, color=colour, label=label, gid="noise")
    here = 100 * plan.relative_noise
    axes.plot([plan.epsilon], [here], "o", color=INK, zorder=4, label="this plan")
    axes.set(xscale="log", yscale="log", xlabel="ε of the whole run")
    axes.set_ylabel("noise in the average (% of the clip)")
    axes.set_title(
        f"Noise that ε needs in {plan.training.rounds:,} rounds", loc="left", fontsize=10
    )
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.legend(loc="upper right")
