"""What pages are made of: tables, figures with captions; and the page."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from markupsafe import Markup

from tacit.report.rendering import render, source

MAX_STACKED = 30  # rows of a table that becomes a list on a phone; longer ones scroll
PROVENANCE = {"date": "Date", "version": "Version", "command": "Command", "machine": "Machine"}


@dataclass(frozen=True)
class Styled:
    """A text in a cell that is strong, or has classes of the page's style sheet."""

    text: str
    style: str = "strong"


# A list has a line for each of its parts. Texts are escaped, unless they are Markup.
Cell = str | Styled | Sequence[str | Styled]


@dataclass(frozen=True)
class Table:
    """A table; the first column names the rows. Without rows nothing is shown.

    Attributes:
        header: The names of the columns.
        rows: A cell per column.
        caption: Its title.
        series: The number of the series that each row belongs to, if they have signs in figures
            and the reader can hide them; None for a row that is in no figure.
    """

    header: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    caption: str = ""
    series: Sequence[int | None] = ()

    @cached_property
    def is_text(self) -> list[bool]:
        """For each column whether it has texts, and not numbers only."""
        columns = zip(*self.rows, strict=True)
        return [
            number == 0 or not all(_is_number(_plain(value)) for value in column)
            for number, column in enumerate(columns)
        ]

    @property
    def labels(self) -> list[str]:
        return [_plain(title) for title in self.header]

    @property
    def is_stacked(self) -> bool:
        """Whether it becomes a list on a phone."""
        return len(self.rows) <= MAX_STACKED and len(self.header) > 2


@dataclass(frozen=True)
class Card:
    """A figure with title and caption.

    Attributes:
        title: The heading.
        drawing: A figure made by `svg`, or why there is none.
        caption: What to know about it.
        shape: "square" drawings are limited in height; "full" ones have the whole width and scroll
            on a phone, so that small print stays legible.
        series: The number of the series it belongs to, which the reader can hide.
        numbers: The same as a table, folded.
    """

    title: str
    drawing: str
    caption: str = ""
    shape: Literal["", "square", "full"] = ""
    series: int | None = None
    numbers: Table | None = None


def counts_table(
    rows: str, columns: Sequence[str], counted: Iterable[tuple[str, Sequence[int]]]
) -> Table:
    """Counts by row and column, with the sum of each row."""
    numbers = [
        [name, *(f"{count:,}" for count in counts), f"{sum(counts):,}"] for name, counts in counted
    ]
    return Table([rows, *columns, "all"], numbers)


def provenance_table(sources: Mapping[str, Mapping[str, str]]) -> Table:
    """When, by which version and command, and on which machine each of some files was made.

    Sources that were made alike share a row; those of which nothing is known have none.
    """
    titles: dict[tuple[str, ...], list[str]] = {}
    for title, values in sources.items():
        known = tuple(values.get(key) or "–" for key in PROVENANCE)
        titles.setdefault(known, []).append(title)
    titles.pop(("–",) * len(PROVENANCE), None)
    rows = [["; ".join(alike), *known] for known, alike in titles.items()]
    return Table(["", *PROVENANCE.values()], rows)


def show(*elements: Table | Sequence[Card] | Mapping[str, str]) -> Markup:
    """Tables, cards side by side, and facts: names with values in small type."""
    return render("show.html.jinja", elements=elements)


def render_page(
    title: str,
    lead: str,
    sections: Mapping[str, Markup],
    *,
    alerts: str = "",
    answer: str = "",
    refresh: int | None = None,
) -> str:
    """The whole document from its sections by title, with `answer` and `alerts` above them.

    Empty sections are left out. With `refresh` the browser loads the page again after so many
    seconds.
    """
    script = source("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return render(
        "page.html.jinja",
        title=title,
        lead=lead,
        sections={name: content for name, content in sections.items() if content},
        alerts=alerts,
        answer=answer,
        refresh=refresh,
        style=Markup(source("page.css")),
        script=Markup(script),
        script_digest=digest,
    )


def _plain(cell: Cell) -> str:
    """The text of a cell."""
    if isinstance(cell, str):
        return Markup(cell).striptags() if isinstance(cell, Markup) else cell
    return cell.text if isinstance(cell, Styled) else " ".join(map(_plain, cell))


def _is_number(text: str) -> bool:
    """Whether a cell is a number, with a unit or without, or says that there is none; no date."""
    if text in ("–", "∞", "none", ""):
        return True
    if re.match(r"\d{4}-\d\d-\d\d", text):
        return False
    starts = re.match(r"[ε≤≥=~+−-]*\s*[≤≥=]?\s*\d", text) is not None
    return starts and sum(letter.isalpha() for letter in text) <= 5
