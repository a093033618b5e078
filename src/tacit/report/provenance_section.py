"""When a run, its audit and the page were made: by which version and command, on which machine."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from tacit.report.page import table

NAMES = {"date": "Date", "version": "Version", "command": "Command", "machine": "Machine"}


def provenance_html(sources: Mapping[str, Mapping[str, str]]) -> str:
    """A row per source with what is known of it; "" if nothing is."""
    rows = [
        [
            escape(title),
            *(f'<span class="wrap">{escape(values.get(key) or "–")}</span>' for key in NAMES),
        ]
        for title, values in sources.items()
        if any(values.get(key) for key in NAMES)
    ]
    return table(["", *NAMES.values()], rows) if rows else ""
