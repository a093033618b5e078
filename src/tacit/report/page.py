"""The HTML of reports: the page, its elements, and numbers as text."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from html import escape, unescape
from pathlib import Path
from string import Template

HERE = Path(__file__)
PAGE = Template(HERE.with_name("page.html").read_text(encoding="utf-8"))
SCRIPT = HERE.with_name("page.js").read_text(encoding="utf-8")
# The page runs its own script only and loads nothing, whatever a section contains.
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'; script-src 'sha256-"
    f"{base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()}'"
)
MAX_STACKED = 30  # rows of a table that becomes a list on a phone; longer ones scroll


def render_page(
    title: str,
    lead: str,
    alerts: str,
    sections: Mapping[str, str],
    *,
    answer: str = "",
    refresh: int | None = None,
) -> str:
    """The whole document from its sections by title, with `answer` and `alerts` above them.

    Sections, answer and alerts are HTML and inserted as they are, so escape what comes from files.
    With `refresh` the browser loads the page again after so many seconds.
    """
    links, parts = "", ""
    for number, (name, html) in enumerate(sections.items(), 1):
        anchor, name = f"part-{number}", escape(name)
        links += f'<a href="#{anchor}">{name}</a>'
        parts += f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{name}</h2>\n'
        parts += f"{html}</section>\n"
    again = "" if refresh is None else f'<meta http-equiv="refresh" content="{refresh}">\n'
    return PAGE.substitute(
        title=escape(title),
        lead=escape(lead),
        links=links,
        answer=answer,
        alerts=alerts,
        parts=parts,
        policy=POLICY,
        refresh=again,
        script=SCRIPT,
    )


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    caption: str = "",
    series: Sequence[int] | None = None,
) -> str:
    """A table whose cells are HTML already; the first column names the rows.

    Columns of text are aligned left, columns of numbers right. `series` has the number of the
    series that each row belongs to, which the reader can hide. On a phone a short table becomes a
    list.
    """
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    plain = [[_plain(cell) for cell in row] for row in rows]
    kinds = [
        ' class="text"' if k == 0 or not all(_is_number(row[k]) for row in plain) else ""
        for k in range(len(header))
    ]
    labels = [escape(_plain(cell)) for cell in header]
    head = "".join(
        f'<th scope="col" role="columnheader"{kind}>{cell}</th>'
        for kind, cell in zip(kinds, header, strict=True)
    )
    body = ""
    for place, row in enumerate(rows):
        owner = "" if series is None else f' data-series="{series[place]}"'
        cells = "".join(
            f'<td role="cell"{kind} data-label="{label}">{cell}</td>'
            for kind, label, cell in zip(kinds[1:], labels[1:], row[1:], strict=True)
        )
        name = f'<th scope="row" role="rowheader" class="text">{row[0]}</th>'
        body += f'<tr role="row"{owner}>{name}{cells}</tr>\n'
    shape = ' class="stack"' if len(rows) <= MAX_STACKED and len(header) > 2 else ""
    return (
        f'<div class="sheet"><table role="table"{shape}>{title}'
        f'<thead role="rowgroup"><tr role="row">{head}</tr></thead>\n'
        f'<tbody role="rowgroup">{body}</tbody></table></div>\n'
    )


def _plain(cell: str) -> str:
    """The text of a cell."""
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", cell)).split())


def _is_number(text: str) -> bool:
    """Whether a cell is a number, with a unit or without, or says that there is none; no date."""
    if text in ("–", "∞", "none", ""):
        return True
    if re.match(r"\d{4}-\d\d-\d\d", text):
        return False
    starts = re.match(r"[ε≤≥=~+−-]*\s*[≤≥=]?\s*\d", text) is not None
    return starts and sum(letter.isalpha() for letter in text) <= 5


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


def card(
    title: str, drawing: str, caption: str = "", *, square: bool = False, full: bool = False
) -> str:
    """A figure with title and caption, from a drawing that is HTML.

    The drawing is limited in height if `square`. It has the whole width if `full`, and scrolls on a
    phone, so that small print stays legible.
    """
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    shape = ' class="full"' if full else ' class="square"' if square else ""
    drawing = f'<div class="scroll">{drawing}</div>' if full else drawing
    return f"<figure{shape}><h3>{escape(title)}</h3>{drawing}{below}</figure>\n"


def of_series(place: int, html: str) -> str:
    """HTML about one of several runs, which the reader can hide."""
    return f'<div data-series="{place}">{html}</div>\n'


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
