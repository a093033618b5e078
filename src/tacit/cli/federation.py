"""`tacit federation`: create a federation, change it, renew certificates, inspect it, run it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tacit.cli.arguments import AllowCode, Overrides, TranscriptSize
from tacit.core.errors import Misuse

if TYPE_CHECKING:
    from tacit.peer.federation.certificates import Credentials

app = typer.Typer(no_args_is_help=True, help="Create, change, inspect and run federations.")

Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The operator's folder.")]
AnyFolder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="The operator's folder, or that of a node.")
]
Edges = Annotated[str | None, typer.Option(help="Edges, e.g. a:b,b:c (directed: a sends to b).")]
Days = Annotated[int, typer.Option(min=1, help="Days for which certificates are valid.")]
CaKey = Annotated[Path | None, typer.Option(help="Private key of your own authority; not stored.")]
Requests = Annotated[
    list[Path] | None,
    typer.Option("--request", help="Request of a member, from `tacit member`; repeatable."),
]
Later = Annotated[bool, typer.Option("--later", help="Notify the nodes later, with `announce`.")]
Patience = Annotated[
    str, typer.Option(help="Silence after which nodes go on without another, e.g. 10m.")
]
MinNeighbours = Annotated[
    int | None, typer.Option(min=1, help="A node with fewer neighbours stops.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print as JSON.")]


@app.command()
def create(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new or empty folder.")],
    nodes: Annotated[
        str,
        typer.Option(
            help="Nodes whose keys are made here: a=host:port,b=host:port,… (or a=outgoing: it has "
            "no open port, and others reach it through a relay)"
        ),
    ] = "",
    requests: Requests = None,
    name: Annotated[str | None, typer.Option(help="Name (default: that of the folder).")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file of the experiment.")] = None,
    overrides: Overrides = None,
    graph: Annotated[str | None, typer.Option(help="Short for graph.kind, e.g. ring.")] = None,
    mixing: Annotated[str | None, typer.Option(help="Short for graph.mixing.")] = None,
    edges: Edges = None,
    days: Days = 365,
    ca: Annotated[Path | None, typer.Option(help="Your own authority's certificate.")] = None,
    ca_key: CaKey = None,
    patience: Patience = "forever",
    min_neighbours: MinNeighbours = None,
) -> None:
    """Create a federation from the requests of its members.

    With --nodes instead, the keys of all nodes are made here: for trials.
    """
    from tacit.cli.federation_next_steps import (
        print_relay_hint,
        print_requests,
        print_signed,
        read_requests,
    )
    from tacit.cli.federation_tables import print_summary
    from tacit.config.loading import load_config, make_config
    from tacit.peer.federation import operator

    if ca_key is not None and ca is None:
        raise Misuse("--ca-key is given without --ca.", "Also give the authority's certificate.")
    if graph is not None and edges is not None:
        raise Misuse("--graph and --edges are both given.", "Give only one of them.")
    settings, asked = list(overrides or []), read_requests(requests)
    if graph is not None:
        settings.append(f"graph.kind={json.dumps(graph)}")
    if mixing is not None:
        settings.append(f"graph.mixing={json.dumps(mixing)}")
    if edges is not None:
        settings += ['graph.kind="edges"', f"graph.edges={json.dumps(split_list(edges))}"]
    created = operator.create(
        folder,
        name if name is not None else folder.resolve().name,
        _parse_nodes(nodes),
        make_config({}, settings) if config is None else load_config(config, settings),
        requests=asked,
        days=days,
        authority=authority_from(ca, ca_key),
        ca_certificate=None if ca is None else _read_pem(ca),
        patience=patience,
        min_neighbours=min_neighbours,
    )
    print_summary(created.manifest())
    if ca is not None and ca_key is None:
        print(
            f"Next: let the authority sign {folder}/operator/operator.csr and "
            f"{folder}/nodes/*/node.csr, then install each certificate:\n"
            f"  tacit federation certificate {folder} NODE FILE"
        )
    if asked:
        print_requests(asked)
        print_signed(created, [request.name for request in asked])
    print_relay_hint(created)
    if nodes:
        print(
            "The private keys of the nodes were made on this machine: good for trials. For real\n"
            "data, members make their keys themselves: tacit member init.\n"
            f"Next: copy each folder in {folder}/nodes to its node over a secure channel (it\n"
            "holds private keys), and start the node there:\n"
            "  tacit node NODE-FOLDER --data FILE"
        )


@app.command()
def add(
    folder: Folder,
    node: Annotated[
        str | None,
        typer.Argument(metavar="[NODE=HOST:PORT]", help="A node whose keys are made here."),
    ] = None,
    request: Annotated[Path | None, typer.Option(help="The request of the new member.")] = None,
    edges: Edges = None,
    days: Days = 365,
    ca_key: CaKey = None,
    later: Later = False,
) -> None:
    """Add a member by its request: certify its key and sign a new roster.

    With NODE=HOST:PORT instead, the keys are made here, in a folder for the node. Once the other
    nodes are notified, they wait for the new one.
    """
    from tacit.cli.federation_next_steps import (
        print_relay_hint,
        print_requests,
        print_signed,
        read_requests,
    )
    from tacit.cli.federation_nodes import announce_manifest
    from tacit.cli.federation_tables import print_change
    from tacit.peer.federation import operator
    from tacit.peer.federation.folders import FederationFolder

    if (node is None) == (request is None):
        problem = "Both a node and a request are given." if node else "No node is given."
        raise Misuse(problem, "Give --request FILE, or NODE=HOST:PORT to make its keys here.")
    [asked] = read_requests([request]) if request else [None]
    nodes = _parse_nodes(node) if node else {}
    if asked is not None:
        nodes = {asked.name: asked.address}
    if len(nodes) != 1:
        raise Misuse(f"{node!r} names {len(nodes)} nodes.", "Add one node at a time.")
    [(name, address)] = nodes.items()
    federation = FederationFolder(folder)
    before, authority = federation.manifest(), authority_from(folder / "ca" / "ca.pem", ca_key)
    new_edges = None if edges is None else split_list(edges)
    after = operator.add(
        folder, name, address, edges=new_edges, days=days, authority=authority, request=asked
    )
    print_change(before, after)
    announce_manifest(federation, before, later)
    print_relay_hint(federation)
    if asked is not None:
        print_requests([asked])
        return print_signed(federation, [name])
    place = federation.node(name).path
    if not (place / "node.pem").exists():
        print(
            f"Next: let the authority sign {place / 'node.csr'}, then install the certificate:\n"
            f"  tacit federation certificate {folder} {name} FILE"
        )
    print(
        f"Next: copy {place} to {name} over a secure channel, and start the node there:\n"
        "  tacit node NODE-FOLDER --data FILE"
    )
    return None


@app.command()
def remove(
    folder: Folder,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.")],
    edges: Edges = None,
    later: Later = False,
) -> None:
    """Remove a node: sign a new roster. The other nodes continue without it."""
    from tacit.cli.federation_nodes import announce_manifest
    from tacit.cli.federation_tables import print_change
    from tacit.peer.federation import operator
    from tacit.peer.federation.folders import FederationFolder

    federation = FederationFolder(folder)
    before = federation.manifest()
    after = operator.remove(folder, node, edges=None if edges is None else split_list(edges))
    print_change(before, after)
    announce_manifest(federation, before, later)


@app.command("set")
def set_rules(
    folder: Folder,
    patience: Annotated[str | None, typer.Option(help="As of `create`, e.g. 10m.")] = None,
    min_neighbours: MinNeighbours = None,
    later: Later = False,
) -> None:
    """Change what nodes do without others: sign a new roster with the same members."""
    from tacit.cli.federation_nodes import announce_manifest
    from tacit.cli.federation_tables import print_summary
    from tacit.peer.federation import operator
    from tacit.peer.federation.folders import FederationFolder

    if patience is None and min_neighbours is None:
        raise Misuse("There is nothing to set.", "Give --patience or --min-neighbours.")
    federation = FederationFolder(folder)
    before = federation.manifest()
    after = operator.set_absence(folder, patience=patience, min_neighbours=min_neighbours)
    print_summary(after)
    announce_manifest(federation, before, later)


@app.command()
def announce(folder: Folder) -> None:
    """Notify the running nodes of the newest roster, after `add --later` or `remove --later`."""
    from tacit.cli.federation_nodes import announce_manifest
    from tacit.peer.federation.folders import FederationFolder

    federation = FederationFolder(folder)
    announce_manifest(federation, federation.manifest())


@app.command()
def renew(
    folder: Folder,
    nodes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NODE]...", help="Nodes, or operator (default: all of them)."),
    ] = None,
    requests: Requests = None,
    days: Days = 365,
    ca_key: CaKey = None,
    later: Later = False,
) -> None:
    """Issue new certificates: for new keys by --request, otherwise for the same keys."""
    from tacit.cli.federation_next_steps import print_requests, print_signed, read_requests
    from tacit.cli.federation_nodes import announce_manifest
    from tacit.peer.federation import certificate_renewal
    from tacit.peer.federation.folders import FederationFolder
    from tacit.peer.federation.member_bundle import write_bundle
    from tacit.peer.federation.membership import sign_renewal

    authority, federation = (
        authority_from(folder / "ca" / "ca.pem", ca_key),
        FederationFolder(folder),
    )
    if requests and nodes:
        raise Misuse("Both nodes and requests are given.", "Renew them one after the other.")
    if requests:
        asked = read_requests(requests)
        renewed = [sign_renewal(folder, request, days, authority=authority) for request in asked]
        print_requests(asked)
    else:
        renewed = certificate_renewal.renew(folder, nodes or None, days, authority=authority)
    for certificate in renewed:
        print(f"{certificate.name}: valid until {certificate.not_after:%Y-%m-%d}")
    renewed_names = [certificate.name for certificate in renewed]
    members = [name for name in renewed_names if name in federation.manifest().names]
    announce_manifest(federation, federation.manifest(), later)
    for name in members:
        write_bundle(federation, name)
    print_signed(federation, members)


@app.command()
def certificate(
    folder: Folder,
    node: Annotated[str, typer.Argument(metavar="NODE", help="Name of the node, or operator.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The certificate (PEM).")],
) -> None:
    """Install a certificate that your own authority has signed."""
    from tacit.peer.federation.certificate_renewal import install_certificate

    installed = install_certificate(folder, node, _read_pem(file))
    print(f"{installed.name}: valid until {installed.not_after:%Y-%m-%d}")
    requests = [path.with_suffix(".pem") for path in folder.glob("*/**/*.csr")]
    if missing := sorted(path.parent.name for path in requests if not path.exists()):
        print(f"Still without a certificate: {', '.join(missing)}")


@app.command()
def show(
    folder: AnyFolder,
    as_json: AsJson = False,
    picture: Annotated[Path | None, typer.Option(help="Draw the graph (.png, .svg, .pdf).")] = None,
) -> None:
    """Show the members, the graph, what runs at members, and how long certificates are valid."""
    from tacit.cli.federation_tables import describe, print_description

    manifest, description = describe(folder)
    if picture is not None:
        from tacit.peer.federation.graph_drawing import draw_graph

        draw_graph(manifest, picture)
    if as_json:
        print(json.dumps(description))
        return
    print_description(description, Console())
    if picture is not None:
        print(f"Picture: {picture}")


@app.command()
def status(
    folder: AnyFolder,
    as_json: AsJson = False,
    seconds: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait.")] = 3.0,
) -> None:
    """Query all nodes: round, lag, loss, traffic, and which nodes they wait for."""
    from tacit.cli.federation_nodes import connect, finished_nodes
    from tacit.cli.federation_tables import status_table

    client, title = connect(folder)
    reports = client.status(seconds)
    client.close()
    finished = finished_nodes(folder)
    if as_json:
        print(json.dumps([report.as_dict(report.member.name in finished) for report in reports]))
    else:
        Console().print(status_table(title, reports, finished))
    if all(report.status is None and report.member.name not in finished for report in reports):
        raise typer.Exit(1)


@app.command("check-proof")
def check_proof(
    folder: AnyFolder,
    proof: Annotated[Path, typer.Argument(metavar="FILE", help="From run/evidence of a node.")],
) -> None:
    """Check a proof that a member has sent different messages under one address."""
    from tacit.cli.federation_nodes import authority_of
    from tacit.peer.federation.equivocation import read_proof

    print(read_proof(proof, authority_of(folder)).statement + ".")


@app.command()
def dashboard(
    folder: AnyFolder,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0: any.")] = 0,
    every: Annotated[float, typer.Option(min=0.5, help="Seconds between two queries.")] = 2.0,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Show a federation on a page of this machine, live: graph, curves, budgets, certificates.

    Only the printed link opens the page. It changes nothing in the federation.
    """
    from tacit.cli.federation_dashboard import serve_dashboard

    serve_dashboard(folder, port, every, browser)


@app.command()
def up(
    folder: Folder,
    data: Annotated[
        str | None,
        typer.Option(help="--data of each node, with {name} for its name: sites/{name}.csv."),
    ] = None,
    save_every: Annotated[float, typer.Option(min=0, help="Seconds between checkpoints.")] = 10.0,
    allow_code: AllowCode = None,
    transcript: TranscriptSize = None,
) -> None:
    """Try a federation out: run all its nodes on this machine, until they finish or Ctrl-C.

    They run in FOLDER/trial-GENERATION, with keys and addresses of their own: nothing of a trial
    gets into the folders that you hand out.
    """
    from tacit.cli.federation_nodes import run_all_nodes
    from tacit.peer.federation.folders import FederationFolder
    from tacit.peer.node.transcript_log import parse_size

    if transcript is not None:
        parse_size(transcript)  # or every node would refuse it
    run_all_nodes(FederationFolder(folder), data, save_every, allow_code or (), transcript)


def _parse_nodes(text: str) -> dict[str, str]:
    """Name → address of the nodes in "a=host:port,b=host:port"."""
    nodes: dict[str, str] = {}
    for item in split_list(text):
        name, equals, address = (part.strip() for part in item.partition("="))
        if not equals:
            remedy = "Write e.g. a=192.0.2.7:7400, or a=outgoing for a node without a port."
            raise Misuse(f"{item!r} is not name=host:port.", remedy)
        if name in nodes:
            raise Misuse(f"Two nodes have the name {name}.", "Give each node its own name.")
        nodes[name] = address
    return nodes


def split_list(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def authority_from(certificate: Path | None, key: Path | None) -> Credentials | None:
    from tacit.core.storage import read_private
    from tacit.peer.federation.certificates import Credentials

    if certificate is None or key is None:
        return None
    return Credentials(_read_pem(certificate), read_private(key))


def _read_pem(path: Path) -> bytes:
    from tacit.peer.federation.folders import read_file

    return read_file(path, "Give the name of a file in PEM format.")
