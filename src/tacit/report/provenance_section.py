"""When a run, its audit and the page were made: by which version and command, on which machine."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from tacit.report.page import facts

NAMES = {"date": "Date", "version": "Version", "command": "Command", "machine": "Machine"}


def provenance_html(sources: Mapping[str, Mapping[str, str]]) -> str:
    """A block per source with what is known of it; "" if nothing is."""
    html = ""
    for title, values in sources.items():
        known = {NAMES[key]: values[key] for key in NAMES if values.get(key)}
        if known:
            html += f"<h3>{escape(title)}</h3>\n{facts(known, wide=True)}"
    return html
