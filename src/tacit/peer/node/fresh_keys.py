"""Fresh keys: no noise or mask ever covers two different messages.

Two messages under one mask reveal their difference, so

- every node contributes a random salt to all of its keys, new for each roster, and for each start
  without saved state or with other data: a node that starts over has other noise and other masks;
- a node records the digest of what it sends in each exchange of its algorithm, durably and before
  it sends it. After a crash it computes the same messages again. If one differs, because a
  neighbour changed what it had sent, the node stops.

In a masked sum the digest is that of a node's own masked row, and not of the sum that it passes on.
The records also count the exchanges that a node took part in, under all rosters: those of private
algorithms are paid from a budget, which has a limit.
"""

from __future__ import annotations

import json
import math
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from tacit.core import storage
from tacit.core.errors import Misuse
from tacit.peer.wire.messages import ExchangeId

SALT_BYTES = 16
REMEDY = "Ask the operator to remove this node and to add it under another name."


class BudgetSpent(Misuse):
    """The privacy budget allows no further sum."""


class FreshKeys:
    """The salts of one roster, and the digests of what was sent under its keys, in a folder.

    Args:
        folder: Where they are stored.
        generation: The version of the roster.
        allowed: How many exchanges a node may take part in, under all rosters together.
    """

    def __init__(self, folder: Path, generation: int, allowed: float = math.inf) -> None:
        self._allowed = allowed
        self._salts = folder / f"salts-{generation:06d}.json"
        self._digests = folder / f"masked-{generation:06d}.log"
        self._file: BinaryIO | None = None  # the digests, open while this process adds to them
        logs = set(folder.glob("masked-*.log")) - {self._digests}
        # What was sent before this process started; it sends nothing twice itself.
        self._sent_before = self._read_digests()
        # The exchanges that this node took part in, under all rosters.
        self.sums = sum(log.read_bytes().count(b"\n") for log in logs) + len(self._sent_before)

    def own_salt(self, name: str, data_digest: str) -> bytes:
        """This node's salt for these data, on disk before it is sent.

        A node that was stopped before its first checkpoint keeps its salt: neighbours know it.
        """
        stored_digest, salts = self._load()
        if name not in salts or stored_digest != data_digest:
            salts = {name: secrets.token_bytes(SALT_BYTES)}
            self.save(salts, data_digest)
        return salts[name]

    def save(self, salts: Mapping[str, bytes], data_digest: str) -> None:
        """Store the salts of the members by name, durably, and for which data they are."""
        self._salts.parent.mkdir(parents=True, exist_ok=True)
        by_name = {name: salt.hex() for name, salt in salts.items()}
        text = json.dumps({"data": data_digest, "salts": by_name})
        storage.write_text(self._salts, text, durable=True)

    def agreed_salts(self) -> dict[str, bytes]:
        """The salts that were agreed on before this node was restarted."""
        _, salts = self._load()
        if len(salts) < 2:
            raise Misuse(f"{self._salts} is missing: this node cannot derive its keys.", REMEDY)
        return salts

    def check_sent(self, exchange: ExchangeId, digest: bytes) -> None:
        """Record the SHA-256 digest of what is sent in an exchange, before it is sent.

        Raises:
            BudgetSpent: If the budget allows no further exchange.
            Misuse: If something else was sent in this exchange.
        """
        place = f"{exchange.tick}-{exchange.index}"
        known = self._sent_before.get(place)
        if known is None:
            if self.sums >= self._allowed:
                raise BudgetSpent(
                    f"The privacy budget is spent: it allows {self._allowed} sums, and this node "
                    "took part in as many.",
                    "Nothing more was sent. The last model is saved.",
                )
            if self._file is None:
                self._file = _open_durably(self._digests)
            _append_durably(self._file, f"{place} {digest.hex()}\n".encode("ascii"))
            self.sums += 1
        elif known != digest.hex():
            raise Misuse(
                f"This node has sent another message in iteration {exchange.tick}, before it was "
                "restarted: a neighbour has changed a message, or this machine computes otherwise.",
                f"Nothing was sent. {REMEDY}",
            )

    def close(self) -> None:
        """Nothing more is sent under this roster."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def sent_before(self) -> dict[tuple[int, int], bytes]:
        """The digests of what was sent before this process started, by tick and index."""
        found = {}
        for place, digest in self._sent_before.items():
            tick, _, index = place.partition("-")
            found[int(tick), int(index)] = bytes.fromhex(digest)
        return found

    def _load(self) -> tuple[str, dict[str, bytes]]:
        """The digest of the data, and the salts by name, as they are stored."""
        if not self._salts.exists():
            return "", {}
        stored = storage.read_json(self._salts, REMEDY)
        try:
            salts = {name: bytes.fromhex(text) for name, text in stored["salts"].items()}
            return stored["data"], salts
        except (KeyError, TypeError, ValueError, AttributeError):
            problem = f"{self._salts} is damaged, or from another version of tacit."
            raise Misuse(problem, REMEDY) from None

    def _read_digests(self) -> dict[str, str]:
        """The digests of what was sent under this roster, by exchange."""
        if not self._digests.exists():
            return {}
        content = self._digests.read_bytes()
        # A line that was cut off belongs to a message that was not sent.
        whole = content[: content.rfind(b"\n") + 1]
        if whole != content:
            storage.write_bytes(self._digests, whole, durable=True)
        lines = whole.decode("ascii").splitlines()
        return dict(line.split() for line in lines)


def _open_durably(path: Path) -> BinaryIO:
    """Open a file to append to it, whose name is on the disk too."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        storage.write_bytes(path, b"", durable=True)
    return path.open("ab", buffering=0)


def _append_durably(file: BinaryIO, text: bytes) -> None:
    size = file.tell()
    try:
        if file.write(text) < len(text):
            raise OSError("the disk is full")
        os.fsync(file.fileno())
    except OSError:
        # It will be written again.
        file.truncate(size)
        raise
