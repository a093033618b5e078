"""What is wrong with tables: all problems in one message, each with its file, line and column."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tacit.core.errors import Misuse

MOST_SHOWN = 10


@dataclass(frozen=True)
class Problem:
    """Something in a table that does not fit.

    Attributes:
        origin: The file, or what else the table is called.
        line: Which line or row it is in; 0: in none of its own.
        unit: Whether `line` counts lines or rows.
        column: The column; empty: no single one.
        what: What is wrong, without a full stop.
        remedy: What to do about it.
    """

    origin: str
    line: int
    unit: str
    column: str
    what: str
    remedy: str

    def __str__(self) -> str:
        line = f", {self.unit} {self.line}" if self.line else ""
        column = f", column {self.column!r}" if self.column else ""
        return f"{self.origin}{line}{column}: {self.what}."


class TableProblems(Misuse):
    """Tables that cannot be used, and why: `problems`."""

    problems: tuple[Problem, ...] = ()

    @classmethod
    def of(cls, problems: Iterable[Problem]) -> TableProblems:
        """The error that tells all of these; parts of one table may have some in common."""
        every = sorted(dict.fromkeys(problems), key=lambda each: (each.origin, each.line))
        shown, more = every[:MOST_SHOWN], len(every) - MOST_SHOWN
        text = str(every[0])
        if len(every) > 1:
            rest = [f"  and {more} more"] if more > 0 else []
            lines = [f"{len(every)} problems:", *(f"  {each}" for each in shown), *rest]
            text = "\n".join([*lines, ""])
        error = cls(text, " ".join(dict.fromkeys(each.remedy for each in shown)))
        error.problems = tuple(every)
        return error


def check(problems: Iterable[Problem]) -> None:
    """Raise TableProblems if there are any."""
    if problems := list(problems):
        raise TableProblems.of(problems)
