"""A federation, from the operator's side: create it, hand out the folders, keep its certificates fresh."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from tacit.config.sections import Config
from tacit.core.errors import Misuse, unknown_name
from tacit.core.storage import file_lock, read_private, write_bytes, write_private
from tacit.peer.federation.changes import add, equip, remove, write_identity
from tacit.peer.federation.folders import FederationFolder, NodeFolder
from tacit.peer.federation.graph import check_plan, first_graph
from tacit.peer.federation.identity import (
    OPERATOR,
    CertificateFacts,
    Credentials,
    check_authority,
    check_authority_certificate,
    check_certificate,
    check_days,
    describe,
    mask_public,
    new_mask_key,
    reissue,
)
from tacit.peer.federation.identity import authority as new_authority
from tacit.peer.federation.manifest import Member, compose
from tacit.peer.federation.roster import NAME, check_roster

__all__ = [
    "FederationFolder",
    "NodeFolder",
    "add",
    "cautions",
    "create",
    "install_certificate",
    "remove",
    "renew",
]


def create(
    folder: Path,
    name: str,
    nodes: Mapping[str, str],
    config: Config,
    *,
    days: int = 365,
    authority: Credentials | None = None,
    ca_certificate: bytes | None = None,
) -> FederationFolder:
    """A new federation of `nodes` (name → host:port) that trains what `config` says, in a new or empty folder.

    By default with an authority of its own. With `authority`, certificates are issued by that one, whose key is used
    and not kept. With `ca_certificate` alone, requests are written (node.csr, operator.csr) for the authority to
    sign; see `install_certificate`.
    """
    folder = Path(folder)
    if not NAME.fullmatch(name):
        raise Misuse(
            f"{name!r} cannot be the name of a federation.",
            "Use up to 32 lowercase letters, digits and hyphens, not beginning with a hyphen.",
        )
    if authority is not None:
        check_authority(authority)
        ca_certificate = authority.certificate
    elif ca_certificate is not None:
        check_authority_certificate(ca_certificate)
    check_days(days)
    # The digits keep two federations of one name apart: their certificates are for different names.
    federation = f"{name}-{secrets.token_hex(4)}"
    secret = {node: new_mask_key() for node in nodes}
    members = [
        Member(node, address, number, mask_public(secret[node]), since=1)
        for number, (node, address) in enumerate(nodes.items())
    ]
    check_roster(federation, 1, "", members, len(members))
    graph, config = first_graph(config, list(nodes))
    check_plan(config, graph)
    manifest = compose(federation, 1, "", members, graph, config)

    home = FederationFolder(folder)
    _take(folder)
    with file_lock(folder):
        for part in ("ca", "operator", "nodes"):
            (folder / part).mkdir(mode=0o700)
        if ca_certificate is None:
            authority = new_authority(federation)
            ca_certificate = authority.certificate
            write_private(folder / "ca" / "ca.key", authority.key)
        (folder / "ca" / "ca.pem").write_bytes(ca_certificate)
        write_identity(folder / "operator", OPERATOR, OPERATOR, federation, authority, days)
        for node in nodes:
            equip(home, node, secret[node], federation, authority, days)
        home.publish(manifest)
    return home


def install_certificate(folder: Path, node_name: str, certificate: bytes) -> CertificateFacts:
    """Put a certificate that the authority signed into its place, checked against key, authority and name."""
    home = FederationFolder(Path(folder))
    federation = home.manifest().federation
    with file_lock(home.path):
        _check_names(home, [node_name])
        place, file = _place(home, node_name)
        key = read_private(place / f"{file}.key")
        check_certificate(certificate, key, home.ca(), node_name, federation)
        _put(home, node_name, certificate)
    return describe(certificate)


def renew(
    folder: Path,
    names: Iterable[str] | None = None,
    days: int = 365,
    *,
    authority: Credentials | None = None,
) -> list[CertificateFacts]:
    """New certificates for the same keys, of all members and the operator unless `names` are given.

    `authority` is needed where the federation does not hold its authority's key.
    """
    home = FederationFolder(Path(folder))
    manifest = home.manifest()
    names = (
        [OPERATOR, *(member.name for member in manifest.members)] if names is None else list(names)
    )
    _check_names(home, names)
    signer = home.signer(authority)
    if signer is None:
        raise Misuse(
            "The authority is somebody else's: its key is not in this folder.",
            "Give it with --ca-key, or have the .csr files signed again and install what comes back.",
        )
    renewed = []
    with file_lock(home.path):
        for name in names:
            place, file = _place(home, name)
            if not (place / f"{file}.pem").exists():
                raise Misuse(
                    f"There is no certificate {place / file}.pem to renew.",
                    "Name those whose certificates are here.",
                )
            old = (place / f"{file}.pem").read_bytes()
            if describe(old).name != name:
                raise Misuse(
                    f"{place / file}.pem is of {describe(old).name!r}.", "Restore the file first."
                )
            new = reissue(signer, old, name, manifest.federation, days)
            _put(home, name, new)
            renewed.append(describe(new))
    return renewed


def cautions(folder: FederationFolder | NodeFolder) -> list[str]:
    """What the algorithm says one should know before it runs on this graph."""
    manifest = folder.manifest()
    return check_plan(manifest.config, manifest.graph)


def _put(home: FederationFolder, name: str, certificate: bytes) -> None:
    """A certificate into its place; every node has the operator's."""
    place, file = _place(home, name)
    write_bytes(place / f"{file}.pem", certificate, durable=True)
    if name == OPERATOR:
        for node in home.nodes():
            write_bytes(node.path / "operator.pem", certificate, durable=True)


def _place(home: FederationFolder, name: str) -> tuple[Path, str]:
    """The folder of who has this name, and what its files are called there."""
    return (
        (home.path / "operator", OPERATOR) if name == OPERATOR else (home.node(name).path, "node")
    )


def _check_names(home: FederationFolder, names: Iterable[str]) -> None:
    known = [OPERATOR, *(member.name for member in home.members)]
    for name in names:
        if name not in known:
            raise unknown_name(f"{name!r} is not in this federation.", name, known)


def _take(folder: Path) -> None:
    """Take possession of a new or empty folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = any(folder.iterdir())
    except OSError as problem:
        raise Misuse(f"Cannot make the folder {folder}: {problem}.", "Choose another.") from None
    if taken:
        raise Misuse(
            f"The folder {folder} is not empty.", "Choose another: nothing is ever overwritten."
        )
