"""The folder of one node: the manifest and the node's own keys and certificates.

nodes/NAME/
  federation.toml, federation.sig   the manifest and its signature
  ca.pem, operator.pem              certificates of the authority and the operator
  node.pem, node.key, mask.key      the node's certificate and private keys
  run/                              state, log and results, written by the node
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tacit.core.errors import Misuse
from tacit.core.storage import file_lock, read_private
from tacit.peer.federation.certificates import Credentials, certificate_info, check_certificate
from tacit.peer.federation.keys import mask_public_key, signed_by
from tacit.peer.federation.manifest import Manifest, parse_manifest
from tacit.peer.federation.manifest_files import (
    read_file,
    read_signed_manifest,
    write_signed_manifest,
)

SIGN_OPERATOR = "Have operator.csr signed, then: tacit federation certificate FOLDER operator FILE."
SIGN_NODE = "Have node.csr signed, then: tacit federation certificate FOLDER NODE FILE."


@dataclass(frozen=True)
class NodeFolder:
    """The folder that the operator hands to one node."""

    path: Path

    @property
    def name(self) -> str:
        """The name on the node's certificate."""
        return certificate_info(self.certificate()).name

    @property
    def run(self) -> Path:
        """Where the node writes state, log and results."""
        return self.path / "run"

    def manifest(self) -> Manifest:
        """The manifest; raise Misuse if the operator's signature is not valid."""
        return parse_manifest(self.signed_manifest()[0])

    def signed_manifest(self) -> tuple[bytes, bytes]:
        """The text of the manifest and its signature."""
        return read_signed_manifest(self.path, self._verify)

    def check_update(self, text: bytes, signature: bytes) -> Manifest:
        """Parse a manifest from another node; raise Misuse unless it is ours or succeeds ours."""
        if not self._verify(text, signature):
            raise Misuse(
                "The new manifest is not signed by this federation's operator.",
                "Do not trust its sender.",
            )
        ours, new = self.manifest(), parse_manifest(text)
        if new.text == ours.text:
            return new
        if new.federation != ours.federation:
            raise Misuse(
                f"The new manifest is of {new.federation}, ours of {ours.federation}.", "Keep ours."
            )
        if new.generation <= ours.generation:
            raise Misuse(
                f"The new manifest has generation {new.generation}, ours {ours.generation}.",
                "Keep ours.",
            )
        if new.generation == ours.generation + 1 and new.previous != ours.hash.hex():
            raise Misuse(
                f"The manifest of generation {new.generation} does not succeed ours of generation "
                f"{ours.generation}.",
                "The federation was changed in two copies of the operator's folder: "
                "check with the operator which one is valid.",
            )
        before, after = ours.sections(), new.sections()
        changed = {name for name in before | after if before.get(name) != after.get(name)}
        if changed := changed - {"roster", "graph"}:
            raise Misuse(
                f"The manifest of generation {new.generation} changes "
                f"{', '.join(sorted(changed))}, not only roster and graph.",
                "Create a new federation for another configuration.",
            )
        return new

    def install(self, text: bytes, signature: bytes) -> Manifest:
        """Check a newer manifest and replace ours with it."""
        with file_lock(self.path):
            manifest = self.check_update(text, signature)
            write_signed_manifest(self.path, text, signature, self._verify)
        return manifest

    def certificate(self) -> bytes:
        """The node's certificate (PEM)."""
        if not (self.path / "node.key").exists() and not (self.path / "node.pem").exists():
            raise Misuse(
                f"{self.path} is not the folder of a node.",
                "Give the folder nodes/NAME that `tacit federation create` made.",
            )
        return read_file(self.path / "node.pem", SIGN_NODE)

    def credentials(self) -> Credentials:
        """The node's certificate and key; raise Misuse if other nodes would refuse them."""
        own = Credentials(self.certificate(), read_private(self.path / "node.key"))
        check_certificate(own, self.ca(), self.name, self.manifest().federation)
        return own

    def ca(self) -> bytes:
        """The authority's certificate (PEM)."""
        return read_file(self.path / "ca.pem")

    def operator_certificate(self) -> bytes:
        return read_file(self.path / "operator.pem", SIGN_OPERATOR)

    def mask_secret(self) -> bytes:
        """The X25519 private key of the node, 32 bytes."""
        path, manifest = self.path / "mask.key", self.manifest()
        content = read_private(path)
        try:
            secret = bytes.fromhex(content.decode())
            public = mask_public_key(secret)
        except ValueError:
            raise Misuse(
                f"{path} does not hold 64 hexadecimal digits.", "Restore the file."
            ) from None
        is_member = manifest.position(self.name) is not None
        if is_member and manifest.member(self.name).mask_key != public:
            raise Misuse(f"{path} does not match the key in the manifest.", "Restore the file.")
        return secret

    def _verify(self, text: bytes, signature: bytes) -> bool:
        return signed_by(self.operator_certificate(), text, signature)
