"""When a run, its audit and the page were made: by which version and command, on which machine."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from tacit.report.page import table

NAMES = {"date": "Date", "version": "Version", "command": "Command", "machine": "Machine"}


def provenance_html(sources: Mapping[str, Mapping[str, str]]) -> str:
    """A row per source with what is known of it, one for those that are alike; "" if nothing is."""
    titles: dict[tuple[str, ...], list[str]] = {}
    for title, values in sources.items():
        known = tuple(values.get(key) or "–" for key in NAMES)
        if any(values.get(key) for key in NAMES):
            titles.setdefault(known, []).append(title)
    rows = [
        [
            f'<span class="wrap">{escape("; ".join(alike))}</span>',
            *(f'<span class="wrap">{escape(one)}</span>' for one in known),
        ]
        for known, alike in titles.items()
    ]
    return table(["", *NAMES.values()], rows) if rows else ""
