"""What `tacit federation show` shows."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from tacit.peer.federation.manifest import Manifest

SOON = 30  # days


def facts(folder: Path) -> tuple[Manifest, dict[str, Any]]:
    """The manifest in an operator's or a node's folder, and in plain values what there is to know of it."""
    from tacit.peer.federation.operator import FederationFolder, NodeFolder

    if (folder / "node.key").exists():
        node = NodeFolder(folder)
        manifest, certificates = node.manifest(), {node.name: folder / "node.pem"}
        places = {"authority": folder / "ca.pem", "operator": folder / "operator.pem"}
        own = {"node": node.name}
    else:
        home = FederationFolder(folder)
        manifest = home.manifest()
        certificates = {
            member.name: home.node(member.name).path / "node.pem" for member in manifest.members
        }
        places = {
            "authority": folder / "ca" / "ca.pem",
            "operator": folder / "operator" / "operator.pem",
        }
        own = {}
    shown = {
        "federation": manifest.federation,
        "generation": manifest.generation,
        "hash": manifest.hash.hex(),
        **own,
        "algorithm": manifest.config.algorithm.name,
        "subject": manifest.config.subject,
        "graph": manifest.graph.describe(),
        "directed": manifest.graph.directed,
        "members": [
            _member(manifest, at, certificates.get(member.name))
            for at, member in enumerate(manifest.members)
        ],
        **{who: _certificate(path) for who, path in places.items()},
        "sections": manifest.sections(),
    }
    return manifest, shown


def _member(manifest: Manifest, at: int, certificate: Path | None) -> dict[str, Any]:
    member = manifest.members[at]
    weight = {
        other.name: float(manifest.graph.weights[at, to])
        for to, other in enumerate(manifest.members)
    }
    heard = [*manifest.in_neighbours(member.name), member]
    return {
        "name": member.name,
        "address": member.address,
        "number": member.number,
        "since": member.since,
        "sends_to": [other.name for other in manifest.out_neighbours(member.name)],
        "hears": {other.name: weight[other.name] for other in heard},
        "certificate": None if certificate is None else _certificate(certificate),
    }


def _certificate(path: Path) -> dict[str, Any] | None:
    """What a certificate says; None where it is still to be signed."""
    from tacit.peer.federation.identity import describe

    if not path.exists():
        return None
    told = describe(path.read_bytes())
    left = (told.not_after - datetime.now(UTC)).total_seconds() / 86_400
    return {
        "name": told.name,
        "fingerprint": told.fingerprint,
        "issuer": told.issuer,
        "not_before": told.not_before.isoformat(),
        "not_after": told.not_after.isoformat(),
        "days_left": round(left, 2),
    }


def print_facts(shown: dict[str, Any], console: Console) -> None:
    """Print them for people: a table, and who hears whom."""
    console.print(
        f"{shown['federation']}, generation {shown['generation']}: {shown['algorithm']} on {shown['subject']}"
    )
    whole = "node" not in shown  # a node has no certificate but its own
    table = Table()
    for column in (
        "node",
        "address",
        "sends to" if shown["directed"] else "neighbours",
        "certificate",
        "expires",
    ):
        table.add_column(column, overflow="fold")
    rows = [(member, member["certificate"]) for member in shown["members"]]
    for member, told in rows:
        known = whole or member["name"] == shown["node"]
        table.add_row(
            member["name"],
            member["address"],
            " ".join(member["sends_to"]),
            *(_validity(told) if known else ("", "")),
        )
    for who in ("operator", "authority"):
        table.add_row(who, "", "", *_validity(shown[who]), style="dim")
    console.print(table)
    console.print(shown["graph"], highlight=False)
    width = max(len(member["name"]) for member in shown["members"])
    for member in shown["members"]:
        heard = member["hears"]
        others = [
            f"{name} {weight:.3g}" for name, weight in heard.items() if name != member["name"]
        ]
        own = f"itself {heard[member['name']]:.3g}"
        console.print(
            f"  {member['name']:>{width}} ◀─ {', '.join([*others, own])}",
            highlight=False,
            soft_wrap=True,
        )


def _validity(told: dict[str, Any] | None) -> tuple[str, Text]:
    """The beginning of the fingerprint, and the time left: red where there is none, yellow where there is little."""
    if told is None:
        return "to be signed", Text("")
    days, date = told["days_left"], told["not_after"][:10]
    if days < 0:
        return told["fingerprint"][:11], Text(f"expired on {date}", style="bold red")
    words = "in less than a day" if days < 1 else "in 1 day" if days < 2 else f"in {int(days)} days"
    return told["fingerprint"][:11], Text(words, style="yellow" if days < SOON else "")


def say_what_holds(manifest: Manifest) -> None:
    """One line about the federation, and what the algorithm cautions about."""
    from tacit.peer.federation.graph import check_plan

    print(f"{manifest.federation}, generation {manifest.generation}: {manifest.graph.describe()}")
    for caution in check_plan(manifest.config, manifest.graph):
        Console(stderr=True, soft_wrap=True).print(
            f"Caution: {caution}", style="yellow", markup=False
        )


def say_what_changed(before: Manifest, after: Manifest) -> None:
    """The same of a new roster."""
    say_what_holds(after)
    if before.config.graph.mixing == "matrix":
        print(
            f"The matrix of weights was made for others: the weights are now by the rule {after.graph.rule}."
        )
