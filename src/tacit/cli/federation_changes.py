"""`tacit federation revoke, address, log`.

The registry of commands finds `tacit federation` here, so that it has these commands, and those
for relays, too.
"""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tacit.cli import federation_relays  # noqa: F401
from tacit.cli.federation import AnyFolder, AsJson, Edges, Folder, Later, app, split_list

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
    from tacit.cli.federation_next_steps import print_signed
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
