"""How figures look, and how they become SVG inside a page: small, deterministic, at home in light and dark.

Figures are drawn in the colours of the light theme. In a page these become CSS variables with the light
colour as fallback, so a page that defines the variables recolours its figures (see `page.py`).
"""

from __future__ import annotations

import hashlib
import html
import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib
from matplotlib.figure import Figure

INK, MUTED, GRID, PAPER = "#1b1f24", "#59626d", "#d9dee4", "#fefefe"

# Okabe and Ito's colours, which stay apart for the colour-blind; yellow is left out, it vanishes on white.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", INK)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
MARKER_SYMBOLS = ("●", "■", "▲", "◆", "▼", "✚", "✖")  # the shapes as text

VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--grid", PAPER: "--paper"} | {
    colour: f"--c{number}" for number, colour in enumerate(PALETTE) if colour != INK
}
VARIABLES["#332288"] = "--indigo"  # of the classes' colours the one that is too dark on a dark page

_STYLE = {
    "svg.fonttype": "none",  # text stays text: searchable, readable by a screen reader, small
    "svg.hashsalt": "tacit",
    "text.parse_math": False,  # labels come from users; a dollar is a dollar
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.xmargin": 0.02,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.handlelength": 2.4,
    "figure.facecolor": "none",
    "figure.edgecolor": "none",
    "lines.linewidth": 1.8,
    "lines.markersize": 5,
}


@contextmanager
def plot_style() -> Iterator[None]:
    """Our style within, the user's own settings without effect within and untouched after."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def series_style(number: int) -> tuple[str, str, str]:
    """Colour, marker shape and the same shape as text of the run with this number; no two of 49 are alike."""
    turn, place = divmod(number, len(PALETTE))
    shape = (place + turn) % len(MARKERS)
    return PALETTE[place], MARKERS[shape], MARKER_SYMBOLS[shape]


def legend_label(label: str) -> str:
    """A label as a legend shows it: one that begins with an underscore would be hidden."""
    return f" {label}" if label.startswith("_") else label


def svg(figure: Figure, title: str = "", description: str = "") -> str:
    """The figure as an `<svg>` element for an HTML page; title and description are for who cannot see it.

    Ids carry a prefix made from the contents, so different figures can stand in one page.
    """
    buffer = io.StringIO()
    with plot_style(), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Glyph"
        )  # the reader's browser has the font, we need not
        figure.savefig(
            buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
        )
    drawing = buffer.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", drawing, flags=re.S)
    drawing = re.sub(
        r"<[^>]+>", lambda tag: _tidy(tag.group()), drawing
    )  # the tags; the texts stay as they are
    drawing = re.sub(r">\n\s*<", "><", drawing)
    opening, inside = drawing.split(">", 1)
    viewbox = re.search(r'viewBox="[^"]*"', opening)
    names = "".join(
        f"<{tag}>{html.escape(text)}</{tag}>"
        for tag, text in (("title", title), ("desc", description))
        if text
    )
    label = f' aria-label="{html.escape(title)}"' if title else ""
    prefix = "f" + hashlib.sha256((names + drawing).encode()).hexdigest()[:8] + "-"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'{viewbox.group() if viewbox else ""} role="img"{label}>{names}{_own_ids(inside, prefix)}'
    ).strip()


def _tidy(tag: str) -> str:
    """Fewer digits, the page's fonts and the theme's colours."""
    tag = re.sub(r"-?\d+\.\d{3,}", _shorter, tag)
    tag = re.sub(r"font: ([\d.]+px)[^;\"]*", r"font-size: \1", tag)
    tag = re.sub(r"font-family: [^;\"]*;?", "", tag)
    return re.sub(r"(?<=: )#[0-9a-f]{6}\b", lambda found: _themed(found.group()), tag)


def _shorter(number: re.Match[str]) -> str:
    return f"{float(number.group()):.2f}".rstrip("0").rstrip(".")


def _themed(colour: str) -> str:
    return f"var({VARIABLES[colour]},{colour})" if colour in VARIABLES else colour


def _own_ids(drawing: str, prefix: str) -> str:
    """Keep the ids something refers to, under the prefix; drop the others."""
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', drawing))
    drawing = re.sub(r'((?:href="#|url\(#))', rf"\g<1>{prefix}", drawing)
    return re.sub(
        r' id="([^"]*)"',
        lambda found: f' id="{prefix}{found[1]}"' if found[1] in used else "",
        drawing,
    )
