"""What the operator does about one member: sign its requests, revoke it, change its address."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tacit.core.errors import Misuse
from tacit.core.storage import file_lock, write_bytes
from tacit.peer.federation import signing
from tacit.peer.federation.certificates import CertificateInfo, Credentials, certificate_info
from tacit.peer.federation.folders import FederationFolder
from tacit.peer.federation.manifest import with_addresses
from tacit.peer.federation.member_bundle import write_bundle
from tacit.peer.federation.member_request import MemberRequest, certify
from tacit.peer.federation.operator import existing_federation, manifest_without
from tacit.peer.federation.relay_changes import check_relay_address, record_relay
from tacit.peer.federation.roster import check_address


def sign_renewal(
    path: Path, request: MemberRequest, days: int = 365, *, authority: Credentials | None = None
) -> CertificateInfo:
    """Certify the new TLS key of a member, and write its bundle.

    Args:
        path: The operator's folder.
        request: What the member sent. Its mask key must be the one in the roster.
        days: How long the certificate is valid.
        authority: The external authority, if the federation has one.
    """
    folder = existing_federation(path)
    signing.check_days(days)
    with file_lock(path):
        folder.distribute()
        manifest, signer = folder.manifest(), folder.authority(authority)
        member = manifest.member(request.name)
        if request.federation != manifest.federation:
            wrong = request.federation or "no federation yet"
            problem = f"The request of {request.name} is for {wrong}, not {manifest.federation}."
            raise Misuse(problem, "Make it with `tacit member renew FOLDER`.")
        if request.mask_key != member.mask_key:
            raise Misuse(
                f"The request has another mask key than {request.name} has in the roster.",
                "Only the TLS key can be renewed. For a new mask key: revoke the member, and add "
                "it with a new request.",
            )
        certificate = certify(signer, request, manifest.federation, days)
        write_bytes(folder.certificate_path(request.name), certificate, durable=True)
        folder.distribute()
        write_bundle(folder, request.name)
    return certificate_info(certificate)


def revoke(
    path: Path,
    name: str,
    reason: str = "",
    *,
    keep: bool = False,
    edges: Sequence[str] | None = None,
) -> str:
    """Revoke all certificates of a member, and remove it from the roster if that is possible.

    Args:
        path: The operator's folder.
        name: A member, or a former one.
        reason: Why; all members can read it.
        keep: Keep it in the roster: the others wait until it has a new certificate.
        edges: See `remove`.

    Returns:
        Why the member stays in the roster; empty if it does not. A stolen key must be revoked
        whether or not the others can train without its owner.
    """
    folder, why = existing_federation(path), ""
    with file_lock(path):
        folder.distribute()
        manifest, log = folder.manifest(), folder.log()
        if name not in (*manifest.names, *manifest.former_members):
            manifest.position(name)  # raises
        after = None
        if keep and name in manifest.names:
            why = "its neighbours wait for its new certificate."
        elif name in manifest.names:
            try:
                after = manifest_without(manifest, name, edges)
            except Misuse as problem:
                why = f"the others cannot train without it. {problem}"
        if log.trusted_certificates(name) != []:
            folder.record(("revocation", {"name": name, "reason": reason}))
        elif after is None:
            raise Misuse(f"{name} is already revoked.", "Nothing is left to do.")
        if after is not None:
            folder.publish(after)
    return why


def change_address(path: Path, name: str, address: str) -> FederationFolder:
    """Change the address of a member or relay, without a new generation: training continues."""
    folder = existing_federation(path)
    check_address(address)
    with file_lock(path):
        folder.distribute()
        manifest = folder.manifest()
        if folder.log().relays.get(name):
            check_relay_address(folder, name, address)
            record_relay(folder, name, address)
            return folder
        if manifest.member(name).address == address:
            raise Misuse(f"{name} has this address already.", "Nothing is left to do.")
        with_addresses(manifest, {name: address})  # raises if another member has it
        folder.record(("address", {"name": name, "address": address}))
        if not (folder.node(name).path / "node.key").exists():
            write_bundle(folder, name)
    return folder
