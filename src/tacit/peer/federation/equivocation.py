"""Proofs that a member has sent different messages under one address.

A member signs, with the key of its certificate, lists of the digests of what it has sent. Its
*address* of a message is federation, generation, salt and exchange. An honest member sends one
message per address: it records each before it sends it, and draws a new salt whenever it starts
over. So two signed lists with different digests for one address prove that it lied, to anyone who
has the certificate of the federation's authority. One list proves nothing, and no one but the
member can make a second.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from google.protobuf.message import DecodeError

from tacit.core.errors import Misuse
from tacit.peer.federation.absence import roster_name
from tacit.peer.federation.certificates import (
    Credentials,
    certificate_info,
    certified_name,
    issuers_of,
    load_certificate,
)
from tacit.peer.federation.signing import sign, signed_by
from tacit.peer.wire import wire_pb2 as wire

# Before what is signed: the key signs TLS handshakes too.
PURPOSE = b"tacit digests of messages 1\0"
FORMAT = "tacit-equivocation-1"
DIGEST_BYTES = 32
MAX_SENT = 4096  # digests in one list
MAX_CERTIFICATE_BYTES = 1 << 14
REMEDY = "Do not trust it."

Exchange = tuple[int, int]  # tick and index


@dataclass(frozen=True)
class Sender:
    """Who sent something, and under which keys: one message per exchange."""

    federation: str
    generation: int
    name: str
    salt: bytes


@dataclass(frozen=True, eq=False)
class DigestList:
    """What a member says it has sent in the ticks (after, last], signed."""

    sender: Sender
    after: int
    last: int
    digests: Mapping[Exchange, bytes]
    signed: wire.SignedDigestList

    def conflict(self, other: DigestList) -> Exchange | None:
        """The first exchange for which two lists of one sender have different digests."""
        if self.sender != other.sender:
            return None
        both = sorted(self.digests.keys() & other.digests.keys())
        return next((one for one in both if self.digests[one] != other.digests[one]), None)


def sign_list(
    sender: Sender, after: int, last: int, digests: Mapping[Exchange, bytes], own: Credentials
) -> DigestList:
    """A list of what the owner of these credentials has sent."""
    sent = [
        wire.SentDigest(tick=tick, index=index, digest=digest)
        for (tick, index), digest in sorted(digests.items())
    ]
    text = wire.DigestList(
        federation=sender.federation,
        generation=sender.generation,
        sender=sender.name,
        salt=sender.salt,
        after=after,
        last=last,
        sent=sent,
    ).SerializeToString()
    signature = sign(own.key, PURPOSE + text)
    signed = wire.SignedDigestList(list=text, signature=signature, certificate=own.certificate)
    return DigestList(sender, after, last, dict(digests), signed)


def verify_list(signed: wire.SignedDigestList, ca: bytes) -> DigestList:
    """Parse and verify a list. Raises Misuse if the named sender has not signed it.

    `ca` is the PEM text of one or more authorities. A certificate that has expired since is fine.
    """
    try:
        found = wire.DigestList.FromString(signed.list)
    except DecodeError:
        raise Misuse("This is not a list of digests.", REMEDY) from None
    exchanges = [(one.tick, one.index) for one in found.sent]
    if (
        len(exchanges) > MAX_SENT
        or len(signed.certificate) > MAX_CERTIFICATE_BYTES
        or exchanges != sorted(set(exchanges))
        or any(len(one.digest) != DIGEST_BYTES for one in found.sent)
        or any(not found.after < tick <= found.last for tick, _ in exchanges)
    ):
        raise Misuse("This list of digests is malformed.", REMEDY)
    if _certified(signed.certificate, ca, found.federation) != found.sender:
        problem = f"The certificate with this list of digests is not that of {found.sender!r:.80}."
        raise Misuse(problem, REMEDY)
    if not signed_by(signed.certificate, PURPOSE + signed.list, signed.signature):
        raise Misuse(f"{found.sender!r:.80} has not signed this list of digests.", REMEDY)
    sender = Sender(found.federation, found.generation, found.sender, found.salt)
    digests = dict(zip(exchanges, (one.digest for one in found.sent), strict=True))
    return DigestList(sender, found.after, found.last, digests, signed)


@dataclass(frozen=True, eq=False)
class Proof:
    """Two lists of one member that contradict each other."""

    lists: tuple[DigestList, DigestList]
    exchange: Exchange

    @classmethod
    def of(cls, one: DigestList, other: DigestList) -> Proof:
        """Raises Misuse if the lists do not contradict each other."""
        exchange = one.conflict(other)
        if exchange is None:
            raise Misuse("The two lists of digests do not contradict each other.", REMEDY)
        return cls((one, other), exchange)

    @property
    def name(self) -> str:
        """The member that lied."""
        return self.lists[0].sender.name

    @property
    def statement(self) -> str:
        sender, (tick, _) = self.lists[0].sender, self.exchange
        return (
            f"{sender.name} has signed two different messages of iteration {tick} of "
            f"{sender.federation}, {roster_name(sender.generation)}"
        )

    def to_json(self) -> str:
        def plain(one: DigestList) -> dict[str, str]:
            return {
                "digest": one.digests[self.exchange].hex(),
                "list": base64.b64encode(one.signed.list).decode(),
                "signature": base64.b64encode(one.signed.signature).decode(),
                "certificate": load_certificate(one.signed.certificate)
                .public_bytes(serialization.Encoding.PEM)
                .decode("ascii"),
            }

        sender, (tick, index) = self.lists[0].sender, self.exchange
        values = {
            "format": FORMAT,
            "statement": self.statement,
            "federation": sender.federation,
            "generation": sender.generation,
            "member": sender.name,
            "exchange": {"tick": tick, "index": index},
            "lists": [plain(one) for one in self.lists],
        }
        return json.dumps(values, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, ca: bytes) -> Proof:
        """Read and check a proof; only what is signed counts. Raises Misuse if it proves nothing.

        `ca` is the PEM text of the federation's authority.
        """
        try:
            values = json.loads(text)
            if values["format"] != FORMAT:
                raise ValueError
            one, other = (_from_plain(each) for each in values["lists"])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise Misuse("This is not a proof that a member lied.", REMEDY) from None
        return cls.of(verify_list(one, ca), verify_list(other, ca))


def read_proof(path: Path, ca: bytes) -> Proof:
    """Read and check a proof in a file; raises Misuse if it proves nothing."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise Misuse(f"{path} cannot be read: {problem}.", "Give a file of run/evidence.") from None
    return Proof.from_json(text, ca)


def _from_plain(values: dict[str, Any]) -> wire.SignedDigestList:
    return wire.SignedDigestList(
        list=base64.b64decode(values["list"], validate=True),
        signature=base64.b64decode(values["signature"], validate=True),
        certificate=values["certificate"].encode("ascii"),
    )


@lru_cache(maxsize=1024)
def _certified(certificate: bytes, ca: bytes, federation: str) -> str | None:
    """The name in a federation that a certificate of one of the authorities proves."""
    if any(issuers_of(load_certificate(certificate), ca)):
        return certified_name(certificate_info(certificate), federation)
    return None
