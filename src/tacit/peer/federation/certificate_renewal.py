"""Renew the certificates of a federation, and install those that an external authority signed."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tacit.core.errors import Misuse, unknown_name
from tacit.core.storage import file_lock, read_private, write_bytes
from tacit.peer.federation.certificate_authority import reissue_certificate
from tacit.peer.federation.certificates import (
    OPERATOR,
    CertificateInfo,
    Credentials,
    certificate_info,
    check_certificate,
)
from tacit.peer.federation.federation_folder import FederationFolder


def install_certificate(path: Path, name: str, certificate: bytes) -> CertificateInfo:
    """Install the certificate (PEM) of a node or the operator, after checking it."""
    folder = FederationFolder(path)
    federation = folder.manifest().federation
    with file_lock(path):
        _check_names(folder, [name])
        key = read_private(_certificate_path(folder, name).with_suffix(".key"))
        check_certificate(Credentials(certificate, key), folder.ca(), name, federation)
        _write(folder, name, certificate)
    return certificate_info(certificate)


def renew(
    path: Path,
    names: Iterable[str] | None = None,
    days: int = 365,
    *,
    authority: Credentials | None = None,
) -> list[CertificateInfo]:
    """Issue new certificates for the same keys, by default for all members and the operator.

    `authority` is needed if the authority is external.
    """
    folder = FederationFolder(path)
    manifest = folder.manifest()
    names = [OPERATOR, *(member.name for member in manifest.members)] if names is None else [*names]
    _check_names(folder, names)
    signer = folder.signing_authority(authority)
    if signer is None:
        raise Misuse(
            "The authority is external: its key is not in this folder.",
            "Give the key with --ca-key, or have the .csr files signed again and install the "
            "certificates with `tacit federation certificate`.",
        )
    renewed = []
    with file_lock(path):
        for name in names:
            place = _certificate_path(folder, name)
            if not place.exists():
                raise Misuse(
                    f"There is no certificate {place} to renew.",
                    "Name only nodes that have a certificate.",
                )
            old = place.read_bytes()
            if (found := certificate_info(old).name) != name:
                raise Misuse(f"{place} belongs to {found!r}.", "Restore the file first.")
            new = reissue_certificate(signer, old, manifest.federation, days)
            _write(folder, name, new)
            renewed.append(certificate_info(new))
    return renewed


def _write(folder: FederationFolder, name: str, certificate: bytes) -> None:
    """Replace a certificate. Every node has a copy of the operator's."""
    write_bytes(_certificate_path(folder, name), certificate, durable=True)
    if name == OPERATOR:
        for node in folder.nodes():
            write_bytes(node.path / "operator.pem", certificate, durable=True)


def _certificate_path(folder: FederationFolder, name: str) -> Path:
    if name == OPERATOR:
        return folder.path / "operator" / "operator.pem"
    return folder.node(name).path / "node.pem"


def _check_names(folder: FederationFolder, names: Iterable[str]) -> None:
    known = [OPERATOR, *(member.name for member in folder.members)]
    for name in names:
        if name not in known:
            raise unknown_name(f"{name!r} is not in this federation.", name, known)
