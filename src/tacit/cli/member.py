"""`tacit member`: the keys of a member, which never leave its machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.core.errors import Misuse

app = typer.Typer(no_args_is_help=True, help="Make, certify and renew the keys of a member.")

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The member's folder.")]


@app.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
    name: Annotated[str, typer.Option(help="Name of the member.")],
    address: Annotated[
        str | None, typer.Option(help="host:port where neighbours reach its node.")
    ] = None,
    outgoing: Annotated[
        bool, typer.Option("--outgoing", help="It has no open port: others use a relay.")
    ] = False,
) -> None:
    """Make the private keys of a member, and a request for the operator."""
    from tacit.peer.federation.member_request import init_member
    from tacit.peer.federation.roster import OUTGOING

    if (address is None) != outgoing:
        problem = "Both --address and --outgoing are given." if outgoing else "No address is given."
        raise Misuse(problem, "Give --address HOST:PORT, or --outgoing for a node without a port.")
    _print_request(init_member(folder, name, address or OUTGOING))


@app.command()
def join(
    folder: Folder,
    bundle: Annotated[Path, typer.Argument(metavar="BUNDLE", help="What the operator sent.")],
    authority: Annotated[
        str | None,
        typer.Option(help="Fingerprint of the authority, as the operator told you."),
    ] = None,
) -> None:
    """Install a certificate, the manifest and the log. A running node uses them at once."""
    from tacit.peer.federation.member_bundle import install_bundle, is_joined, read_bundle

    found = read_bundle(bundle)
    if not is_joined(folder) or authority is not None:
        _confirm_authority(found.authority_fingerprint, authority)
    installed = install_bundle(folder, found)
    print(f"{installed.name}: certificate valid until {installed.not_after:%Y-%m-%d}.")
    print(f"Start the node, if it does not run:\n  tacit node {folder} --data FILE")


@app.command()
def renew(folder: Folder) -> None:
    """Make a new TLS key, and a request for the operator. The node keeps running."""
    from tacit.peer.federation.member_request import renew_member

    _print_request(renew_member(folder))


def _print_request(path: Path) -> None:
    from tacit.peer.federation.member_request import read_request

    print(
        f"Next: send {path} to the operator. No private key is in it. Compare its fingerprint\n"
        f"with the operator, by phone:\n  {read_request(path).fingerprint}\n"
        f"Then install what the operator sends:\n"
        f"  tacit member join {path.parent} BUNDLE"
    )


def _confirm_authority(found: str, expected: str | None) -> None:
    """Raise Misuse unless the authority is the one that the operator named."""
    remedy = "Ask the operator for the fingerprint over another channel, and for the bundle again."
    if expected is None:
        print(f"Fingerprint of the federation's authority:\n  {found}")
        if typer.confirm("Has the operator told you the same, by phone for example?"):
            return
        raise Misuse("The authority is not confirmed.", remedy)
    if expected.replace(":", "").replace(" ", "").lower() != found.replace(":", ""):
        raise Misuse(f"The authority in the bundle has the fingerprint {found}.", remedy)
