"""The style of figures: fonts, colours and markers.

Figures are drawn in the colours of the light theme. In a page these become CSS variables with the
light colour as fallback, so a page that defines the variables recolours its figures (`page.css`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.legend import Legend

# In inches: a figure that fills a phone, or a third of a page, has text of 11 pixels there.
FIGURE_WIDTH = 4.2

INK, MUTED, GRID, PAPER = "#1b1f24", "#59626d", "#d9dee4", "#fefefe"

# Okabe and Ito's colours, which colour-blind readers can tell apart; without yellow, which is
# hardly visible on white.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", INK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
MARKER_SYMBOLS = ("●", "■", "▲", "◆", "▼", "✚", "✖")  # the markers as text

CSS_VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid", PAPER: "--paper"} | {
    colour: f"--c{number}" for number, colour in enumerate(PALETTE) if colour != INK
}
# Steps from harmless to harmful, from light to dark; in a dark theme from dark to light.
HEAT = ("#e3e7ec", "#fde9c8", "#f9bd78", "#e8743f", "#a1221f")
HEAT_INK = "#1b1f25"
CSS_VARIABLES |= {colour: f"--h{number}" for number, colour in enumerate(HEAT)}
CSS_VARIABLES[HEAT_INK] = "--heat-ink"
# The only class colour that is too dark on a dark page.
CSS_VARIABLES["#332288"] = "--indigo"


@contextmanager
def plot_style() -> Iterator[None]:
    """Use our style instead of the user's matplotlib settings; also works as a decorator."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        # Text stays text: searchable, small, readable by screen readers.
        matplotlib.rc("svg", fonttype="none", hashsalt="tacit")
        # Labels come from users: a dollar sign is a dollar sign.
        matplotlib.rc("text", parse_math=False, color=INK)
        matplotlib.rc("font", size=10)
        matplotlib.rc("axes", edgecolor=MUTED, labelcolor=INK, facecolor="none")
        matplotlib.rc("axes", grid=True, axisbelow=True, linewidth=0.8, xmargin=0.02)
        matplotlib.rc("axes.spines", top=False, right=False)
        matplotlib.rc("grid", color=GRID, linewidth=0.6)
        matplotlib.rc(("xtick", "ytick"), color=MUTED, labelcolor=INK)
        matplotlib.rc("legend", frameon=False, fontsize=9, handlelength=2.4)
        matplotlib.rc("figure", facecolor="none", edgecolor="none")
        matplotlib.rc("lines", linewidth=1.8, markersize=5)
        yield


def new_figure(width: float, height: float) -> tuple[Figure, Any]:
    """A figure of this size in inches, and its only axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def series_style(number: int) -> tuple[str, str, str]:
    """Colour, marker and marker symbol of a series; the first 49 series all differ."""
    turn, place = divmod(number, len(PALETTE))
    shape = (place + turn) % len(MARKERS)
    return PALETTE[place], MARKERS[shape], MARKER_SYMBOLS[shape]


def short_name(name: str, longest: int = 14) -> str:
    """A name that fits at an axis."""
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


def slanted(labels: Sequence[str]) -> dict[str, Any]:
    """The options that turn labels of an x axis if they are too long to stand side by side."""
    return {"rotation": 45, "ha": "right"} if max(map(len, labels), default=0) > 3 else {}


def legend_label(label: str) -> str:
    """A label that matplotlib shows: it hides those that start with an underscore."""
    return f" {label}" if label.startswith("_") else label


def label_series(legend: Legend, series: Mapping[str, int]) -> None:
    """Let entries of a legend belong to series, by their labels, so that the page can hide them."""
    for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
        if handle is not None and (number := series.get(text.get_text())) is not None:
            handle.set_gid(f"legend-{number}")
            text.set_gid(f"legend-{number}")


def series_sign(number: int) -> tuple[str, str]:
    """The CSS variable of a series' colour, and its marker as text."""
    colour, _, symbol = series_style(number)
    return CSS_VARIABLES[colour], symbol
