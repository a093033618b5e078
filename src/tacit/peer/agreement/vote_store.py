"""The votes of a node on disk, so that it never votes twice."""

from __future__ import annotations

from pathlib import Path

from tacit.core import storage
from tacit.core.errors import Misuse
from tacit.peer.agreement.statements import Votes, parse_votes, to_json
from tacit.peer.federation.manifest import Manifest


class VoteStore:
    """Votes on the successors of an operator's roster, in one file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "votes.json"

    def load(self, base: Manifest) -> Votes:
        """The stored votes of this generation, or none yet.

        Raises:
            Misuse: If they cannot be read: the node could give another vote than before.
        """
        fresh = Votes(base.generation, base.hash.hex())
        if not self._path.exists():
            return fresh
        try:
            votes = parse_votes(self._path.read_bytes())
        except ValueError as problem:
            raise Misuse(
                f"{self._path} is damaged ({problem}), so this node may have voted already.",
                "Restore the file. Or ask the operator for a new roster, which `tacit federation "
                "set` makes, put it into the node's folder and delete the file.",
            ) from None
        return votes if (votes.generation, votes.base) == (fresh.generation, fresh.base) else fresh

    def save(self, votes: Votes) -> None:
        """Store votes durably."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        storage.write_bytes(self._path, to_json(votes), durable=True)
