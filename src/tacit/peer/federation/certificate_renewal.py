"""Renew the certificates of a federation, and install those that an external authority signed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tacit.core.errors import Misuse, unknown_name
from tacit.core.storage import file_lock, read_private, write_bytes
from tacit.peer.federation.certificates import (
    OPERATOR,
    CertificateInfo,
    Credentials,
    certificate_info,
    check_certificate,
    node_public_key,
)
from tacit.peer.federation.folders import FederationFolder
from tacit.peer.federation.manifest import Manifest
from tacit.peer.federation.signing import issue_certificate


def install_certificate(path: Path, name: str, certificate: bytes) -> CertificateInfo:
    """Install the certificate (PEM) of a node or the operator, after checking it."""
    folder = FederationFolder(path)
    manifest = folder.manifest()
    _check_names(folder, manifest, [name])
    with file_lock(path):
        key = read_private(folder.certificate_path(name).with_suffix(".key"))
        check_certificate(Credentials(certificate, key), folder.ca(), name, manifest.federation)
        _write(folder, name, certificate)
        folder.distribute()
    return certificate_info(certificate)


def renew(
    path: Path,
    names: Iterable[str] | None = None,
    days: int = 365,
    *,
    authority: Credentials | None = None,
) -> list[CertificateInfo]:
    """Issue new certificates for the same keys, by default for members, relays and operator.

    `authority` is needed if the authority is external.
    """
    folder = FederationFolder(path)
    manifest = folder.manifest()
    names = _known_names(folder, manifest) if names is None else [*names]
    _check_names(folder, manifest, names)
    signer = folder.authority(authority)
    if signer is None:
        raise Misuse(
            "The authority is external: its key is not in this folder.",
            "Give the key with --ca-key, or have the .csr files signed again and install the "
            "certificates with `tacit federation certificate`.",
        )
    renewed = []
    with file_lock(path):
        for name in names:
            place = folder.certificate_path(name)
            if not place.exists():
                problem = f"There is no certificate {place} to renew."
                raise Misuse(problem, "Name only nodes that have a certificate.")
            old = place.read_bytes()
            if (found := certificate_info(old).name) != name:
                raise Misuse(f"{place} belongs to {found!r}.", "Restore the file first.")
            public = node_public_key(old)
            new = issue_certificate(signer, public, name, manifest.federation, days)
            _write(folder, name, new)
            renewed.append(certificate_info(new))
        folder.distribute()
    return renewed


def _write(folder: FederationFolder, name: str, certificate: bytes) -> None:
    """Replace a certificate. Nodes and relays have a copy of the operator's."""
    write_bytes(folder.certificate_path(name), certificate, durable=True)
    if name == OPERATOR:
        for path in [*(node.path for node in folder.nodes()), *folder.relay_paths()]:
            write_bytes(path / "operator.pem", certificate, durable=True)


def _known_names(folder: FederationFolder, manifest: Manifest) -> list[str]:
    relays = [name for name, address in folder.log().relays.items() if address]
    return [OPERATOR, *manifest.names, *relays]


def _check_names(folder: FederationFolder, manifest: Manifest, names: Iterable[str]) -> None:
    known = _known_names(folder, manifest)
    for name in names:
        if name not in known:
            raise unknown_name(f"{name!r} is not in this federation.", name, known)
