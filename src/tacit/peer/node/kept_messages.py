"""The messages of a transcript for an audit, checked against what the node recorded as sent.

A node records the digest of everything it sends, durably and before it sends it
(tacit.peer.node.fresh_keys). If a message in the transcript has another digest, the transcript is
not what was sent. Received messages have checksums of their own only: they prove no intent.

An iteration is complete if the transcript has all messages of it, sent and received.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor

from tacit.core.errors import Misuse, NotReady
from tacit.core.fixed_point import MODULUS, wrapped
from tacit.peer.federation.folders import NodeFolder
from tacit.peer.federation.manifest import Manifest
from tacit.peer.node.fresh_keys import recorded_digests
from tacit.peer.node.transcript_log import read_transcript, segment_paths
from tacit.peer.node.tree_place import TreePlace
from tacit.peer.wire.messages import WireMessage, parse_tensors, raw_bytes
from tacit.record.transcript import Message, Transcript

Place = tuple[int, int]  # tick and index of an exchange
REMEDY = "Do not rely on it. Ask who had access to the node's folder."


@dataclass(frozen=True, eq=False)
class KeptMessages:
    """What a node's transcript has of one roster.

    Attributes:
        first: The first iteration of the longest complete stretch.
        last: The last iteration of it.
        sent: How many exchanges of the node were compared with its record.
        is_start: Whether the stretch begins where the federation began.
        ended: The last iteration in which the node sent anything.
    """

    folder: Path
    manifest: Manifest
    name: str
    first: int
    last: int
    sent: int
    is_start: bool
    ended: int

    @classmethod
    def load(
        cls, folder: NodeFolder, manifest: Manifest, *, totals: bool = False
    ) -> KeptMessages | None:
        """Check a node's transcript; None if there is none, or no iteration is complete.

        Args:
            folder: The node's folder.
            manifest: The roster whose messages are wanted.
            totals: Whether nodes exchange sums along a tree, in which every message is the sum of
                several nodes.

        Raises:
            Misuse: A segment is damaged, or a message is not what the node sent.
        """
        place, name = transcript_folder(folder), folder.name
        if not segment_paths(place):
            return None
        exchanges = _tree_exchanges if totals else _exchanges
        try:
            found = dict(exchanges(place, manifest, name))
        except FileNotFoundError:
            problem = f"{place} changed while it was read: the node has deleted its oldest part."
            raise NotReady(problem, "Try again.") from None
        # Read after the transcript: a node records what it sends before anything else.
        digests = recorded_digests(folder.run / "checkpoints", manifest.number)
        for at, exchange in found.items():
            if exchange.digest is not None and exchange.digest != digests.get(at):
                raise Misuse(
                    f"The transcript in {place} is not what was sent: the message of iteration "
                    f"{at[0]} differs from the record that {name} made when it sent it.",
                    REMEDY,
                )
        missing = {tick for tick, index in digests if not _is_complete(found.get((tick, index)))}
        complete = sorted({tick for tick, _ in digests} - missing)
        if not complete:
            return None
        first, last = longest_stretch(complete)
        begun, ended = (choose(tick for tick, _ in digests) for choose in (min, max))
        sent = sum(exchange.digest is not None for exchange in found.values())
        is_start = manifest.number == 1 and first == begun <= 1
        return cls(place, manifest, name, first, last, sent, is_start, ended)

    def transcript(self, outline: Transcript) -> Transcript:
        """The numbers of the messages in an outline, which a run on symbols has.

        Raises:
            Misuse: The transcript has no such message.
        """
        names = self.manifest.names
        wanted = {message.tick for message in outline.messages}
        rows: dict[tuple[int, str, str, str], list[Tensor]] = {}
        for message in _messages(self.folder, self.manifest):
            tick, envelope = message.envelope.exchange.tick, message.envelope
            if tick not in wanted:
                continue
            for tag, row in parse_tensors(message.frame).items():
                key = (tick, tag, envelope.sender, envelope.receiver)
                rows.setdefault(key, []).append(row)

        def numbers(message: Message) -> Tensor:
            tag = message.tag if message.modulus is None else message.tag.rpartition("/")[0]
            found = []
            for at, source in enumerate(message.source.tolist()):
                to = "" if message.target is None else names[int(message.target[at])]
                row = rows.get((message.tick, tag, names[source], to), [])
                if not row:
                    raise Misuse(
                        f"The transcript has no message {tag!r} of iteration {message.tick} from "
                        f"{names[source]}.",
                        "Audit without it: move run/transcript away.",
                    )
                found.append(row.pop(0))
            stacked = torch.stack(found)
            if stacked.dtype == torch.uint8:
                raise Misuse(
                    "The messages in the transcript are compressed: they are checked, but not "
                    "attacked.",
                    "Rely on what is proved from the manifest.",
                )
            return stacked if message.modulus is None else unit_of(message) * stacked.double()

        messages = [replace(message, rows=numbers(message)) for message in outline.messages]
        return replace(outline, messages=messages)


@dataclass(frozen=True, eq=False)
class _Exchange:
    """One exchange: the digest of what was sent in it, and whether all messages are there.

    The digest is None if some of what was sent is missing, such as in a deleted segment.
    """

    digest: bytes | None
    is_complete: bool


def _exchanges(folder: Path, manifest: Manifest, name: str) -> Iterator[tuple[Place, _Exchange]]:
    receivers = {member.name for member in manifest.out_neighbours(name)}
    senders = {member.name for member in manifest.in_neighbours(name)}
    for place, messages in _grouped(folder, manifest):
        own = [message for message in messages if message.envelope.sender == name]
        to = {message.envelope.receiver for message in own}
        digest = None
        if own and to in ({""}, receivers):
            digest = hashlib.sha256(b"".join(message.sha256 for message in own)).digest()
        heard = {message.envelope.sender for message in messages}
        yield place, _Exchange(digest, digest is not None and senders <= heard)


def _tree_exchanges(
    folder: Path, manifest: Manifest, name: str
) -> Iterator[tuple[Place, _Exchange]]:
    """Sums along a tree: exchanges upwards, which nodes record, each followed by one downwards.

    What is recorded is the node's own row: what it passes on, less what it got from its children.
    """
    tree = TreePlace.of(manifest, name)
    before: tuple[Place, list[WireMessage]] | None = None
    for (tick, index), down in _grouped(folder, manifest):
        if before is None or before[0] != (tick, index - 1):
            before = (tick, index), down
            continue
        (place, up), before = before, None
        below = [_from(up, child) for child in tree.children]
        above = [] if tree.parent is None else [_from(down, tree.parent)]
        sums = _from(down if tree.parent is None else up, name)
        if sums is None or not all([*below, *above]):
            yield place, _Exchange(None, False)
            continue
        own = [
            wrapped(rows.long() - sum(one[tag].long() for one in below if one is not None))
            for tag, rows in sums.items()
        ]
        yield place, _Exchange(hashlib.sha256(raw_bytes(torch.stack(own))).digest(), True)


def _from(messages: Sequence[WireMessage], sender: str) -> dict[str, Tensor] | None:
    """The tensors of the first message of a sender."""
    found = (parse_tensors(one.frame) for one in messages if one.envelope.sender == sender)
    return next(found, None)


def _grouped(folder: Path, manifest: Manifest) -> Iterator[tuple[Place, list[WireMessage]]]:
    """The messages under a roster by exchange."""
    for place, messages in groupby(_messages(folder, manifest), _place_of):
        yield place, list(messages)


def _messages(folder: Path, manifest: Manifest) -> Iterator[WireMessage]:
    number = manifest.number
    return (one for one in read_transcript(folder) if one.envelope.exchange.generation == number)


def _place_of(message: WireMessage) -> Place:
    exchange = message.envelope.exchange
    return exchange.tick, exchange.index


def _is_complete(exchange: _Exchange | None) -> bool:
    return exchange is not None and exchange.is_complete


def unit_of(message: Message) -> float:
    """The number that the integer 1 of a masked sum stands for."""
    assert message.modulus is not None
    return message.modulus / MODULUS


def transcript_folder(folder: NodeFolder) -> Path:
    return folder.run / "transcript"


def longest_stretch(ticks: Sequence[int]) -> tuple[int, int]:
    """The first and last of the longest run of consecutive numbers; of equal ones, the latest.

    Example:
        >>> longest_stretch([1, 2, 5, 6, 7, 9])
        (5, 7)
    """
    best = begin = end = ticks[0]
    length = 0
    for tick in [*ticks[1:], -1]:
        if tick != end + 1:
            if end - begin + 1 >= length:
                best, length = begin, end - begin + 1
            begin = tick
        end = tick
    return best, best + length - 1
