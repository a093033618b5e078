"""Fresh keys for masked sums: no mask ever covers two different rows.

A mask is a one-time pad. Two rows under one mask reveal their difference, so

- both ends of an edge contribute a random salt to its key, new for each roster, and for each start
  without saved state: a node that lost its state, and may have other data now, has other masks;
- a node records the digest of each row that it masks, durably and before it sends it. After a crash
  it computes the same row again. If the row differs, because a neighbour changed what it had sent,
  the node stops.

The records also count the sums that a node took part in, under all rosters: a budget has a limit.
Nodes of private algorithms without masked sums record the model that each message is computed from.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
from pathlib import Path

from torch import Tensor

from tacit.core import storage
from tacit.core.errors import Misuse
from tacit.peer.wire.messages import ExchangeId, raw_bytes

SALT_BYTES = 16
REMEDY = "Ask the operator to remove this node and to add it under another name."


class BudgetSpent(Misuse):
    """The privacy budget allows no further sum."""


class FreshKeys:
    """The salts of one roster, and the digests of rows sent under its masks, in a folder.

    Args:
        folder: Where they are stored.
        generation: The version of the roster.
        allowed: How many rows a node may send, under all rosters together.
    """

    def __init__(self, folder: Path, generation: int, allowed: float = math.inf) -> None:
        self._allowed = allowed
        self._salts = folder / f"salts-{generation:06d}.json"
        self._digests = folder / f"masked-{generation:06d}.log"
        logs = set(folder.glob("masked-*.log")) - {self._digests}
        # The rows that were sent under earlier rosters.
        self._sums_before = sum(log.read_bytes().count(b"\n") for log in logs)
        self._sent = self._read_digests()

    def own_salt(self, name: str) -> bytes:
        """This node's salt, on disk before it is sent: neighbours will not take another one."""
        if name not in (salts := self._load()):
            salts = {name: secrets.token_bytes(SALT_BYTES)}
            self.save(salts)
        return salts[name]

    def save(self, salts: dict[str, bytes]) -> None:
        """Store the salts of this node and its neighbours by name, durably."""
        self._salts.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({name: salt.hex() for name, salt in salts.items()})
        storage.write_text(self._salts, text, durable=True)

    def stored(self) -> dict[str, bytes]:
        """The salts that were agreed before this node was restarted."""
        salts = self._load()
        if len(salts) < 2:
            raise Misuse(f"{self._salts} is missing: this node cannot derive its keys.", REMEDY)
        return salts

    def check_row(self, exchange: ExchangeId, row: Tensor) -> None:
        """Record a row before it is sent.

        Raises:
            BudgetSpent: If the budget allows no further row.
            Misuse: If another row was sent in this exchange.
        """
        digest = hashlib.sha256(raw_bytes(row)).hexdigest()
        place = f"{exchange.tick}-{exchange.index}"
        if place not in self._sent:
            if self.sums >= self._allowed:
                raise BudgetSpent(
                    f"The privacy budget is spent: it allows {self._allowed} sums, and this node "
                    "took part in as many.",
                    "Nothing more was sent. The last model is saved.",
                )
            _append_durably(self._digests, f"{place} {digest}\n")
            self._sent[place] = digest
        elif self._sent[place] != digest:
            raise Misuse(
                f"This node has sent another row in iteration {exchange.tick}, before it was "
                "restarted: a neighbour has changed a message.",
                f"Nothing was sent. {REMEDY}",
            )

    @property
    def sums(self) -> int:
        """The sums that this node took part in, under all rosters."""
        return self._sums_before + len(self._sent)

    def _load(self) -> dict[str, bytes]:
        if not self._salts.exists():
            return {}
        stored = storage.read_json(self._salts, REMEDY)
        return {name: bytes.fromhex(text) for name, text in stored.items()}

    def _read_digests(self) -> dict[str, str]:
        """The digests of the rows that were sent under this roster, by exchange."""
        if not self._digests.exists():
            return {}
        content = self._digests.read_bytes()
        # A line that was cut off belongs to a row that was not sent.
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            storage.write_bytes(self._digests, whole, durable=True)
        lines = whole.decode("ascii").splitlines()
        return dict(line.split() for line in lines)


def key_check(one: tuple[str, bytes], other: tuple[str, bytes]) -> str:
    """A short digest of two members' salts, which tells both ends that their keys agree."""
    text = "".join(f"{name}:{salt.hex()};" for name, salt in sorted((one, other)))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _append_durably(path: Path, text: str) -> None:
    with path.open("ab") as file:
        file.write(text.encode("ascii"))
        file.flush()
        os.fsync(file.fileno())
