"""What the operator does about relays: add and remove them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tacit.core.errors import Misuse
from tacit.core.storage import file_lock, write_json
from tacit.peer.federation import signing
from tacit.peer.federation.certificates import OPERATOR, Credentials
from tacit.peer.federation.folders import FederationFolder
from tacit.peer.federation.member_bundle import bundle_path, write_bundle
from tacit.peer.federation.operator import existing_federation, write_credentials
from tacit.peer.federation.relays import NAMES, RelayFolder
from tacit.peer.federation.roster import check_host_and_port, check_name


def add_relay(
    path: Path,
    name: str,
    address: str,
    *,
    days: int = 365,
    authority: Credentials | None = None,
) -> RelayFolder:
    """Make the folder of a relay, and tell all members where it is.

    Args:
        path: The operator's folder.
        name: Name of the relay; no member may have it, now or later.
        address: host:port where members reach it.
        days: How long its certificate is valid.
        authority: The external authority, if the federation has one. Without it, a certificate
            request is written.
    """
    folder = existing_federation(path)
    check_name(name)
    signing.check_days(days)
    with file_lock(path):
        folder.distribute()
        manifest, known = folder.manifest(), folder.log().relays
        if name in (*manifest.names, *manifest.former_members, *known):
            problem = f"{name} is or was the name of a member or relay."
            raise Misuse(problem, "Choose another name.")
        check_relay_address(folder, name, address)
        place = path / "relays" / name
        part = place.with_name(f".{name}.new")
        # A crash may have left one of them. It was never handed out.
        for left in (part, place):
            shutil.rmtree(left, ignore_errors=True)
        part.mkdir(mode=0o700, parents=True)
        signer = folder.authority(authority)
        write_credentials(part / "node", name, manifest.federation, signer, days)
        write_json(part / NAMES, {"name": name, "federation": manifest.federation})
        (part / "ca.pem").write_bytes(folder.ca())
        operator = folder.certificate_path(OPERATOR)
        if operator.exists():
            (part / "operator.pem").write_bytes(operator.read_bytes())
        os.rename(part, place)
        record_relay(folder, name, address)
    return RelayFolder(place)


def remove_relay(path: Path, name: str) -> None:
    """Remove a relay and revoke its certificates; its name cannot be used again."""
    folder = existing_federation(path)
    with file_lock(path):
        folder.distribute()
        if not folder.log().relays.get(name):
            problem = f"There is no relay {name}."
            raise Misuse(problem, "See the relays: tacit federation show FOLDER.")
        folder.record(("revocation", {"name": name, "reason": "relay removed"}))
        record_relay(folder, name, "")


def record_relay(folder: FederationFolder, name: str, address: str) -> None:
    """Add the address of a relay to the log, and to bundles that members may not have got yet.

    A member whose neighbours are all behind relays could not get the log from them.
    """
    folder.record(("relay", {"name": name, "address": address}))
    for member in folder.manifest().names:
        if bundle_path(folder, member).exists():
            write_bundle(folder, member)


def check_relay_address(folder: FederationFolder, name: str, address: str) -> None:
    """Raise Misuse unless a relay can have this address."""
    check_host_and_port(address)
    members = {member.address.lower(): member.name for member in folder.manifest().members}
    relays = {at.lower(): other for other, at in folder.log().relays.items() if other != name}
    if other := (members | relays).get(address.lower()):
        raise Misuse(f"{other} has the address {address}.", "Give the relay an address of its own.")
    if folder.log().relays.get(name) == address:
        raise Misuse(f"{name} has this address already.", "Nothing is left to do.")
