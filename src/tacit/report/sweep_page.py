"""The page of a sweep: the best combination, all of them as a picture, and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from tacit.core.storage import write_text
from tacit.report.figures import svg
from tacit.report.numbers import format_bytes, format_pair
from tacit.report.page import Card, Table, Tile, render_page, show
from tacit.report.parallel_coordinates import Line, parallel_figure
from tacit.report.rendering import render


@dataclass(frozen=True)
class SweepRow:
    """One combination: its values, mean and deviation of the metric, and why it failed if so."""

    values: tuple[str, ...]
    mean: float
    deviation: float
    bytes_sent: float
    failures: tuple[str, ...] = ()


def write_sweep_page(
    out: Path,
    *,
    title: str,
    keys: Sequence[str],
    rows: Sequence[SweepRow],
    metric: str,
    judged_on: str,
    seeds: int,
    less_is_better: bool,
    links: Mapping[tuple[str, ...], Sequence[str]],
) -> Path:
    """Write a self-contained page; `rows` are the best first, `links` the folders of their runs."""
    ended = [row for row in rows if not row.failures]
    many = f"{len(rows)} combinations" if len(rows) > 1 else "one combination"
    runs = f"{seeds} seeds each" if seeds > 1 else "one seed each"
    lead = f"{many} of {', '.join(keys)}; {runs}, judged by {metric} on {judged_on}."
    lines = [Line(row.values, row.mean if not row.failures else float("nan")) for row in rows]
    figure = parallel_figure(keys, lines, metric, less_is_better=less_is_better)
    caption = (
        "A line per combination, coloured by the metric; the thick one is the best. Dotted lines "
        "failed."
    )
    drawing = svg(figure, f"{metric} by {', '.join(keys)}", caption)
    header = ["rank", *keys, metric, "sent", "runs"]
    body = [
        [
            "failed" if row.failures else str(rank),
            *row.values,
            format_pair(row.mean, row.deviation, ".4g"),
            format_bytes(row.bytes_sent),
            render("sweep_links.html.jinja", folders=links.get(row.values, ())),
        ]
        for rank, row in enumerate(rows, 1)
    ]
    failures = [(", ".join(row.values), text) for row in rows for text in row.failures]
    parts = {
        "Best": show([_tile(metric, ended[0]), *map(Tile, keys, ended[0].values)])
        if ended
        else Markup(),
        "All combinations": show([Card("Parallel coordinates", drawing, caption, "full")]),
        "Table": render("sweep_table.html.jinja", table=Table(header, body), failures=failures),
    }
    write_text(out, render_page(title, lead, parts))
    return out


def _tile(metric: str, row: SweepRow) -> Tile:
    mean, _, deviation = format_pair(row.mean, row.deviation, ".4g").partition(" ± ")
    return Tile(metric, mean, f"± {deviation} over seeds" if deviation else "")
