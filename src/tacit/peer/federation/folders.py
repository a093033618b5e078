"""The folders of a federation: the operator's, which contains one for each node.

FOLDER/
  federation.toml, federation.sig         the manifest and its signature by the operator's key
  federation.log                          all changes by the operator, signed
  ca/ca.pem, ca/ca.key                    the authority; no key if the authority is external
  operator/operator.pem, operator.key     the operator's certificate and key
  nodes/NAME/                             what the operator hands to each node:
    federation.toml, federation.sig, federation.log, ca.pem, operator.pem     copies
    node.pem, node.key, mask.key            the node's certificate and private keys; no keys if
                                            the member made them on its own machine
    run/                                    state, log and results, written by the node
  relays/NAME/                            what the operator hands to each relay:
    federation.log, ca.pem, operator.pem    copies
    relay.json, node.pem, node.key          names, certificate and private key

A new signature is stored before its text: federation.sig gets the new signature beside the old one,
then federation.toml is replaced in one step. After a crash at any moment, the text that is there
has its signature.

The operator replaces the manifest first and then adds it to the log, which any later command does
if a crash came in between. Nodes store the log first: they refuse a manifest that it does not name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tacit.core.errors import Misuse, prefix_errors
from tacit.core.storage import file_lock, read_private, write_bytes, write_text
from tacit.peer.federation.certificates import (
    OPERATOR,
    Credentials,
    certificate_info,
    check_certificate,
)
from tacit.peer.federation.change_log import ChangeLog, Verify
from tacit.peer.federation.manifest import Manifest, parse_manifest, with_addresses
from tacit.peer.federation.roster import Member
from tacit.peer.federation.signing import mask_public_key, sign, signed_by, signed_by_key

MAX_SIGNATURE_BYTES = 4096  # of federation.sig, which holds one or two signatures
SIGN_OPERATOR = "Have operator.csr signed, then: tacit federation certificate FOLDER operator FILE."
SIGN_NODE = "Have node.csr signed, then: tacit federation certificate FOLDER NODE FILE."


@dataclass(frozen=True)
class SignedFolder(ABC):
    """A folder with a signed manifest."""

    path: Path

    def manifest(self) -> Manifest:
        """The manifest, with addresses that changed since; raise Misuse if it is not signed."""
        manifest = parse_manifest(self.signed_manifest()[0])
        return with_addresses(manifest, self.log().addresses(manifest.hash))

    def log(self) -> ChangeLog:
        """The operator's changes; raise Misuse if the log is not as it was signed."""
        place = self.path / "federation.log"
        text = read_file(place)
        with prefix_errors(str(place)):
            return ChangeLog().updated(text, self.verify)

    def signed_update(self) -> tuple[bytes, bytes, bytes]:
        """The manifest, its signature and the log, as nodes send them to each other."""
        return *self.signed_manifest(), self.log().text

    def signed_manifest(self) -> tuple[bytes, bytes]:
        """The text in federation.toml and its signature; raise Misuse if there is no valid one."""
        # The text first: a process that replaces both keeps the signature of the text read here.
        place = self.path / "federation.toml"
        text = read_file(place, "Give a folder that `tacit federation create` made.")
        for signature in _read_signatures(self.path):
            if self.verify(text, signature):
                return text, signature
        problem = f"{place} is not signed by the operator."
        raise Misuse(problem, "Restore it and federation.sig from the operator's folder.")

    @abstractmethod
    def verify(self, text: bytes, signature: bytes) -> bool:
        """Whether the operator signed a text."""


class NodeFolder(SignedFolder):
    """The folder that the operator hands to one node."""

    @property
    def name(self) -> str:
        """The name on the node's certificate."""
        return certificate_info(self.certificate()).name

    @property
    def federation(self) -> str:
        """The federation's name."""
        return self.manifest().federation

    @property
    def run(self) -> Path:
        """Where the node writes state, log and results."""
        return self.path / "run"

    def check_update(self, text: bytes, signature: bytes) -> Manifest:
        """Parse a manifest from another node; raise Misuse unless it is ours or succeeds ours."""
        if not self.verify(text, signature):
            problem = "The new manifest is not signed by this federation's operator."
            raise Misuse(problem, "Do not trust its sender.")
        ours, new = self.manifest(), parse_manifest(text)
        if new.text == ours.text:
            return new
        if new.federation != ours.federation:
            problem = f"The new manifest is of {new.federation}, ours of {ours.federation}."
            raise Misuse(problem, "Keep ours.")
        if new.generation <= ours.generation:
            problem = f"The new manifest has generation {new.generation}, ours {ours.generation}."
            raise Misuse(problem, "Keep ours.")
        if new.generation == ours.generation + 1 and new.previous != ours.hash.hex():
            raise Misuse(
                f"The manifest of generation {new.generation} does not succeed ours of generation "
                f"{ours.generation}.",
                "The federation was changed in two copies of the operator's folder: "
                "check with the operator which one is valid.",
            )
        changed = {name for name, _ in ours.sections.items() ^ new.sections.items()}
        if changed := changed - {"roster", "graph"}:
            raise Misuse(
                f"The manifest of generation {new.generation} changes "
                f"{', '.join(sorted(changed))}, not only roster and graph.",
                "Create a new federation for another configuration.",
            )
        return new

    def manifest(self) -> Manifest:
        """See SignedFolder. The log must name the manifest."""
        manifest = super().manifest()
        if self.log().roster_entry(manifest.hash) is None:
            problem = f"{self.path / 'federation.log'} does not name the manifest in this folder."
            raise Misuse(problem, "Copy it from the operator's folder together with the manifest.")
        return manifest

    def update_log(self, text: bytes) -> ChangeLog:
        """Store a longer log; raise Misuse unless it extends ours. Returns the longer one."""
        with file_lock(self.path):
            ours = self.log()
            longer = ours.updated(text, self.verify)
            if longer is not ours:
                write_bytes(self.path / "federation.log", longer.text, durable=True)
            return longer

    def install(self, text: bytes, signature: bytes, log: bytes = b"") -> None:
        """Check a newer manifest and the log that names it, and replace ours with them."""
        with file_lock(self.path):
            new, ours = self.check_update(text, signature), self.log()
            longer = ours.updated(log, self.verify)
            check_named(longer, new)
            if longer is not ours:
                write_bytes(self.path / "federation.log", longer.text, durable=True)
            write_signed_manifest(self.path, text, signature, self.verify)

    def certificate(self) -> bytes:
        """The node's certificate (PEM)."""
        if not (self.path / "node.key").exists() and not (self.path / "node.pem").exists():
            problem = f"{self.path} is not the folder of a node."
            raise Misuse(problem, "Give the folder nodes/NAME that `tacit federation create` made.")
        return read_file(self.path / "node.pem", SIGN_NODE)

    def credentials(self) -> Credentials:
        """The node's certificate and key; raise Misuse if other nodes would refuse them."""
        own = Credentials(self.certificate(), read_private(self.path / "node.key"))
        check_certificate(own, self.ca(), self.name, self.federation)
        return own

    def ca(self) -> bytes:
        """The authority's certificate (PEM)."""
        return read_file(self.path / "ca.pem")

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
        if self.name in manifest.names and manifest.member(self.name).mask_key != public:
            raise Misuse(f"{path} does not match the key in the manifest.", "Restore the file.")
        return secret

    def verify(self, text: bytes, signature: bytes) -> bool:
        return signed_by(read_file(self.path / "operator.pem", SIGN_OPERATOR), text, signature)


class FederationFolder(SignedFolder):
    """The operator's folder."""

    @property
    def members(self) -> tuple[Member, ...]:
        return self.manifest().members

    def node(self, name: str) -> NodeFolder:
        return NodeFolder(self.path / "nodes" / name)

    def nodes(self) -> list[NodeFolder]:
        """The folders of all nodes, including removed ones."""
        return [NodeFolder(path.parent) for path in sorted(self.path.glob("nodes/[!.]*/ca.pem"))]

    def relay_paths(self) -> list[Path]:
        """The folders of all relays, including removed ones."""
        return [path.parent for path in sorted(self.path.glob("relays/[!.]*/ca.pem"))]

    def certificate_path(self, name: str) -> Path:
        """The file with the certificate of a node, a relay or the operator."""
        if name == OPERATOR:
            return self.path / "operator" / "operator.pem"
        relay = self.path / "relays" / name
        if relay.exists():
            return relay / "node.pem"
        return self.node(name).path / "node.pem"

    def ca(self) -> bytes:
        """The authority's certificate (PEM)."""
        return read_file(self.path / "ca" / "ca.pem")

    def authority(self, given: Credentials | None = None) -> Credentials | None:
        """The given authority, or the one in this folder; None if it is external."""
        if given is not None and given.certificate != self.ca():
            problem = "This is not the authority of the federation."
            raise Misuse(problem, "Give the key that belongs to ca/ca.pem.")
        key = self.path / "ca" / "ca.key"
        return given or (Credentials(self.ca(), read_private(key)) if key.exists() else None)

    def operator_credentials(self) -> Credentials:
        certificate = read_file(self.certificate_path(OPERATOR), SIGN_OPERATOR)
        return Credentials(certificate, self.operator_key())

    def operator_key(self) -> bytes:
        """The key that signs manifests (PEM)."""
        return read_private(self.path / "operator" / "operator.key")

    def log(self) -> ChangeLog:
        """See SignedFolder; empty before the first manifest is published."""
        return super().log() if (self.path / "federation.log").exists() else ChangeLog()

    def record(self, *changes: tuple[str, Mapping[str, Any]]) -> None:
        """Add changes, each with its kind, to the log, and copy it to the folders of the nodes."""
        log = self.log()
        for kind, change in changes:
            log = log.appended(kind, change, partial(sign, self.operator_key()))
        write_bytes(self.path / "federation.log", log.text, durable=True)
        self.distribute()

    def _unrecorded(
        self, manifest: Manifest, log: ChangeLog
    ) -> list[tuple[str, Mapping[str, Any]]]:
        """The manifest and all certificates, if the log does not have them yet."""
        found: list[tuple[str, Mapping[str, Any]]] = []
        if log.roster_entry(manifest.hash) is None:
            change = {"generation": manifest.generation, "manifest": manifest.hash.hex()}
            found.append(("roster", change | {"members": manifest.names}))
        for name in (*manifest.names, *log.relays):
            place = self.certificate_path(name)
            if place.exists() and (certificate := place.read_bytes()) not in log.certificates(name):
                # One that cannot be used is reported when it is.
                with suppress(Misuse, UnicodeDecodeError):
                    certificate_info(certificate)
                    change = {"name": name, "certificate": certificate.decode()}
                    found.append(("certificate", change))
        return found

    def publish(self, manifest: Manifest) -> None:
        """Sign a manifest, store it, and copy it to the folders of the nodes."""
        signature = sign(self.operator_key(), manifest.text)
        write_signed_manifest(self.path, manifest.text, signature, self.verify)
        self.distribute()

    def distribute(self) -> None:
        """Copy manifest and log to all folders that have others, those of removed nodes too.

        Relays get the log only.
        """
        text, signature = self.signed_manifest()
        log = self.log()
        if unrecorded := self._unrecorded(parse_manifest(text), log):
            self.record(*unrecorded)  # which calls this function again
            return
        for path in self.relay_paths():
            with file_lock(path):
                _copy_log(log, path, self.verify)
        for node in self.nodes():
            # A node that runs on this machine may be installing the manifest itself.
            with file_lock(node.path):
                _copy_log(log, node.path, self.verify)
                known = node.path / "federation.toml"
                if not known.exists() or known.read_bytes() != text:
                    write_signed_manifest(node.path, text, signature, self.verify)

    def verify(self, text: bytes, signature: bytes) -> bool:
        certificate = self.certificate_path(OPERATOR)
        if certificate.exists():
            return signed_by(certificate.read_bytes(), text, signature)
        # An external authority has not signed the certificate yet.
        return signed_by_key(self.operator_key(), text, signature)


def write_signed_manifest(folder: Path, text: bytes, signature: bytes, verify: Verify) -> None:
    """Replace text and signature; see the module for the order."""
    signatures = [signature]
    if (folder / "federation.toml").exists():
        old = (folder / "federation.toml").read_bytes()
        signatures += [known for known in _read_signatures(folder) if verify(old, known)][:1]
    lines = "".join(f"{known.hex()}\n" for known in signatures)
    write_text(folder / "federation.sig", lines, durable=True)
    write_bytes(folder / "federation.toml", text, durable=True)


def check_named(log: ChangeLog, manifest: Manifest) -> None:
    """Raise Misuse unless the log names a manifest."""
    if log.roster_entry(manifest.hash) is None:
        raise Misuse(
            f"The operator's log does not name the manifest of generation {manifest.generation}.",
            "Get both from the operator.",
        )


def _copy_log(log: ChangeLog, folder: Path, verify: Verify) -> None:
    """Copy the operator's log to a node's folder; raise Misuse if that has a longer one."""
    place = folder / "federation.log"
    try:
        known = ChangeLog().updated(read_file(place), verify)
    except Misuse:  # missing or damaged
        known = ChangeLog()
    if known.updated(log.text, verify) is not known:
        write_bytes(place, log.text, durable=True)
    elif known.number > log.number:
        raise Misuse(
            f"{folder} has {known.number} changes, the operator's folder only {log.number}.",
            "This folder is an old copy: continue with the newest one.",
        )


def _read_signatures(folder: Path) -> list[bytes]:
    """All signatures in federation.sig; none if it is missing or damaged."""
    try:
        with (folder / "federation.sig").open("rb") as file:
            return [bytes.fromhex(line) for line in file.read(MAX_SIGNATURE_BYTES).decode().split()]
    except (OSError, ValueError):
        return []


def read_file(path: Path, remedy: str = "Restore it from the operator's folder.") -> bytes:
    """The content of a file; raise Misuse with this remedy if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as problem:
        raise Misuse(f"Cannot read {path}: {problem.strerror}.", remedy) from None
