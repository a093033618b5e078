"""Keys that a member makes on its own machine, and the request to certify their public parts.

A request is one JSON object. It is signed with the TLS key that it asks to certify, which proves
that the sender has that key and made the rest of the request. An X25519 key cannot sign: a member
with another's public mask key could not compute the masks that it shares with its neighbours.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tacit.core.errors import Misuse
from tacit.core.storage import read_private, write_private, write_text
from tacit.peer.federation import signing
from tacit.peer.federation.certificates import Credentials, load_key
from tacit.peer.federation.folders import NodeFolder, read_file
from tacit.peer.federation.roster import check_address, check_name

FORMAT = "tacit-request-1"
KEYS = ("format", "name", "federation", "address", "public_key", "mask_key", "time")
MAX_BYTES = 1 << 14
REMEDY = "Give the file NAME.request as the member sent it."
RENEWAL = Path("renewal") / "node.key"  # the next TLS key, until its certificate is installed


@dataclass(frozen=True)
class MemberRequest:
    """What a member asks the operator to certify."""

    name: str
    federation: str  # "" if the member does not belong to one yet
    address: str
    public_key: ec.EllipticCurvePublicKey
    mask_key: bytes  # X25519 public key
    signed_text: bytes

    @property
    def fingerprint(self) -> str:
        """What member and operator compare, to be sure that it was not replaced on its way."""
        return hashlib.sha256(self.signed_text).digest()[:16].hex(":")


def init_member(folder: Path, name: str, address: str) -> Path:
    """Make the keys of a new member in a new folder; return the file with its request."""
    check_name(name)
    check_address(address)
    try:
        folder.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise Misuse(f"{folder} exists already.", "Give a new folder.") from None
    except OSError as problem:
        raise Misuse(f"Cannot make the folder {folder}: {problem}.", "Choose another.") from None
    key, mask_key = signing.generate_key(), signing.generate_mask_key()
    write_private(folder / "node.key", key)
    write_private(folder / "mask.key", f"{mask_key.hex()}\n".encode())
    return _write_request(folder, key, name, "", address, signing.mask_public_key(mask_key))


def renew_member(folder: Path) -> Path:
    """Make a new TLS key for a member; return the file with its request.

    The node uses its old key until the new certificate is installed. A second call repeats the
    request for the same new key.
    """
    node = NodeFolder(folder)
    manifest, mask_key = node.manifest(), signing.mask_public_key(node.mask_secret())
    member = manifest.member(node.name)
    place = folder / RENEWAL
    place.parent.mkdir(mode=0o700, exist_ok=True)
    if not place.exists():
        write_private(place, signing.generate_key())
    key = read_private(place)
    return _write_request(folder, key, member.name, manifest.federation, member.address, mask_key)


def read_request(path: Path) -> MemberRequest:
    """The request in a file; raise Misuse unless it was signed with the key that it holds."""
    text = read_file(path, REMEDY)
    problem = Misuse(f"{path} is not the request of a member.", REMEDY)
    try:
        values = json.loads(text) if len(text) <= MAX_BYTES else None
        if not isinstance(values, dict) or set(values) != {*KEYS, "signature"}:
            raise problem
        if not all(isinstance(value, str) for value in values.values()):
            raise problem
        signature, mask_key = bytes.fromhex(values["signature"]), bytes.fromhex(values["mask_key"])
        public = serialization.load_pem_public_key(values["public_key"].encode())
    except (ValueError, RecursionError, UnsupportedAlgorithm):
        raise problem from None
    if values["format"] != FORMAT:
        raise Misuse(
            f"{path} has the format {values['format']!r:.80}, not {FORMAT!r}.",
            "Use the same version of tacit as the member.",
        )
    if not isinstance(public, ec.EllipticCurvePublicKey) or len(mask_key) != 32:
        raise problem
    if not isinstance(public.curve, ec.SECP256R1):
        raise Misuse(f"The key in {path} is not on P-256.", "Make it with `tacit member init`.")
    signed = _signed_text(values)
    if not signing.is_signed(public, signed, signature):
        raise Misuse(
            f"{path} is not signed with the key that it holds: it was changed, or its sender does "
            "not have the key.",
            "Ask the member for it again, and compare the fingerprint.",
        )
    check_name(values["name"])
    check_address(values["address"])
    return MemberRequest(
        values["name"], values["federation"], values["address"], public, mask_key, signed
    )


def certify(
    authority: Credentials | None, request: MemberRequest, federation: str, days: int
) -> bytes:
    """The certificate (PEM) for the key in a request."""
    if authority is None:
        problem = "Requests of members can be signed only with the key of the authority."
        raise Misuse(problem, "Give it with --ca-key.")
    return signing.issue_certificate(authority, request.public_key, request.name, federation, days)


def _write_request(
    folder: Path, key: bytes, name: str, federation: str, address: str, mask_key: bytes
) -> Path:
    public = load_key(key).public_key()
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    values = {
        "format": FORMAT,
        "name": name,
        "federation": federation,
        "address": address,
        "public_key": pem.decode(),
        "mask_key": mask_key.hex(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    signature = signing.sign(key, _signed_text(values))
    path = folder / f"{name}.request"
    write_text(path, json.dumps(values | {"signature": signature.hex()}, indent=2) + "\n")
    return path


def _signed_text(values: dict[str, str]) -> bytes:
    """The text that is signed: all but the signature, in one form."""
    return json.dumps({key: values[key] for key in KEYS}, separators=(",", ":")).encode()
