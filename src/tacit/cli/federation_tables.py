"""What the commands of `tacit federation` print: members, certificates and status."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.filesize import decimal
from rich.table import Column, Table
from rich.text import Text

from tacit.config.named_code import named_code
from tacit.config.sections import OWN_DATA
from tacit.peer.federation.certificates import OPERATOR, certificate_info
from tacit.peer.federation.folders import FederationFolder, NodeFolder
from tacit.peer.federation.manifest import Manifest
from tacit.peer.federation.roster import OUTGOING, Member

if TYPE_CHECKING:
    from tacit.peer.federation.federation_client import NodeReport

EXPIRES_SOON = 30  # days
STYLES = {
    "training": "green",
    "finished": "bold green",
    "waiting": "yellow",
    "suspended": "yellow",
    "saving": "bold red",
}


def describe(folder: Path) -> tuple[Manifest, dict[str, Any]]:
    """The manifest in an operator's or a node's folder, and a description for JSON."""
    if (folder / "node.key").exists():
        node = NodeFolder(folder)
        manifest, own, log = node.manifest(), {"node": node.name}, node.log()
        certificates = {node.name: folder / "node.pem"}
        shared = {"authority": folder / "ca.pem", "operator": folder / "operator.pem"}
    else:
        federation = FederationFolder(folder)
        manifest, own, log = federation.manifest(), {}, federation.log()
        names = (*manifest.names, *log.relays)
        certificates = {name: federation.certificate_path(name) for name in names}
        operator = federation.certificate_path(OPERATOR)
        shared = {"authority": folder / "ca" / "ca.pem", "operator": operator}
    description = {
        "federation": manifest.federation,
        "generation": manifest.generation,
        "hash": manifest.hash.hex(),
        **own,
        "algorithm": manifest.config.algorithm.name,
        "robust": robust.model_dump() if (robust := manifest.config.robust) else None,
        "subject": manifest.config.task_name,
        "runs": [asdict(code) for code in named_code(manifest.config)],
        "disclosure": _disclosure(manifest),
        "graph": manifest.topology.describe(),
        "directed": manifest.topology.directed,
        **manifest.absence.as_dict(),
        "members": [
            _describe_member(manifest, member, certificates.get(member.name))
            for member in manifest.members
        ],
        "relays": [
            {
                "name": name,
                "address": address,
                "certificate": _describe_certificate(place)
                if (place := certificates.get(name))
                else None,
            }
            for name, address in log.relays.items()
            if address
        ],
        **{name: _describe_certificate(path) for name, path in shared.items()},
        "sections": manifest.sections,
    }
    return manifest, description


def _disclosure(manifest: Manifest) -> str:
    """What members tell each other to prepare their tables, in words."""
    config = manifest.config
    if config.task is not None or config.data.label is None:
        return ""
    # Needs torch, which takes seconds to import.
    from tacit.peer.federation.agreed_settings import disclosed_by

    return disclosed_by(config, len(manifest.members))


def _describe_member(manifest: Manifest, member: Member, file: Path | None) -> dict[str, Any]:
    weights = manifest.topology.rows[manifest.position(member.name)]
    sources = [*manifest.in_neighbours(member.name), member]
    return {
        "name": member.name,
        "address": member.address,
        "reach": "outgoing" if member.address == OUTGOING else "direct",
        "number": member.number,
        "since": member.since,
        "sends_to": [other.name for other in manifest.out_neighbours(member.name)],
        "receives_from": {
            other.name: weights.get(manifest.position(other.name), 0.0) for other in sources
        },
        "certificate": None if file is None else _describe_certificate(file),
    }


def _describe_certificate(path: Path) -> dict[str, Any] | None:
    """The contents of a certificate; None if the authority has not signed it yet."""
    if not path.exists():
        return None
    info = certificate_info(path.read_bytes())
    left = (info.not_after - datetime.now(UTC)).total_seconds() / 86_400
    return {
        "name": info.name,
        "fingerprint": info.fingerprint,
        "issuer": info.issuer,
        "not_before": info.not_before.isoformat(),
        "not_after": info.not_after.isoformat(),
        "days_left": round(left, 2),
    }


def print_description(description: dict[str, Any], console: Console) -> None:
    """Print what runs at members, a table of members and certificates, and the mixing weights."""
    console.print(
        f"{description['federation']}, generation {description['generation']}: "
        f"{description['algorithm']} on {description['subject']}"
    )
    if robust := description["robust"]:
        rule = f"{robust['rule']} against {robust['liars']} of its neighbours"
        console.print(f"Every node mixes by {rule}.", highlight=False)
    console.print("What runs at members:", highlight=False)
    for code in description["runs"]:
        line = f"  {code['key']} = {code['name']!r}: {_format_origin(code)}"
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    if told := description["disclosure"]:
        line = f"Before training, {told}."
        console.print(line, highlight=False, soft_wrap=True, markup=False)
    targets = "sends to" if description["directed"] else "neighbours"
    columns = ("node", "address", targets, "certificate", "expires")
    table = Table(*(Column(name, overflow="fold") for name in columns))
    for member in description["members"]:
        # The folder of a node holds no certificates of other nodes.
        known = description.get("node", member["name"]) == member["name"]
        validity = _format_validity(member["certificate"]) if known else ("", "")
        table.add_row(member["name"], member["address"], " ".join(member["sends_to"]), *validity)
    for relay in description["relays"]:
        validity = ("", "") if "node" in description else _format_validity(relay["certificate"])
        table.add_row(f"relay {relay['name']}", relay["address"], "", *validity, style="dim")
    for name in ("operator", "authority"):
        table.add_row(name, "", "", *_format_validity(description[name]), style="dim")
    console.print(table)
    if outgoing := [
        member["name"] for member in description["members"] if member["reach"] == "outgoing"
    ]:
        relays = ", ".join(relay["name"] for relay in description["relays"])
        through = f"through {relays}" if relays else "by no one: there is no relay"
        console.print(f"{', '.join(outgoing)}: reached {through}", highlight=False)
    console.print(description["graph"], highlight=False)
    rules = f"{description['patience']}, min_neighbours = {description['min_neighbours']}"
    console.print(f"patience = {rules}", highlight=False)
    width = max(len(member["name"]) for member in description["members"])
    for member in description["members"]:
        weights = dict(member["receives_from"])
        own = weights.pop(member["name"])
        sources = [f"{name} {weight:.3g}" for name, weight in weights.items()]
        line = f"  {member['name']:>{width}} ◀─ {', '.join([*sources, f'itself {own:.3g}'])}"
        console.print(line, highlight=False, soft_wrap=True)


def _format_origin(code: dict[str, Any]) -> str:
    """Where code comes from, and how a member allows it if it is not part of Tacit."""
    if code["path"] is not None:
        source = f"{code['path']} of {code['package']}" if code["package"] else "imported"
        return f"{source}; members allow it by --allow-code {code['path'].partition(':')[0]}"
    if (code["key"], code["name"]) == ("data.name", OWN_DATA):
        return "each member's own file or function, named by its own --data"
    return "part of Tacit" if code["installed"] else "not installed on this machine"


def _format_validity(certificate: dict[str, Any] | None) -> tuple[str, Text]:
    """The start of the fingerprint, and the time left: yellow if short, red if expired."""
    if certificate is None:
        return "to be signed", Text("")
    fingerprint, days = certificate["fingerprint"][:11], certificate["days_left"]
    if days < 0:
        return fingerprint, Text(f"expired on {certificate['not_after'][:10]}", style="bold red")
    left = "in less than a day" if days < 1 else "in 1 day" if days < 2 else f"in {int(days)} days"
    return fingerprint, Text(left, style="yellow" if days < EXPIRES_SOON else "")


def print_summary(manifest: Manifest) -> None:
    """One line about the federation, and the cautions of the algorithm."""
    from tacit.peer.federation.agreed_settings import absence_cautions, check_runnable

    print(f"{manifest.federation}, generation {manifest.generation}: {manifest.graph.describe()}")
    console = Console(stderr=True, soft_wrap=True)
    cautions = check_runnable(manifest.config, manifest.graph) + absence_cautions(manifest)
    for caution in cautions:
        console.print(f"Caution: {caution}", style="yellow", markup=False)


def print_change(before: Manifest, after: Manifest) -> None:
    """The summary of a new roster, and whether it replaced a weight matrix."""
    print_summary(after)
    if before.config.graph.mixing == "matrix":
        rule = f"weights now follow the rule {after.graph.rule}"
        print(f"The weight matrix does not fit the new roster: {rule}.")


def status_table(title: str, reports: Sequence[NodeReport], ended: Container[str] = ()) -> Group:
    """A row per node, with remarks below. Nodes in `ended` have finished and exited."""
    statuses = [report.status for report in reports if report.status is not None]
    furthest = max((status.step for status in statuses), default=0)
    newest = max((status.generation for status in statuses), default=0)
    numbers = ("round", "iteration", "lag", "loss", "accuracy", "majority", "sent")
    columns = [Column(name, justify="right") for name in numbers]
    # All nodes train under the same promise, if there is one.
    private = next((status for status in statuses if status.HasField("privacy")), None)
    if private is not None:
        spent = f"ε (δ = {private.privacy.delta:g})"
        columns += [Column(name, justify="right") for name in ("sums", spent)]
    table = Table(
        "node", Column("state", no_wrap=True), *columns, title=title, title_justify="left"
    )
    remarks = []
    # The newest agreement counts.
    newest_epoch = max((status.epoch for status in statuses), default=0)
    suspended = {
        suspension.name: suspension.since
        for status in statuses
        if status.epoch == newest_epoch
        for suspension in status.suspended
    }
    for report in reports:
        name = report.member.name
        if report.status is not None:
            table.add_row(name, *_cells(report.status, furthest))
            remarks += [f"{name} {remark}" for remark in _remarks(report.status, newest)]
            if report.relay:
                remarks.append(f"{name} is reached through the relay {report.relay}")
        elif name in ended:
            table.add_row(name, Text("finished", style="bold green"))
        elif name in suspended:
            table.add_row(name, Text("suspended", style="yellow"))
        else:
            table.add_row(name, Text("not reached", style="red"))
            reasons = "it is not running, has finished and exited, or cannot be reached"
            remarks.append(f"{name} does not respond ({report.problem}): {reasons}")
    remarks += [
        f"{name} is suspended since {datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M} UTC: the "
        "others go on without it, and with it when it is back"
        for name, since in suspended.items()
    ]
    return Group(table, *(Text(remark) for remark in remarks))


def _cells(status: Any, furthest: int) -> list[str | Text]:
    lag = furthest - status.step
    return [
        Text(status.phase, style=STYLES.get(status.phase, "")),
        f"{status.step // max(1, status.round_length)}",
        f"{status.step}/{status.steps}",
        f"{lag}" if lag else "",
        f"{status.loss:.4g}" if status.HasField("loss") else "",
        f"{status.accuracy:.2f} %" if status.HasField("accuracy") else "",
        f"{status.baseline:.2f} %" if status.HasField("baseline") else "",
        decimal(status.bytes_sent),
        *_spent(status),
    ]


def _spent(status: Any) -> list[str]:
    """What is spent of a promised guarantee."""
    if not status.HasField("privacy"):
        return []
    privacy = status.privacy
    return [f"{privacy.sums}", f"{privacy.epsilon_spent:.2f} of {privacy.epsilon:g}"]


def _remarks(status: Any, newest: int) -> list[str]:
    remarks = [f"cannot continue: {status.problem}"] if status.problem else []
    if status.generation < newest:
        remarks.append(f"still uses the roster of generation {status.generation}")
    if status.waiting_for:
        remarks.append(f"waits for {', '.join(status.waiting_for)}")
    if status.certificate_notice:
        remarks.append(f"announces: {status.certificate_notice}")
    if status.rejected:
        remarks.append(f"has rejected {status.rejected} messages or callers")
    return remarks
