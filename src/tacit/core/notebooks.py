"""How results look in a notebook: a heading and a table of plain HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


def html_table(
    title: str, header: Sequence[str] = (), rows: Sequence[Sequence[object]] = (), extra: str = ""
) -> str:
    """A title and a table; cells are escaped. `extra` is HTML that follows them.

    Example:
        >>> html_table("Graph", ["clients"], [[5]])
        '<p><b>Graph</b></p><table><tr><th>clients</th></tr><tr><td>5</td></tr></table>'
    """

    def line(tag: str, cells: Sequence[object]) -> str:
        return f"<tr>{''.join(f'<{tag}>{escape(str(cell))}</{tag}>' for cell in cells)}</tr>"

    head = line("th", header) if header else ""
    body = "".join(line("td", row) for row in rows)
    table = f"<table>{head}{body}</table>" if head or body else ""
    return f"<p><b>{escape(title)}</b></p>{table}{extra}"
