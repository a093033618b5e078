"""What members sign to agree on a roster, and the sheets on which they send it to each other.

A roster is identified by its digest, which depends on the federation, the generation and all
earlier agreements. Every statement names the roster that it is to succeed, so it cannot be used for
another one.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

PREFIX = "tacit agreement 1"
MAX_SHEET_BYTES = 1 << 22

Word = Literal["silent", "back"]
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True, order=True)
class Ballot:
    """One attempt to agree. Attempts are ordered, and each belongs to one proposer."""

    round: int
    proposer: str


@dataclass(frozen=True)
class Absence:
    """A suspended member."""

    name: str
    since: int  # Unix time, as the proposer's clock had it
    epoch: int  # of the roster that suspended it


@dataclass(frozen=True)
class Return:
    """A member that was suspended, and takes part again."""

    name: str
    epoch: int  # of the roster that it came back with


@dataclass(frozen=True)
class Change:
    """The successor of a roster."""

    generation: int  # of the operator's roster
    epoch: int  # how many agreements followed on the operator's roster
    previous: str  # digest of the roster that it succeeds
    digest: str  # of the successor
    suspended: tuple[Absence, ...]  # all that are suspended under the successor, by name
    returned: tuple[Return, ...]  # all that ever came back in this generation, by name
    step: int  # the proposer's iteration

    @property
    def absent(self) -> frozenset[str]:
        """The names of the suspended members."""
        return frozenset(absence.name for absence in self.suspended)


@dataclass(frozen=True)
class Endorsement:
    """A member has heard nothing of another for longer than the patience, or hears it again."""

    roster: str
    subject: str
    word: Word
    step: int


@dataclass(frozen=True)
class Promise:
    """A member takes part in no earlier ballot any more; it also says what it accepted last."""

    roster: str
    ballot: Ballot
    accepted_in: Ballot | None
    accepted: Change | None


@dataclass(frozen=True)
class Proposal:
    roster: str
    ballot: Ballot
    change: Change


@dataclass(frozen=True)
class Acceptance:
    """A member's vote. With those of a majority of all members, the change is decided."""

    roster: str
    ballot: Ballot
    change: Change


@dataclass(frozen=True)
class Signed(Generic[S]):
    statement: S
    signer: str
    certificate: str  # PEM
    signature: str  # hexadecimal


@dataclass(frozen=True)
class PromiseEvidence:
    """A promise, and the endorsements of the change that its signer accepted."""

    promise: Signed[Promise]
    endorsements: tuple[Signed[Endorsement], ...]


@dataclass(frozen=True)
class ProposalEvidence:
    """A proposal, and why it may be accepted."""

    proposal: Signed[Proposal]
    endorsements: tuple[Signed[Endorsement], ...]
    promises: tuple[PromiseEvidence, ...]


@dataclass(frozen=True)
class Decision:
    """A change with the votes of a majority of all members. It proves itself."""

    change: Change
    acceptances: tuple[Signed[Acceptance], ...]


@dataclass(frozen=True)
class Votes:
    """What a member must not forget: it is on disk before anything is sent that depends on it."""

    generation: int
    base: str  # digest of the operator's roster
    decision: Decision | None = None  # the newest; the votes below are on its successor
    promise: PromiseEvidence | None = None
    acceptance: Signed[Acceptance] | None = None
    endorsements: tuple[Signed[Endorsement], ...] = ()  # of the accepted change


@dataclass(frozen=True)
class Sheet:
    """All that a member has to say about the successor of its roster. It replaces earlier ones."""

    generation: int
    epoch: int
    roster: str
    finished: bool  # it needs nothing more of anyone
    endorsements: tuple[Signed[Endorsement], ...] = ()
    promise: PromiseEvidence | None = None
    proposal: ProposalEvidence | None = None
    acceptance: Signed[Acceptance] | None = None
    decision: Decision | None = None  # only for receivers with an older roster


_SHEET, _VOTES = TypeAdapter(Sheet), TypeAdapter(Votes)


def signed_bytes(federation: str, signer: str, statement: object) -> bytes:
    """The bytes of a statement that its signer signs."""
    parts = [PREFIX, federation, signer, type(statement).__name__, asdict(statement)]  # type: ignore[call-overload]
    return json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()


def to_json(value: Sheet | Votes) -> bytes:
    return json.dumps(asdict(value), separators=(",", ":")).encode()


def parse_sheet(content: bytes) -> Sheet:
    """A sheet from another member; raises ValueError if it is none."""
    return _parse(_SHEET, content)


def parse_votes(content: bytes) -> Votes:
    """Stored votes; raises ValueError if the content is damaged."""
    return _parse(_VOTES, content)


def signers(statements: Sequence[Signed[Any]]) -> list[str]:
    return [one.signer for one in statements]


def _parse(kind: TypeAdapter[T], content: bytes) -> T:
    if len(content) > MAX_SHEET_BYTES:
        raise ValueError(f"{len(content)} bytes, more than {MAX_SHEET_BYTES}")
    try:
        return kind.validate_json(content)
    except ValidationError as problem:
        first = problem.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}"[:200]) from None
