"""The HTML of reports: the page, its elements, and numbers as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template

# Its policy lets the page load and run nothing, whatever a section contains.
PAGE = Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))


def render_page(title: str, lead: str, alerts: str, sections: Mapping[str, str]) -> str:
    """The whole document from its sections by title, with `alerts` above them.

    Sections and alerts are HTML and inserted as they are, so escape what comes from files.
    """
    links, parts = "", ""
    for number, (name, html) in enumerate(sections.items(), 1):
        anchor, name = f"part-{number}", escape(name)
        links += f'<a href="#{anchor}">{name}</a>'
        parts += f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{name}</h2>\n'
        parts += f"{html}</section>\n"
    title, lead = escape(title), escape(lead)
    return PAGE.substitute(title=title, lead=lead, links=links, alerts=alerts, parts=parts)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """A table whose cells are HTML already; the first column names the rows."""
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    head = "".join(f'<th scope="col">{cell}</th>' for cell in header)
    body = ""
    for row in rows:
        cells = "".join(f"<td>{cell}</td>" for cell in row[1:])
        body += f'<tr><th scope="row">{row[0]}</th>{cells}</tr>\n'
    return (
        f'<div class="sheet"><table>{title}<thead><tr>{head}</tr></thead>\n'
        f"<tbody>{body}</tbody></table></div>\n"
    )


def tile(name: str, value: str, detail: str = "") -> str:
    """One number in large type, with a detail below."""
    return (
        f'<div class="tile"><dt>{escape(name)}</dt><dd class="big">{escape(value)}</dd>'
        f'<dd class="small">{escape(detail)}</dd></div>'
    )


def facts(values: dict[str, str]) -> str:
    """Names and values in small type, side by side."""
    pairs = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in values.items()
    )
    return f'<dl class="sheet facts">{pairs}</dl>\n'


def card(title: str, drawing: str, caption: str = "", *, square: bool = False) -> str:
    """A figure with title and caption; `drawing` is HTML, and limited in height if `square`."""
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    shape = ' class="square"' if square else ""
    return f"<figure{shape}><h3>{escape(title)}</h3>{drawing}{below}</figure>\n"


def grid(cards: Sequence[str]) -> str:
    """Cards side by side; "" if there are none."""
    return f'<div class="grid">\n{"".join(cards)}</div>\n' if cards else ""


def collapsible(title: str, html: str) -> str:
    """HTML that the reader can unfold."""
    return f"<details><summary>{escape(title)}</summary>{html}</details>\n"


def format_number(value: float | None, form: str = ".4g", unit: str = "") -> str:
    """A number in a format, or a dash if there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:{form}}{unit}"


def format_bytes(count: float | None) -> str:
    """A number of bytes in decimal units, such as "1.23 MB"."""
    if count is None or not math.isfinite(count):
        return "–"
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if abs(count) < 999.5 or unit == "PB":
            break
        count /= 1000
    return f"{count:.3g} {unit}"


def format_duration(seconds: float | None) -> str:
    """A time such as "12.3 s", "4 min 05 s" or "2 h 13 min"."""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds >= 0.1 else f"{1000 * seconds:.0f} ms"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
