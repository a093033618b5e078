"""When a run, its audit and the page were made: by which version and command, on which machine."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from tacit.report.page import facts

NAMES = {"date": "Date", "version": "Version", "command": "Command", "machine": "Machine"}


def provenance_html(sources: Mapping[str, Mapping[str, str]]) -> str:
    """What is known of each source, once for those that are alike; "" if nothing is."""
    titles: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for title, values in sources.items():
        known = tuple((NAMES[key], values[key]) for key in NAMES if values.get(key))
        if known:
            titles.setdefault(known, []).append(title)
    return "".join(
        f"<h3>{escape(', '.join(alike))}</h3>\n{facts(dict(known), wide=True)}"
        for known, alike in titles.items()
    )
