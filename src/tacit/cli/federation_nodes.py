"""Commands of `tacit federation` that call running nodes, or run nodes on this machine."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Column, Table

from tacit.cli.federation_log import StatusLog, result_line
from tacit.cli.federation_tables import status_table
from tacit.cli.metric_tables import print_alerts
from tacit.core.errors import Interrupted, Misuse, TacitError
from tacit.core.storage import read_json
from tacit.peer.federation.certificates import OPERATOR
from tacit.peer.federation.federation_client import FederationClient, NodeReport
from tacit.peer.federation.folders import FederationFolder, NodeFolder
from tacit.peer.federation.local_processes import LocalFederation
from tacit.peer.federation.manifest import Manifest
from tacit.peer.node.finished_peers import FinishedPeers


def connect(folder: Path) -> tuple[FederationClient, str]:
    """A client with the credentials in an operator's or node's folder, and a title for tables."""
    if (folder / "node.key").exists():
        node = NodeFolder(folder)
        manifest, own, ca, log = node.manifest(), node.credentials(), node.ca(), node.log()
    else:
        federation = FederationFolder(folder)
        manifest, ca, log = federation.manifest(), federation.ca(), federation.log()
        own = federation.operator_credentials()
    title = f"{manifest.federation}, generation {manifest.generation}"
    return FederationClient(manifest, own, ca, log), title


def finished_nodes(folder: Path) -> set[str]:
    """Nodes that have finished the newest roster, as far as files in this folder tell.

    A node's folder names the node and its neighbours; an operator's the nodes that ran inside it.
    """
    if (folder / "node.key").exists():
        node = NodeFolder(folder)
        manifest = node.manifest()
        finished = set(FinishedPeers(node.run / "finished.json", manifest.number).finished)
        return finished | ({node.name} if _has_finished(node, manifest.generation) else set())
    federation = FederationFolder(folder)
    manifest = federation.manifest()
    return {
        name for name in manifest.names if _has_finished(federation.node(name), manifest.generation)
    }


def _has_finished(node: NodeFolder, generation: int) -> bool:
    try:
        return bool(read_json(node.run / "summary.json")["generation"] == generation)
    except (KeyError, Misuse):
        return False


def authority_of(folder: Path) -> bytes:
    """The certificate of the authority in an operator's or node's folder."""
    is_node = (folder / "node.key").exists()
    return NodeFolder(folder).ca() if is_node else FederationFolder(folder).ca()


def announce_manifest(federation: FederationFolder, before: Manifest, later: bool = False) -> None:
    """Send the new roster to the nodes of `before`. Nodes forward it, so one is enough."""
    if later or not federation.certificate_path(OPERATOR).exists():
        print(
            "The nodes have not been notified yet. When everything is ready, run\n"
            f"  tacit federation announce {federation.path}"
        )
        return
    log = federation.log()
    client = FederationClient(
        before, federation.operator_credentials(), federation.ca(), relay_log=log
    )
    # Relays first: they may close connections that the new log revokes.
    relays = client.announce_to_relays() if any(log.relays.values()) else {}
    problems = client.announce(*federation.signed_update())
    client.close()
    if missed := [name for name, received in relays.items() if not received]:
        print(f"Not reached: the relay {', '.join(missed)}. Nodes will send it the changes.")
    if notified := [name for name, problem in problems.items() if not problem]:
        print(f"Notified {', '.join(notified)}. Nodes forward the new roster to each other.")
    else:
        print(
            "No node could be reached. To notify running nodes, start any node with the new\n"
            "federation.toml and federation.sig from its folder in nodes/."
        )


def run_all_nodes(
    federation: FederationFolder,
    data: str | None,
    save_every: float,
    allowed_code: Sequence[str],
    transcript: str | None = None,
) -> None:
    """Start all nodes of a trial, show their status, and stop them if one fails or on Ctrl-C."""
    from tacit.peer.federation.trial import open_trial

    folder = open_trial(federation)
    client, title = connect(folder.path)
    console, logs = Console(stderr=True), f"{folder.path}/nodes/*/run/log.jsonl"
    console.print(f"Starting {len(folder.members)} nodes; logs: {logs}", soft_wrap=True)
    # Handled like Ctrl-C, so that no nodes are left running.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        with LocalFederation(
            folder, data, save_every, allowed_code=allowed_code, transcript=transcript
        ) as local:
            with _status_display(console, folder.manifest(), title) as show:

                def update() -> None:
                    ended = [node.name for node in local.nodes.values() if node.process.poll() == 0]
                    show(client.status(seconds=1.0), ended)

                while local.running and not local.failed():
                    update()
                    time.sleep(0.5)
                update()
            if failed := local.failed():
                reasons = "".join(f"\n  {node.name}: {node.last_error()}" for node in failed)
                problem = "A node failed, so all nodes were stopped. Progress is saved."
                raise TacitError(problem + reasons)
    except KeyboardInterrupt:
        again = f"tacit federation up {federation.path}" + (f" --data {data}" if data else "")
        again += "".join(f" --allow-code {name}" for name in allowed_code)
        again += f" --transcript {transcript}" if transcript else ""
        raise Interrupted(f"Stopped. Progress is saved; continue with\n  {again}") from None
    finally:
        client.close()
    found = [
        (member.name, read_json(folder.node(member.name).run / "summary.json"))
        for member in folder.members
    ]
    if (out := Console()).is_terminal:
        out.print(_result_table(found))
    else:
        print(*(result_line(name, summary) for name, summary in found), sep="\n")
    alerts = [f"{name}: {alert}" for name, summary in found for alert in summary.get("alerts", ())]
    print_alerts({"alerts": alerts})
    print(f"Models: {folder.path}/nodes/*/run/model.safetensors")


@contextmanager
def _status_display(
    console: Console, manifest: Manifest, title: str
) -> Iterator[Callable[[Sequence[NodeReport], Sequence[str]], None]]:
    """A function that shows the status of nodes: a table in a terminal, else a line per change."""
    if not console.is_terminal:
        log = StatusLog(manifest, lambda line: console.out(line, highlight=False))
        yield lambda reports, ended: log.update(reports, time.time(), ended)
        return
    with Live(console=console, refresh_per_second=4) as live:
        yield lambda reports, ended: live.update(status_table(title, reports, ended))


def _result_table(found: Sequence[tuple[str, dict[str, Any]]]) -> Table:
    metrics = list(dict.fromkeys(name for _, state in found for name in state.get("metrics", {})))
    columns = ("node", "iterations", "loss", "accuracy", "majority baseline", *metrics)
    table = Table(*(Column(name, overflow="fold") for name in columns))
    for name, summary in found:
        loss, accuracy, baseline = (summary.get(key) for key in ("loss", "accuracy", "baseline"))
        values = [summary.get("metrics", {}).get(metric) for metric in metrics]
        table.add_row(
            name,
            str(summary["steps"]),
            "" if loss is None else f"{loss:.4g}",
            "" if accuracy is None else f"{accuracy:.2f} %",
            "" if baseline is None else f"{baseline:.2f} %",
            *("" if value is None else f"{value:.4g}" for value in values),
        )
    return table
