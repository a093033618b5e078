"""`tacit federation add-relay, remove-relay`."""

from __future__ import annotations

from typing import Annotated

import typer

from tacit.cli.federation import CaKey, Days, Folder, Later, app, authority_from

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the relay.")]


@app.command("add-relay")
def add_relay(
    folder: Folder,
    name: Name,
    address: Annotated[
        str, typer.Argument(metavar="HOST:PORT", help="Where all members reach it.")
    ],
    days: Days = 365,
    ca_key: CaKey = None,
    later: Later = False,
) -> None:
    """Add a relay, through which others reach members without an open port.

    It forwards what it cannot read. Its folder is made here; training continues meanwhile.
    """
    from tacit.cli.federation_nodes import announce_manifest
    from tacit.peer.federation import relay_changes
    from tacit.peer.federation.folders import FederationFolder

    authority = authority_from(folder / "ca" / "ca.pem", ca_key)
    made = relay_changes.add_relay(folder, name, address, days=days, authority=authority)
    federation = FederationFolder(folder)
    announce_manifest(federation, federation.manifest(), later)
    if not (made.path / "node.pem").exists():
        print(
            f"Next: let the authority sign {made.path / 'node.csr'}, then install the certificate:"
            f"\n  tacit federation certificate {folder} {name} FILE"
        )
    print(
        f"Next: copy {made.path} to the relay's machine over a secure channel (it holds a private\n"
        "key), and start the relay there:\n"
        "  tacit relay RELAY-FOLDER\n"
        "Running nodes are told. Send bundles that are not installed yet again."
    )


@app.command("remove-relay")
def remove_relay(folder: Folder, name: Name, later: Later = False) -> None:
    """Remove a relay and revoke its certificate. Members use the other relays."""
    from tacit.cli.federation_next_steps import print_relay_hint
    from tacit.cli.federation_nodes import announce_manifest
    from tacit.peer.federation import relay_changes
    from tacit.peer.federation.folders import FederationFolder

    relay_changes.remove_relay(folder, name)
    federation = FederationFolder(folder)
    announce_manifest(federation, federation.manifest(), later)
    print_relay_hint(federation)
