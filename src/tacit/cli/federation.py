"""`tacit federation`: make one, change who takes part, renew certificates, look at it, try it out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

if TYPE_CHECKING:
    from tacit.peer.federation.client import FederationClient
    from tacit.peer.federation.identity import Credentials
    from tacit.peer.federation.manifest import Manifest
    from tacit.peer.federation.operator import FederationFolder

app = typer.Typer(
    no_args_is_help=True, help="Federations: create, change, renew, show, ask, try out."
)

Folder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="The operator's folder of the federation.")
]
Edges = Annotated[
    str | None,
    typer.Option(
        help="Who talks to whom, e.g. a:b,b:c; where edges are directed, the first sends to the second."
    ),
]
Days = Annotated[int, typer.Option(min=1, help="How long certificates are valid.")]
CaKey = Annotated[
    Path | None,
    typer.Option("--ca-key", help="The key of an authority of your own; it is used, not kept."),
]

Later = Annotated[
    bool,
    typer.Option("--later", help="Do not tell the nodes yet; `tacit federation announce` does."),
]


@app.command()
def create(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new or empty folder.")],
    nodes: Annotated[str, typer.Option(help="Who takes part: a=host:port,b=host:port,…")],
    name: Annotated[
        str | None, typer.Option(help="Of the federation (default: the folder's name).")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file of the experiment that is trained; see examples/."),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="Override a key, e.g. --set algorithm.lr=0.05 (repeatable)."),
    ] = None,
    graph: Annotated[
        str | None, typer.Option(help="Kind of graph, e.g. ring; short for graph.kind.")
    ] = None,
    mixing: Annotated[
        str | None, typer.Option(help="Rule of the weights; short for graph.mixing.")
    ] = None,
    edges: Edges = None,
    days: Days = 365,
    ca: Annotated[
        Path | None, typer.Option(help="The certificate of an authority of your own (PEM).")
    ] = None,
    ca_key: CaKey = None,
) -> None:
    """Make a federation: a folder with everything to hand out to each node, keys and certificates included."""
    from tacit.cli.federation_view import say_what_holds
    from tacit.config.sections import load_config, make_config
    from tacit.core.errors import Misuse
    from tacit.peer.federation import operator as federation

    if ca_key is not None and ca is None:
        raise Misuse(
            "--ca-key is given without --ca.", "Give the certificate of the authority too."
        )
    if graph is not None and edges is not None:
        raise Misuse("--graph and --edges are both given.", "Give a kind of graph, or its edges.")
    wanted = list(overrides or [])
    wanted += [f"graph.kind={json.dumps(graph)}"] if graph is not None else []
    wanted += [f"graph.mixing={json.dumps(mixing)}"] if mixing is not None else []
    wanted += (
        ['graph.kind="edges"', f"graph.edges={json.dumps(_listed(edges))}"]
        if edges is not None
        else []
    )
    plan = make_config({}, wanted) if config is None else load_config(config, wanted)
    home = federation.create(
        folder,
        name if name is not None else folder.resolve().name,
        _addresses(nodes),
        plan,
        days=days,
        authority=_authority(ca, ca_key),
        ca_certificate=None if ca is None else _read(ca),
    )
    say_what_holds(home.manifest())
    if ca is not None and ca_key is None:
        print(
            f"Next: have {home.path / 'operator' / 'operator.csr'} and {home.path / 'nodes'}/*/node.csr signed by the "
            f"authority, then put each certificate into its place:\n"
            f"  tacit federation certificate {home.path} NODE FILE"
        )
    print(
        f"Next: copy each folder in {home.path / 'nodes'} to its node, by a way that nobody else can read (it "
        "holds the node's private keys), and start it there:\n"
        "  tacit node NODE-FOLDER --data FILE"
    )


@app.command()
def add(
    folder: Folder,
    node: Annotated[str, typer.Argument(metavar="NODE=HOST:PORT", help="Who joins.")],
    edges: Edges = None,
    days: Days = 365,
    ca_key: CaKey = None,
    later: Later = False,
) -> None:
    """Let a node join: a new roster, signed, and a folder for the node. The others wait for it once they are told."""
    from tacit.cli.federation_view import say_what_changed
    from tacit.core.errors import Misuse
    from tacit.peer.federation import operator as federation

    joining = _addresses(node)
    if len(joining) != 1:
        raise Misuse(f"{node!r} names {len(joining)} nodes.", "Add one at a time.")
    home = federation.FederationFolder(folder)
    before = home.manifest()
    [(name, address)] = joining.items()
    after = federation.add(
        folder,
        name,
        address,
        edges=None if edges is None else _listed(edges),
        days=days,
        authority=_own_authority(home, ca_key),
    )
    say_what_changed(before, after)
    _announce(home, before, later)
    place = home.node(name).path
    if not (place / "node.pem").exists():
        print(
            f"Next: have {place / 'node.csr'} signed, then: tacit federation certificate {folder} {name} FILE"
        )
    print(
        f"Next: copy {place} to {name} by a way that nobody else can read, and start it there:\n"
        "  tacit node FOLDER --data FILE"
    )


@app.command()
def remove(
    folder: Folder,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Who leaves.")],
    edges: Edges = None,
    later: Later = False,
) -> None:
    """Let a node go: a new roster, signed; those who stay go on without it."""
    from tacit.cli.federation_view import say_what_changed
    from tacit.peer.federation import operator as federation

    home = federation.FederationFolder(folder)
    before = home.manifest()
    after = federation.remove(folder, node, edges=None if edges is None else _listed(edges))
    say_what_changed(before, after)
    _announce(home, before, later)


@app.command()
def renew(
    folder: Folder,
    nodes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NODE]...", help="Whose (default: all, and the operator's)."),
    ] = None,
    days: Days = 365,
    ca_key: CaKey = None,
) -> None:
    """Issue new certificates for the same keys."""
    from tacit.peer.federation import operator as federation

    home = federation.FederationFolder(folder)
    for facts in federation.renew(
        folder, nodes or None, days, authority=_own_authority(home, ca_key)
    ):
        print(f"{facts.name}: valid until {facts.not_after:%Y-%m-%d}")
    print(
        f"Next: give each node its new node.pem and operator.pem from {folder / 'nodes'}, and start it again."
    )


@app.command()
def certificate(
    folder: Folder,
    node: Annotated[
        str, typer.Argument(metavar="NODE", help="Whose certificate it is, or operator.")
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The certificate (PEM).")],
) -> None:
    """Put a certificate that your own authority signed into its place."""
    from tacit.peer.federation import operator as federation

    facts = federation.install_certificate(folder, node, _read(file))
    print(f"{facts.name}: valid until {facts.not_after:%Y-%m-%d}")
    waiting = sorted(
        path.parent for path in folder.glob("*/**/*.csr") if not path.with_suffix(".pem").exists()
    )
    if waiting:
        print(f"Still without a certificate: {', '.join(path.name for path in waiting)}")


@app.command()
def show(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The operator's folder, or the one of a node.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    picture: Annotated[
        Path | None, typer.Option(help="Also draw the graph into this file (.png, .svg, .pdf).")
    ] = None,
) -> None:
    """Show who takes part, who talks to whom, and until when certificates are valid."""
    from tacit.cli.federation_view import facts, print_facts

    manifest, shown = facts(folder)
    if picture is not None:
        from tacit.peer.federation.drawing import draw

        draw(manifest, picture)
    if as_json:
        print(json.dumps(shown))
        return
    print_facts(shown, Console())
    if picture is not None:
        print(f"Picture: {picture}")


@app.command()
def status(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The operator's folder, or the one of a node.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
    seconds: Annotated[
        float, typer.Option("--timeout", min=0.1, help="To wait for answers.")
    ] = 3.0,
) -> None:
    """Ask all nodes how they are: round, lag, loss, bytes, and for whom they wait."""
    from tacit.cli.federation_status import status_table

    enquiry, title = _enquiry(folder)
    answers = enquiry.status(seconds)
    enquiry.close()
    if as_json:
        print(json.dumps([answer.as_dict() for answer in answers]))
    else:
        Console().print(status_table(title, answers))
    if not any(answer.status is not None for answer in answers):
        raise typer.Exit(1)


@app.command()
def up(
    folder: Folder,
    data: Annotated[
        str | None,
        typer.Option(
            help="The --data of each node; {name} stands for its name, e.g. parts/{name}.npz."
        ),
    ] = None,
    save_every: Annotated[
        float, typer.Option(min=0, help="Seconds between checkpoints, at most.")
    ] = 10.0,
) -> None:
    """Run all nodes of a federation on this machine, until they have finished or Ctrl-C."""
    from tacit.cli.federation_up import bring_up
    from tacit.peer.federation.operator import FederationFolder

    bring_up(FederationFolder(folder), data, save_every)


def _enquiry(folder: Path) -> tuple[FederationClient, str]:
    """Channels to all nodes, as the operator or as a node, and a title for what they answer."""
    from tacit.peer.federation.client import FederationClient
    from tacit.peer.federation.operator import FederationFolder, NodeFolder

    if (folder / "node.key").exists():
        node = NodeFolder(folder)
        manifest, own, ca = node.manifest(), node.credentials(), node.ca()
    else:
        home = FederationFolder(folder)
        manifest, own, ca = home.manifest(), home.operator(), home.ca()
    return FederationClient(manifest, own, ca), f"{manifest.federation}, generation {manifest.generation}"


@app.command()
def announce(folder: Folder) -> None:
    """Tell the nodes that run of the newest roster, where that was left for later."""
    from tacit.peer.federation import operator as federation

    home = federation.FederationFolder(folder)
    _announce(home, home.manifest())


def _announce(home: FederationFolder, before: Manifest, later: bool = False) -> None:
    """Tell the nodes that run of the new roster; they tell each other, so that one is enough."""
    from tacit.peer.federation.client import FederationClient

    if later or not (home.path / "operator" / "operator.pem").exists():
        print(f"Nobody is told yet. When all is ready:\n  tacit federation announce {home.path}")
        return
    text, signature = home.signed()
    enquiry = FederationClient(before, home.operator(), home.ca())
    told = enquiry.announce(text, signature)
    enquiry.close()
    if heard := [name for name, problem in told.items() if not problem]:
        print(f"Told {', '.join(heard)}. Nodes pass it on.")
    else:
        print(
            "No node could be told. Those that run hear of it from the first one that is started with the new "
            "federation.toml and federation.sig of its folder in nodes/."
        )


def _addresses(text: str) -> dict[str, str]:
    """The nodes of "a=host:port,b=host:port"."""
    from tacit.core.errors import Misuse

    found: dict[str, str] = {}
    for item in _listed(text):
        name, equals, address = (part.strip() for part in item.partition("="))
        if not equals:
            raise Misuse(
                f"{item!r} is not of the form name=host:port.", "E.g. --nodes a=192.0.2.7:7400."
            )
        if name in found:
            raise Misuse(f"Two nodes have the name {name}.", "Give each a name of its own.")
        found[name] = address
    return found


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _authority(certificate: Path | None, key: Path | None) -> Credentials | None:
    from tacit.core.storage import read_private
    from tacit.peer.federation.identity import Credentials

    if certificate is None or key is None:
        return None
    return Credentials(_read(certificate), read_private(key))


def _own_authority(home: FederationFolder, key: Path | None) -> Credentials | None:
    return _authority(home.path / "ca" / "ca.pem", key)


def _read(path: Path) -> bytes:
    from tacit.peer.federation.folders import read_part

    return read_part(path, "Give the name of a file in PEM form.")
