"""The folders of a federation: the operator's, and the one that each node is handed.

    FOLDER/
      federation.toml, federation.sig    the manifest, and its signature by the operator's key
      ca/ca.pem, ca/ca.key               the authority; no key where the authority is somebody else's
      operator/operator.pem, operator.key
      nodes/NAME/                        all that a node needs, and no secret of another
        federation.toml, federation.sig, ca.pem, operator.pem, node.pem, node.key, mask.key
        run/                             made by the node itself

A manifest takes its place after its signature: first federation.sig gets the new signature beside the old one, then
federation.toml is replaced in one step. Whatever moment a crash picks, the text that is there has its signature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tacit.core.errors import Misuse
from tacit.core.storage import file_lock, read_private, write_bytes, write_text
from tacit.peer.federation.identity import (
    OPERATOR,
    Credentials,
    check_certificate,
    describe,
    mask_public,
    sign,
    signed_by,
    signed_by_key,
)
from tacit.peer.federation.manifest import Manifest, parse
from tacit.peer.federation.roster import Member

MOST_SIGNATURES = 4096  # bytes of the file that holds one or two of them
Verify = Callable[[bytes, bytes], bool]  # of a text and a signature


@dataclass(frozen=True)
class NodeFolder:
    """What one node has on its disk."""

    path: Path

    @property
    def name(self) -> str:
        """The node's name, which is on its certificate."""
        return describe(self.certificate()).name

    @property
    def run(self) -> Path:
        """Where the node keeps its state."""
        return self.path / "run"

    def manifest(self) -> Manifest:
        """What the federation agreed on, as the operator signed it."""
        return parse(self.signed()[0])

    def signed(self) -> tuple[bytes, bytes]:
        """The manifest's text and the operator's signature of it."""
        return read_signed(self.path, self._verify)

    def accept(self, text: bytes, signature: bytes) -> Manifest:
        """A newer manifest that we were sent, refused unless it follows ours; the same one again is no mistake."""
        if not self._verify(text, signature):
            raise Misuse(
                "The new manifest was not signed by our operator.", "Do not trust who sent it."
            )
        ours, new = self.manifest(), parse(text)
        if new.text == ours.text:
            return new
        if new.federation != ours.federation:
            raise Misuse(
                f"The new manifest is of {new.federation}, ours of {ours.federation}.", "Keep ours."
            )
        if new.generation <= ours.generation:
            raise Misuse(
                f"The new manifest is of generation {new.generation}, ours of {ours.generation}.",
                "Keep ours.",
            )
        if new.generation == ours.generation + 1 and new.previous != ours.hash.hex():
            raise Misuse(
                f"The manifest of generation {new.generation} names another before it than ours of {ours.generation}.",
                "The operator's folder was changed in two places: ask the operator which one holds.",
            )
        ours_fixed, new_fixed = (_settings(manifest) for manifest in (ours, new))
        if ours_fixed != new_fixed:
            differ = sorted(
                name
                for name in ours_fixed | new_fixed
                if ours_fixed.get(name) != new_fixed.get(name)
            )
            raise Misuse(
                f"The manifest of generation {new.generation} changes {', '.join(differ)}, not only who takes part.",
                "Make a federation of its own for another configuration.",
            )
        return new

    def install(self, text: bytes, signature: bytes) -> Manifest:
        """Accept a newer manifest and put it on the disk in place of ours."""
        with file_lock(self.path):
            accepted = self.accept(text, signature)
            write_signed(self.path, text, signature, self._verify)
        return accepted

    def certificate(self) -> bytes:
        """The node's certificate (PEM)."""
        if not (self.path / "node.key").exists() and not (self.path / "node.pem").exists():
            raise Misuse(
                f"{self.path} is not the folder of a node.",
                "Give the folder nodes/NAME that `tacit federation create` made and the operator handed out.",
            )
        remedy = "Have node.csr signed by the authority, then: tacit federation certificate FOLDER NODE FILE."
        return read_part(self.path / "node.pem", remedy)

    def credentials(self) -> Credentials:
        """The node's certificate and key, refused when the others would refuse them."""
        found = Credentials(self.certificate(), read_private(self.path / "node.key"))
        check_certificate(
            found.certificate, found.key, self.ca(), self.name, self.manifest().federation
        )
        return found

    def ca(self) -> bytes:
        """The authority's certificate (PEM)."""
        return read_part(self.path / "ca.pem")

    def operator(self) -> bytes:
        """The operator's certificate (PEM)."""
        remedy = (
            "Have operator.csr signed, then: tacit federation certificate FOLDER operator FILE."
        )
        return read_part(self.path / "operator.pem", remedy)

    def mask_secret(self) -> bytes:
        """The X25519 private key of the node, 32 bytes."""
        path, manifest = self.path / "mask.key", self.manifest()
        try:
            secret = bytes.fromhex(read_private(path).decode())
            public = mask_public(secret)
        except Misuse:
            raise
        except ValueError:
            raise Misuse(
                f"{path} does not hold 64 hexadecimal digits.", "Restore the file."
            ) from None
        if (
            manifest.position(self.name) is not None
            and manifest.member(self.name).mask_key != public
        ):
            raise Misuse(f"{path} is not the key that the manifest names.", "Restore the file.")
        return secret

    def _verify(self, text: bytes, signature: bytes) -> bool:
        return signed_by(self.operator(), text, signature)


@dataclass(frozen=True)
class FederationFolder:
    """What the operator has."""

    path: Path

    def manifest(self) -> Manifest:
        """What the federation agreed on, its signature verified."""
        return parse(self.signed()[0])

    def signed(self) -> tuple[bytes, bytes]:
        """The manifest's text and its signature."""
        return read_signed(self.path, self._verify)

    @property
    def members(self) -> tuple[Member, ...]:
        """Who takes part."""
        return self.manifest().members

    def node(self, name: str) -> NodeFolder:
        """The folder to hand out to a node; that of one who left is still there."""
        return NodeFolder(self.path / "nodes" / name)

    def nodes(self) -> list[NodeFolder]:
        """All folders of nodes, those who left included."""
        return [NodeFolder(path.parent) for path in sorted(self.path.glob("nodes/[!.]*/ca.pem"))]

    def ca(self) -> bytes:
        """The authority's certificate (PEM)."""
        return read_part(self.path / "ca" / "ca.pem")

    def authority(self) -> Credentials | None:
        """The authority with its key, or None where it is somebody else's."""
        key = self.path / "ca" / "ca.key"
        return Credentials(self.ca(), read_private(key)) if key.exists() else None

    def signer(self, given: Credentials | None) -> Credentials | None:
        """The authority to sign with: the one given, which must be this federation's, or else our own."""
        if given is not None and given.certificate != self.ca():
            raise Misuse(
                "This is not the authority of the federation.", "Give the one that ca/ca.pem is of."
            )
        return given or self.authority()

    def operator(self) -> Credentials:
        """The operator's certificate and key."""
        remedy = (
            "Have operator.csr signed, then: tacit federation certificate FOLDER operator FILE."
        )
        return Credentials(
            read_part(self.path / "operator" / "operator.pem", remedy), self.operator_key()
        )

    def operator_key(self) -> bytes:
        """The key that signs manifests (PEM)."""
        return read_private(self.path / "operator" / "operator.key")

    def publish(self, manifest: Manifest) -> None:
        """Sign a manifest, make it the one that holds, and put it into the folders of the nodes."""
        write_signed(
            self.path, manifest.text, sign(self.operator_key(), manifest.text), self._verify
        )
        self.distribute()

    def distribute(self) -> None:
        """Put the manifest that holds into the folders of nodes that have another, those who left included."""
        text, signature = read_signed(self.path, self._verify)
        for node in self.nodes():
            known = node.path / "federation.toml"
            with file_lock(node.path):  # the node itself may be installing it, if it runs here
                if not known.exists() or known.read_bytes() != text:
                    write_signed(node.path, text, signature, self._verify)

    def _verify(self, text: bytes, signature: bytes) -> bool:
        certificate = self.path / "operator" / f"{OPERATOR}.pem"
        if certificate.exists():
            return signed_by(certificate.read_bytes(), text, signature)
        return signed_by_key(
            self.operator_key(), text, signature
        )  # its certificate is still being signed


def _settings(manifest: Manifest) -> dict[str, str]:
    """Digests of what a change of the roster leaves as it is."""
    return {
        name: told for name, told in manifest.sections().items() if name not in ("roster", "graph")
    }


def read_signed(folder: Path, verify: Verify) -> tuple[bytes, bytes]:
    """The text in federation.toml and its signature, which must be among those in federation.sig."""
    # In this order: who replaces both meanwhile leaves the signature of the text that we have read.
    text = read_part(
        folder / "federation.toml", "Give a folder that `tacit federation create` made."
    )
    for signature in _signatures(folder):
        if verify(text, signature):
            return text, signature
    raise Misuse(
        f"{folder / 'federation.toml'} was not signed by the operator as it is.",
        "Restore it and federation.sig from the operator's folder.",
    )


def write_signed(folder: Path, text: bytes, signature: bytes, verify: Verify) -> None:
    """Replace text and signature such that at every moment the text that is there has its signature."""
    signatures = [signature]
    if (folder / "federation.toml").exists():
        old = (folder / "federation.toml").read_bytes()
        signatures += [known for known in _signatures(folder) if verify(old, known)][:1]
    known = "".join(f"{known.hex()}\n" for known in signatures)
    write_text(folder / "federation.sig", known, durable=True)
    write_bytes(folder / "federation.toml", text, durable=True)


def _signatures(folder: Path) -> list[bytes]:
    try:
        with (folder / "federation.sig").open("rb") as file:
            return [bytes.fromhex(line) for line in file.read(MOST_SIGNATURES).decode().split()]
    except (OSError, ValueError):  # missing or garbled: nothing is signed
        return []


def read_part(path: Path, remedy: str = "Restore it from the operator's folder.") -> bytes:
    """A file of a federation, or a refusal that says where it comes from."""
    try:
        return path.read_bytes()
    except OSError as problem:
        raise Misuse(f"Cannot read {path}: {problem.strerror}.", remedy) from None
