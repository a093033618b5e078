"""The errors Tacit raises on purpose: each says what is wrong and what to do about it."""


class TacitError(Exception):
    """Base of all errors raised on purpose; the command line prints it and exits with `exit_code`."""

    exit_code = 1


class Misuse(TacitError, ValueError):
    """The user asked for something impossible: names the key or file, the value, and the remedy."""

    exit_code = 2

    def __init__(self, problem: str, remedy: str = "") -> None:
        self.problem = problem
        self.remedy = remedy
        super().__init__(f"{problem} {remedy}".strip())


class Diverged(TacitError):
    """A client's state became NaN or infinite; `history` holds what was recorded until then."""

    def __init__(self, message: str, history: object = None) -> None:
        self.history = history
        super().__init__(message)


class Interrupted(TacitError):
    """The run was stopped by the user; a checkpoint was left where there is a run folder."""

    exit_code = 130
