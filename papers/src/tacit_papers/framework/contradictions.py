"""Why a claim is not reproduced: its cause, and the argument for that cause."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase


class Cause(StrEnum):
    """What explains that our result contradicts a claim; the value is what result.json stores."""

    OPEN = "open"
    CONTRADICTORY = "contradictory"
    FALSE = "false"
    EXPECTATION = "expectation"
    UNEXPLAINED = "unexplained"

    @property
    def description(self) -> str:
        return DESCRIPTIONS[self]


DESCRIPTIONS = {
    Cause.OPEN: "the paper leaves the protocol open",
    Cause.CONTRADICTORY: "the paper contradicts itself",
    Cause.FALSE: "the claim is false",
    Cause.EXPECTATION: "our own expectation was wrong",
    Cause.UNEXPLAINED: "unexplained",
}


@dataclass(frozen=True)
class Contradiction:
    """Explains one claim that is not reproduced, or a group of them.

    Attributes:
        claims: The text of a claim, or a pattern of texts such as `"* · DP"`.
        cause: The kind of explanation.
        argument: What was searched and the best match, or why the claim cannot hold. Places such as
            `{{ mean('lppa/table1', 'MNIST · LPPA') }}` are filled from stored results: see
            `filled_text`.
    """

    claims: str
    cause: Cause
    argument: str

    def explains(self, claim: str) -> bool:
        return claim == self.claims or fnmatchcase(claim, self.claims)


def find_contradiction(claim: str, among: Iterable[Contradiction]) -> Contradiction | None:
    """The first that explains a claim; None if there is none."""
    return next((one for one in among if one.explains(claim)), None)
