"""The operator's folder of a federation, which contains a folder for each node.

FOLDER/
  federation.toml, federation.sig         the manifest and its signature by the operator's key
  ca/ca.pem, ca/ca.key                    the authority; no key if the authority is external
  operator/operator.pem, operator.key     the operator's certificate and key
  nodes/NAME/                             what each node gets, see `node_folder`
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tacit.core.errors import Misuse
from tacit.core.storage import file_lock, read_private
from tacit.peer.federation.certificates import Credentials
from tacit.peer.federation.keys import sign, signed_by, signed_by_key
from tacit.peer.federation.manifest import Manifest, parse_manifest
from tacit.peer.federation.manifest_files import (
    read_file,
    read_signed_manifest,
    write_signed_manifest,
)
from tacit.peer.federation.node_folder import SIGN_OPERATOR, NodeFolder
from tacit.peer.federation.roster import Member


@dataclass(frozen=True)
class FederationFolder:
    """The operator's folder."""

    path: Path

    def manifest(self) -> Manifest:
        """The manifest; raise Misuse if its signature is not valid."""
        return parse_manifest(self.signed_manifest()[0])

    def signed_manifest(self) -> tuple[bytes, bytes]:
        """The text of the manifest and its signature."""
        return read_signed_manifest(self.path, self._verify)

    @property
    def members(self) -> tuple[Member, ...]:
        return self.manifest().members

    def node(self, name: str) -> NodeFolder:
        return NodeFolder(self.path / "nodes" / name)

    def nodes(self) -> list[NodeFolder]:
        """The folders of all nodes, including removed ones."""
        return [NodeFolder(path.parent) for path in sorted(self.path.glob("nodes/[!.]*/ca.pem"))]

    def ca(self) -> bytes:
        """The authority's certificate (PEM)."""
        return read_file(self.path / "ca" / "ca.pem")

    def authority(self) -> Credentials | None:
        """The authority with its key; None if it is external."""
        key = self.path / "ca" / "ca.key"
        return Credentials(self.ca(), read_private(key)) if key.exists() else None

    def signing_authority(self, given: Credentials | None) -> Credentials | None:
        """The given authority, which must be this federation's, or the one in this folder."""
        if given is not None and given.certificate != self.ca():
            raise Misuse(
                "This is not the authority of the federation.",
                "Give the key that belongs to ca/ca.pem.",
            )
        return given or self.authority()

    def operator_credentials(self) -> Credentials:
        certificate = read_file(self.path / "operator" / "operator.pem", SIGN_OPERATOR)
        return Credentials(certificate, self.operator_key())

    def operator_key(self) -> bytes:
        """The key that signs manifests (PEM)."""
        return read_private(self.path / "operator" / "operator.key")

    def publish(self, manifest: Manifest) -> None:
        """Sign a manifest, store it, and copy it to the folders of the nodes."""
        signature = sign(self.operator_key(), manifest.text)
        write_signed_manifest(self.path, manifest.text, signature, self._verify)
        self.distribute()

    def distribute(self) -> None:
        """Copy the manifest to all folders of nodes that have another one, removed nodes too."""
        text, signature = self.signed_manifest()
        for node in self.nodes():
            known = node.path / "federation.toml"
            # A node that runs on this machine may be installing the manifest itself.
            with file_lock(node.path):
                if not known.exists() or known.read_bytes() != text:
                    write_signed_manifest(node.path, text, signature, self._verify)

    def _verify(self, text: bytes, signature: bytes) -> bool:
        certificate = self.path / "operator" / "operator.pem"
        if certificate.exists():
            return signed_by(certificate.read_bytes(), text, signature)
        # An external authority has not signed the certificate yet.
        return signed_by_key(self.operator_key(), text, signature)
