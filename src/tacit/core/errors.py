"""The errors that Tacit raises on purpose; each names the problem and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

# The remedy if packages that nodes need are missing. The public index has another package `tacit`.
INSTALL_PEER = (
    "Install it: pip install 'tacit-learn[peer]', or in a checkout of the repository "
    "pip install -c constraints.txt '.[peer]'."
)


class TacitError(Exception):
    """Base of all errors raised on purpose; the command line exits with its `exit_code`."""

    exit_code = 1


class Misuse(TacitError, ValueError):
    """An impossible request.

    Args:
        problem: What is wrong: the key or file and its value.
        remedy: What to do about it.

    Example:
        >>> Misuse("seed is -1.", "Give a whole number of at least 0.").remedy
        'Give a whole number of at least 0.'
    """

    exit_code = 2

    def __init__(self, problem: str, remedy: str = "") -> None:
        self.problem = problem
        self.remedy = remedy
        # A problem may be a list of lines.
        between = "" if problem.endswith("\n") else " "
        super().__init__(f"{problem}{between}{remedy}".strip())


class NotReady(Misuse):
    """A request that may succeed later without a correction, such as a disk not mounted yet."""

    # EX_TEMPFAIL of sysexits.h, which tells a service manager to try again.
    exit_code = 75


def unknown_name(problem: str, given: object, known: Iterable[str], also: str = "") -> Misuse:
    """The error for a name that is not among those `known`; it suggests the closest one."""
    names = list(known)
    # Also of names that differ in capitals only, such as "DSGT".
    small = {name.lower(): name for name in names}
    close = difflib.get_close_matches(str(given).lower(), small, n=1)
    hint = f"Did you mean {small[close[0]]!r}? " if close else ""
    return Misuse(problem, f"{hint}Known: {', '.join(names)}{also}.")


@contextmanager
def prefix_errors(where: str) -> Iterator[None]:
    """Put the place, such as a section of a file, in front of errors that do not name it."""
    try:
        yield
    except Misuse as problem:
        raise type(problem)(f"{where}: {problem.problem}", problem.remedy) from None


class Diverged(TacitError):
    """A client's state became NaN or infinite.

    Args:
        message: Which client, and when.
        history: The records made before that, if there are any.
    """

    def __init__(self, message: str, history: object = None) -> None:
        self.history = history
        super().__init__(message)


class Caution(UserWarning):
    """A warning: the run works, but not as well or as privately as one might expect."""


class Interrupted(TacitError):
    """The user stopped the run; if it has a run folder, a checkpoint was saved."""

    exit_code = 130


class RankLost(TacitError):
    """Another process of the run died or does not respond."""


class ReportedElsewhere(TacitError):
    """The run failed for a reason that its first process reports; others print nothing."""

    def __init__(self, exit_code: int) -> None:
        self.exit_code = exit_code
        super().__init__("The first process of the run reports why it ended.")


def first_line(problem: BaseException) -> str:
    """The first line of an error message, or the error's class if there is none."""
    lines = str(problem).strip().splitlines()
    return lines[0] if lines else type(problem).__name__
