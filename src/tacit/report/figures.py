"""Figures as elements of a page: SVG with links to a PDF and to the numbers as CSV."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import matplotlib
import numpy as np
from markupsafe import Markup
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from tacit.core.storage import replacing
from tacit.report.rendering import render
from tacit.report.style import CSS_VARIABLES, plot_style

# The ids of artists that belong to a series.
SERIES = re.compile(r' id="(?:mean|band|average|spent|promise|legend)-(\d+)"')

Row = tuple[str, float, float]  # name of the curve, x, y


def svg(
    figure: Figure, title: str = "", description: str = "", *, data: str | None = None
) -> Markup:
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
    drawing = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", buffer.getvalue(), flags=re.S)
    # Only the tags: the texts between them stay as they are.
    drawing = re.sub(r"<[^>]+>", lambda tag: _simplify(tag.group()), drawing)
    drawing = re.sub(r">\n\s*<", "><", drawing)
    prefix = hashlib.sha256((title + description + drawing).encode()).hexdigest()[:8]
    content = drawing[drawing.index(">", drawing.index("<svg")) + 1 : drawing.rindex("</svg>")]
    numbers = _curves_csv(figure) if data is None else data
    return render(
        "figure.svg.jinja",
        title=title,
        description=description,
        drawing=Markup(_prefix_ids(content, f"f{prefix}-").strip()),
        width=72 * figure.get_figwidth(),
        height=72 * figure.get_figheight(),
        frame=_axes_frame(figure) if numbers and data is None else "",
        csv=quote(numbers, safe=",."),
        pdf=base64.b64encode(document).decode(),
    )


def write_figure(figure: Figure, path: Path, form: str, **options: Any) -> None:
    """Write a figure as "pdf", "svg" or "png"; the options are those of `savefig`."""
    # Without a date, so that the same run gives the same file.
    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}[form]
    with replacing(path) as part, plot_style(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        # Publishers do not accept Type 3 fonts.
        matplotlib.rc("pdf", fonttype=42)
        figure.savefig(part, format=form, metadata=dates, **options)


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as CSV."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue()


def _curves_csv(figure: Figure) -> str:
    """The labelled curves and bands of a figure with one pair of axes; "" if there are none.

    A column per curve, a row per x; cells are empty where a curve has no value.
    """
    if len(figure.axes) != 1:
        return ""
    axes = figure.axes[0]
    columns: dict[str, dict[float, str]] = {}
    for name, x, y in (*_lines(axes), *_bands(axes)):
        if np.isfinite(y):
            columns.setdefault(name, {})[x] = f"{y:.6g}"
    if not columns:
        return ""
    places = sorted({x for column in columns.values() for x in column})
    rows = ([f"{x:.6g}", *(column.get(x, "") for column in columns.values())] for x in places)
    return csv_text((axes.get_xlabel() or "x", *columns), rows)


def _axes_frame(figure: Figure) -> str:
    """Where the axes are in the SVG (in points), and their limits and scales, as JSON."""
    if len(figure.axes) != 1:
        return ""
    axes = figure.axes[0]
    width, height = 72 * figure.get_figwidth(), 72 * figure.get_figheight()
    box = axes.get_position()
    frame = {
        "x": [round(box.x0 * width, 2), round(box.x1 * width, 2), *axes.get_xlim()],
        "y": [round((1 - box.y0) * height, 2), round((1 - box.y1) * height, 2), *axes.get_ylim()],
        "log": [axes.get_xscale() == "log", axes.get_yscale() == "log"],
    }
    return json.dumps(frame, separators=(",", ":"), default=float)


def _lines(axes: Any) -> list[Row]:
    return [
        (str(line.get_label()).strip(), float(x), float(y))
        for line in axes.lines
        if not str(line.get_label()).startswith("_")
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    ]


def _bands(axes: Any) -> list[Row]:
    """The ends of each band at every x."""
    rows: list[Row] = []
    for band in axes.collections:
        label = str(band.get_label())
        if not isinstance(band, PolyCollection) or label.startswith("_"):
            continue
        vertices = np.concatenate(
            [path.vertices for path in band.get_paths()] or [np.empty((0, 2))]
        )
        for end, pick in (("lowest", np.min), ("highest", np.max)):
            rows += [
                (f"{label}, {end}", float(x), float(pick(vertices[vertices[:, 0] == x, 1])))
                for x in np.unique(vertices[:, 0])
            ]
    return rows


def _pdf(figure: Figure) -> bytes:
    """The figure as a PDF of lines and text."""
    buffer = io.BytesIO()
    # Everything is in its place since the figure was drawn as SVG.
    figure.set_layout_engine("none")
    # Without a date, so that the same run gives the same page.
    figure.savefig(buffer, format="pdf", transparent=True, metadata={"CreationDate": None})
    return buffer.getvalue()


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
