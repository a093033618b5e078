"""`tacit federation revoke, address, log`, and what is printed about requests of members.

The registry of commands finds `tacit federation` here, so that it has these commands, and those
for relays, too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli import federation_relays  # noqa: F401
from tacit.cli.federation import AnyFolder, AsJson, Edges, Folder, Later, app, split_list

if TYPE_CHECKING:
    from tacit.peer.federation.folders import FederationFolder
    from tacit.peer.federation.member_request import MemberRequest

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the member.")]


@app.command()
def revoke(
    folder: Folder,
    name: Name,
    reason: Annotated[str, typer.Option(help="Why; all members can read it.")] = "",
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep it in the roster: others wait for its new key.")
    ] = False,
    edges: Edges = None,
    later: Later = False,
) -> None:
    """Revoke all certificates of a member and remove it: others close their connections to it.

    It can come back with a new certificate: `add --request`, or `renew --request` after --keep.
    """
    from tacit.cli.federation_nodes import announce_manifest
    from tacit.cli.federation_tables import print_change
    from tacit.peer.federation import membership
    from tacit.peer.federation.folders import FederationFolder

    federation = FederationFolder(folder)
    before = federation.manifest()
    new_edges = None if edges is None else split_list(edges)
    why = membership.revoke(folder, name, reason, keep=keep, edges=new_edges)
    after = federation.manifest()
    if after.generation > before.generation:
        print_change(before, after)
    elif why:
        print(f"The certificates of {name} are revoked. It stays in the roster: {why}")
    announce_manifest(federation, before, later)


@app.command()
def address(
    folder: Folder,
    name: Name,
    new: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Its new address, or outgoing.")],
    later: Later = False,
) -> None:
    """Change the address of a member or relay. Training continues where it is."""
    from tacit.cli.federation_nodes import announce_manifest
    from tacit.peer.federation.folders import FederationFolder
    from tacit.peer.federation.membership import change_address

    before = FederationFolder(folder).manifest()
    federation = change_address(folder, name, new)
    announce_manifest(federation, before, later)
    print(f"If {name} moves to another machine: stop it, move its folder, and start it there.")
    print_signed(federation, [name])


@app.command()
def log(folder: AnyFolder, as_json: AsJson = False) -> None:
    """Print the operator's changes, after checking all signatures."""
    from tacit.peer.federation.folders import NodeFolder
    from tacit.peer.federation.operator import existing_federation

    is_member = (folder / "node.key").exists()
    found = (NodeFolder(folder) if is_member else existing_federation(folder)).log()
    if as_json:
        entries = [
            {
                "number": entry.number,
                "time": entry.time,
                "kind": entry.kind,
                "change": dict(entry.change),
                "digest": entry.digest,
            }
            for entry in found.entries
        ]
        print(json.dumps(entries))
        return
    for entry in found.entries:
        print(f"{entry.number:>4}  {entry.time}  {entry.digest[:12]}  {entry.describe()}")
    print(f"Head: {found.head}. Members with as many entries must have the same head.")


def read_requests(paths: Sequence[Path] | None) -> list[MemberRequest]:
    from tacit.peer.federation.member_request import read_request

    return [read_request(path) for path in paths or ()]


def print_requests(requests: Sequence[MemberRequest]) -> None:
    """The fingerprints to compare with the members."""
    for request in requests:
        print(f"{request.name}: request {request.fingerprint}, at {request.address}")
    print("Compare each fingerprint with its member, by phone, before you send the bundle.")


def print_signed(federation: FederationFolder, names: Sequence[str]) -> None:
    """What to send to members that have made their keys, and what to compare."""
    from tacit.peer.federation.certificates import certificate_info
    from tacit.peer.federation.member_bundle import bundle_path

    files = [str(path) for name in names if (path := bundle_path(federation, name)).exists()]
    if files:
        print(
            f"Next: send {', '.join(files)}\nto its member (no private key is in it), where:\n"
            "  tacit member join FOLDER BUNDLE\n"
            "A new member compares the fingerprint of the authority with you, by phone:\n"
            f"  {certificate_info(federation.ca()).fingerprint}"
        )
