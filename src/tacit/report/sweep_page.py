"""The page of a sweep: the best combination, all of them as a picture, and as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from tacit.core.storage import write_text
from tacit.report.page import (
    card,
    collapsible,
    format_bytes,
    render_page,
    table,
    tile,
)
from tacit.report.parallel_coordinates import Line, parallel_figure
from tacit.report.precision import format_pair
from tacit.report.style import svg


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
    parts = {}
    if ended:
        best = ended[0]
        tiles = tile(metric, *_tile(best))
        tiles += "".join(map(tile, keys, best.values))
        parts["Best"] = f'<dl class="tiles">{tiles}</dl>\n'
    drawing = svg(figure, f"{metric} by {', '.join(keys)}", caption)
    parts["All combinations"] = card("Parallel coordinates", drawing, caption, full=True)
    header = ["rank", *map(escape, keys), escape(metric), "sent", "runs"]
    body = [
        [
            "failed" if row.failures else str(rank),
            *map(escape, row.values),
            format_pair(row.mean, row.deviation, ".4g"),
            format_bytes(row.bytes_sent),
            " ".join(
                f'<a href="{escape(name, quote=True)}/history.jsonl">{number}</a>'
                for number, name in enumerate(links.get(row.values, ()), 1)
            ),
        ]
        for rank, row in enumerate(rows, 1)
    ]
    parts["Table"] = table(header, body)
    failures = [(row, text) for row in rows for text in row.failures]
    if failures:
        lines_of = "".join(
            f"<li>{escape(', '.join(row.values))}: {escape(text)}</li>" for row, text in failures
        )
        parts["Table"] += collapsible(f"{len(failures)} failures", f"<ul>{lines_of}</ul>")
    write_text(out, render_page(title, lead, "", parts))
    return out


def _tile(row: SweepRow) -> tuple[str, str]:
    mean, _, deviation = format_pair(row.mean, row.deviation, ".4g").partition(" ± ")
    return mean, f"± {deviation} over seeds" if deviation else ""
