"""The numbers of a figure: as CSV, and where its axes are, for the page's script."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

Row = tuple[str, float, float]  # name of the curve, x, y


def csv_text(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as CSV."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return buffer.getvalue()


def curves_csv(figure: Figure) -> str:
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
    rows = ([f"{x:.6g}", *(one.get(x, "") for one in columns.values())] for x in places)
    return csv_text((axes.get_xlabel() or "x", *columns), rows)


def csv_link(text: str) -> str:
    """A link that saves a table; it works without a script."""
    address = f"data:text/csv;charset=utf-8,{quote(text, safe=',.')}"
    return f'<a class="csv" download href="{address}">CSV</a>'


def pdf_link(document: bytes) -> str:
    """A link that saves a PDF; it works without a script."""
    address = f"data:application/pdf;base64,{base64.b64encode(document).decode()}"
    return f'<a class="pdf" download href="{address}">PDF</a>'


def axes_frame(figure: Figure) -> str:
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
