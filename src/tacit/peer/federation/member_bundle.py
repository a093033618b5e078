"""The operator's answer to a request: a certificate, the manifest and the log, all of them public.

A bundle needs no secure channel, but the member must know whose it is. When it joins, it compares
the fingerprint of the authority with the operator over another channel. Later bundles must be of
the same authority and operator.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path

from tacit.core.errors import Misuse, prefix_errors
from tacit.core.storage import file_lock, read_private, write_bytes, write_text
from tacit.peer.federation.certificates import (
    OPERATOR,
    CertificateInfo,
    Credentials,
    certificate_info,
    check_authority_certificate,
    check_certificate,
    check_issued,
    load_key,
    node_public_key,
)
from tacit.peer.federation.change_log import ChangeLog
from tacit.peer.federation.folders import (
    FederationFolder,
    NodeFolder,
    check_named,
    read_file,
    write_signed_manifest,
)
from tacit.peer.federation.manifest import Manifest, parse_manifest
from tacit.peer.federation.member_request import RENEWAL
from tacit.peer.federation.signing import mask_public_key, signed_by

FORMAT = "tacit-bundle-1"
MAX_BYTES = 32 << 20
REMEDY = "Get the bundle again from the operator."


@dataclass(frozen=True)
class MemberBundle:
    """All parts as text."""

    format: str
    name: str
    certificate: str  # PEM, as the next two
    authority: str
    operator: str
    manifest: str
    signature: str  # of the manifest, hexadecimal
    log: str

    @property
    def authority_fingerprint(self) -> str:
        return certificate_info(self.authority.encode()).fingerprint


def bundle_path(folder: FederationFolder, name: str) -> Path:
    return folder.path / "bundles" / f"{name}.bundle"


def write_bundle(folder: FederationFolder, name: str) -> Path:
    """Write the bundle of a member into the operator's folder."""
    text, signature, log = folder.signed_update()
    bundle = MemberBundle(
        FORMAT,
        name,
        read_file(folder.certificate_path(name)).decode(),
        folder.ca().decode(),
        folder.operator_credentials().certificate.decode(),
        text.decode(),
        signature.hex(),
        log.decode(),
    )
    place = bundle_path(folder, name)
    place.parent.mkdir(exist_ok=True)
    write_text(place, json.dumps(asdict(bundle), indent=2) + "\n", durable=True)
    return place


def read_bundle(path: Path) -> MemberBundle:
    text = read_file(path, REMEDY)
    names = [field.name for field in fields(MemberBundle)]
    try:
        values = json.loads(text) if len(text) <= MAX_BYTES else None
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or sorted(values) != sorted(names):
        raise Misuse(f"{path} is not a bundle for a member.", REMEDY)
    if not all(isinstance(value, str) for value in values.values()):
        raise Misuse(f"{path} is not a bundle for a member.", REMEDY)
    if values["format"] != FORMAT:
        problem = f"{path} has the format {values['format']!r:.80}, not {FORMAT!r}."
        raise Misuse(problem, "Use the same version of tacit as the operator.")
    return MemberBundle(**values)


def is_joined(folder: Path) -> bool:
    """Whether a member's folder has been told which authority to trust."""
    return (folder / "ca.pem").exists()


def install_bundle(folder: Path, bundle: MemberBundle) -> CertificateInfo:
    """Check a bundle and install it. For a new member, compare the authority's fingerprint before.

    Args:
        folder: The member's folder, with its keys.
        bundle: What the operator sent.

    Raises:
        Misuse: If the bundle is for another member or key, or if it does not extend what this
            member knows.
    """
    node, is_new = NodeFolder(folder), not (folder / "node.pem").exists()
    with file_lock(folder), prefix_errors("The bundle"):
        manifest, signature = _check_operator(folder, bundle)
        key_place = _check_member(folder, bundle, manifest)
        ours = ChangeLog() if is_new else node.log()
        log = ours.updated(bundle.log.encode(), partial(signed_by, bundle.operator.encode()))
        check_named(log, manifest)
        installed = certificate_info(bundle.certificate.encode())
        if not log.accepts(bundle.name, installed.fingerprint):
            raise Misuse(f"The certificate of {bundle.name} was revoked.", REMEDY)
        is_newer = is_new or manifest.generation > node.manifest().generation
        if is_newer and not is_new:
            node.check_update(manifest.text, signature)
        write_bytes(folder / "ca.pem", bundle.authority.encode(), durable=True)
        write_bytes(folder / "operator.pem", bundle.operator.encode(), durable=True)
        write_bytes(folder / "federation.log", log.text, durable=True)
        if is_newer:
            write_signed_manifest(folder, manifest.text, signature, node.verify)
        if key_place != folder / "node.key":
            os.replace(key_place, folder / "node.key")
        # Last: with it the folder is complete.
        write_bytes(folder / "node.pem", bundle.certificate.encode(), durable=True)
    return installed


def _check_operator(folder: Path, bundle: MemberBundle) -> tuple[Manifest, bytes]:
    """The manifest and its signature; raise Misuse unless authority and operator are trusted."""
    authority, operator = bundle.authority.encode(), bundle.operator.encode()
    check_authority_certificate(authority)
    if is_joined(folder):
        if certificate_info(authority) != certificate_info(read_file(folder / "ca.pem")):
            problem = "It is of another authority than the one that this member trusts."
            raise Misuse(problem, "Ask the operator.")
        known = folder / "operator.pem"
        if known.exists() and node_public_key(known.read_bytes()) != node_public_key(operator):
            problem = "It is of another operator than the one that this member trusts."
            raise Misuse(problem, "Ask the operator.")
    try:
        signature = bytes.fromhex(bundle.signature)
    except ValueError:
        signature = b""
    if not signed_by(operator, bundle.manifest.encode(), signature):
        raise Misuse("Its manifest is not signed by its operator.", REMEDY)
    manifest = parse_manifest(bundle.manifest.encode())
    check_issued(operator, authority, OPERATOR, manifest.federation)
    return manifest, signature


def _check_member(folder: Path, bundle: MemberBundle, manifest: Manifest) -> Path:
    """The key file that the certificate is for; raise Misuse if it is not this member's."""
    name, certificate = bundle.name, bundle.certificate.encode()
    if not (folder / f"{name}.request").exists():
        asked = ", ".join(path.stem for path in folder.glob("*.request")) or "no name"
        problem = f"It is for {name!r:.80}, but the request in {folder} is for {asked}."
        raise Misuse(problem, "Get the bundle of this member.")
    mask_secret = bytes.fromhex(read_private(folder / "mask.key").decode())
    if manifest.member(name).mask_key != mask_public_key(mask_secret):
        problem = f"The mask key of {name} in the manifest is not the one in {folder}."
        raise Misuse(problem, "The operator signed another request: compare its fingerprint.")
    public = node_public_key(certificate)
    for place in (folder / RENEWAL, folder / "node.key"):
        if place.exists() and load_key(key := read_private(place)).public_key() == public:
            own = Credentials(certificate, key)
            check_certificate(own, bundle.authority.encode(), name, manifest.federation)
            return place
    problem = f"Its certificate is for none of the keys in {folder}."
    raise Misuse(problem, "The operator signed another request: compare its fingerprint.")
