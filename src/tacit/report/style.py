"""The style of figures, and their SVG for a page: small, deterministic, in light and dark themes.

Figures are drawn in the colours of the light theme. In a page these become CSS variables with the
light colour as fallback, so a page that defines the variables recolours its figures (`page.py`).
"""

from __future__ import annotations

import hashlib
import html
import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.legend import Legend

from tacit.report.figure_data import axes_frame, csv_link, curves_csv, pdf_link

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

# The ids of artists that belong to a series.
SERIES = re.compile(r' id="(?:mean|band|average|spent|promise|legend)-(\d+)"')


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


def svg(figure: Figure, title: str = "", description: str = "", *, data: str | None = None) -> str:
    """The figure as an `<svg>` element for a page, with links to its PDF and its numbers as CSV.

    Title and description are for screen readers. `data` is the CSV, by default the labelled curves
    of the figure. Ids start with a prefix made from the content, so that several figures fit into
    one page. An artist with the gid "mean-3" or such belongs to series 3, which the page can hide;
    an artist with the gid "tip:TEXT" has a tooltip.
    """
    buffer = io.StringIO()
    with plot_style(), warnings.catch_warnings():
        # matplotlib may lack a glyph that the reader's browser has.
        warnings.filterwarnings("ignore", message="Glyph")
        metadata = {"Date": None, "Creator": None}
        figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
        document = _pdf(figure)
    drawing = buffer.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", drawing, flags=re.S)
    # Only the tags: the texts between them stay as they are.
    drawing = re.sub(r"<[^>]+>", lambda tag: _simplify(tag.group()), drawing)
    drawing = re.sub(r">\n\s*<", "><", drawing)
    opening, content = drawing.split(">", 1)
    viewbox = re.search(r'viewBox="[^"]*"', opening)
    texts = "".join(
        f"<{tag}>{html.escape(text)}</{tag}>"
        for tag, text in (("title", title), ("desc", description))
        if text
    )
    label = f' aria-label="{html.escape(title)}"' if title else ""
    numbers = curves_csv(figure) if data is None else data
    frame = f' data-frame="{html.escape(axes_frame(figure))}"' if numbers and data is None else ""
    below = f"\n{pdf_link(document)}" + (f"\n{csv_link(numbers)}" if numbers else "")
    natural = f' style="--natural:{72 * figure.get_figwidth():.0f}px"'
    prefix = "f" + hashlib.sha256((texts + drawing).encode()).hexdigest()[:8] + "-"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'{viewbox.group() if viewbox else ""} role="img"{label}{natural}{frame}>{texts}'
        f"{_prefix_ids(content, prefix).strip()}{below}"
    )


def _pdf(figure: Figure) -> bytes:
    """The figure as a PDF of lines and text."""
    buffer = io.BytesIO()
    # Everything is in its place since the figure was drawn as SVG.
    figure.set_layout_engine("none")
    # Without a date, so that the same run gives the same page.
    figure.savefig(buffer, format="pdf", transparent=True, metadata={"CreationDate": None})
    return buffer.getvalue()


def label_series(legend: Legend, series: Mapping[str, int]) -> None:
    """Let entries of a legend belong to series, by their labels, so that the page can hide them."""
    for handle, text in zip(legend.legend_handles, legend.get_texts(), strict=True):
        if handle is not None and (number := series.get(text.get_text())) is not None:
            handle.set_gid(f"legend-{number}")
            text.set_gid(f"legend-{number}")


def _simplify(tag: str) -> str:
    """Use fewer digits, the page's fonts, and CSS variables for colours."""

    def shorten(number: re.Match[str]) -> str:
        return f"{float(number.group()):.2f}".rstrip("0").rstrip(".")

    def use_variable(colour: re.Match[str]) -> str:
        value = colour.group()
        return f"var({CSS_VARIABLES[value]},{value})" if value in CSS_VARIABLES else value

    tag = re.sub(r"-?\d+\.\d{3,}", shorten, tag)
    tag = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", tag)
    tag = re.sub(r"font-family: [^;\"]*;?", "", tag)
    return re.sub(r"(?<=: )#[0-9a-f]{6}\b", use_variable, tag)


def _prefix_ids(drawing: str, prefix: str) -> str:
    """Prefix the ids that something refers to, and drop the others."""
    drawing = re.sub(r'(<g) id="tip:([^"]*)">', r"\1><title>\2</title>", drawing)
    drawing = SERIES.sub(r' data-series="\1"', drawing)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', drawing))
    drawing = re.sub(r'((?:href="#|url\(#))', rf"\g<1>{prefix}", drawing)

    def rename(found: re.Match[str]) -> str:
        return f' id="{prefix}{found[1]}"' if found[1] in used else ""

    return re.sub(r' id="([^"]*)"', rename, drawing)
