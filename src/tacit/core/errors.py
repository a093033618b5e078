"""The errors Tacit raises on purpose: each says what is wrong and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TacitError(Exception):
    """Base of all errors raised on purpose; the command line prints it and exits with `exit_code`."""

    exit_code = 1


class Misuse(TacitError, ValueError):
    """The user asked for something impossible: names the key or file, the value, and the remedy."""

    exit_code = 2

    def __init__(self, problem: str, remedy: str = "") -> None:
        self.problem = problem
        self.remedy = remedy
        between = "" if problem.endswith("\n") else " "  # a problem may be a list of lines
        super().__init__(f"{problem}{between}{remedy}".strip())


def unknown_name(problem: str, given: object, known: Iterable[str], also: str = "") -> Misuse:
    """The refusal of a name that is not among those `known`: with the closest one, and all of them."""
    names = list(known)
    close = difflib.get_close_matches(str(given), names, n=1)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    return Misuse(problem, f"{hint}Known: {', '.join(names)}{also}.")


class Diverged(TacitError):
    """A client's state became NaN or infinite; `history` holds what was recorded until then."""

    def __init__(self, message: str, history: object = None) -> None:
        self.history = history
        super().__init__(message)


class Caution(UserWarning):
    """Something that runs but should not go unnoticed."""


class Interrupted(TacitError):
    """The run was stopped by the user; a checkpoint was left where there is a run folder."""

    exit_code = 130


class Lost(TacitError):
    """Another process of the run died or does not answer any more."""


class ReportedElsewhere(TacitError):
    """The run ends for a reason that its first process tells; the others say nothing."""

    def __init__(self, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__("The first process of the run says why it ended.")


def first_line(problem: BaseException) -> str:
    """The first line of what an error says, or its kind where it says nothing."""
    lines = str(problem).strip().splitlines()
    return lines[0] if lines else type(problem).__name__
