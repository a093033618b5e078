"""What an operator does next: requests to compare, bundles to send, relays to add."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tacit.peer.federation.certificates import certificate_info
from tacit.peer.federation.folders import FederationFolder
from tacit.peer.federation.member_bundle import bundle_path
from tacit.peer.federation.member_request import MemberRequest, read_request
from tacit.peer.federation.roster import OUTGOING


def read_requests(paths: Sequence[Path] | None) -> list[MemberRequest]:
    return [read_request(path) for path in paths or ()]


def print_requests(requests: Sequence[MemberRequest]) -> None:
    """The fingerprints to compare with the members."""
    for request in requests:
        print(f"{request.name}: request {request.fingerprint}, at {request.address}")
    print("Compare each fingerprint with its member, by phone, before you send the bundle.")


def print_signed(federation: FederationFolder, names: Sequence[str]) -> None:
    """What to send to members that have made their keys, and what to compare."""
    files = [str(path) for name in names if (path := bundle_path(federation, name)).exists()]
    if files:
        print(
            f"Next: send {', '.join(files)}\nto its member (no private key is in it), where:\n"
            "  tacit member join FOLDER BUNDLE\n"
            "A new member compares the fingerprint of the authority with you, by phone:\n"
            f"  {certificate_info(federation.ca()).fingerprint}"
        )


def print_relay_hint(federation: FederationFolder) -> None:
    """What to do if members can only be reached through a relay, and there is none."""
    names = [member.name for member in federation.members if member.address == OUTGOING]
    if names and not any(federation.log().relays.values()):
        print(
            f"No one can connect to {', '.join(names)} without a relay. Add one:\n"
            f"  tacit federation add-relay {federation.path} NAME HOST:PORT"
        )
