"""`tacit federation up`: all nodes on this machine, watched."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from tacit.cli.federation_status import status_table
from tacit.core.errors import Interrupted, TacitError

if TYPE_CHECKING:
    from tacit.peer.federation.client import FederationClient
    from tacit.peer.federation.local_processes import LocalFederation
    from tacit.peer.federation.operator import FederationFolder


def bring_up(home: FederationFolder, data: str | None, save_every: float) -> None:
    """Start all nodes, show how they are, and stop them when one fails or Ctrl-C is pressed."""
    from tacit.peer.federation.client import FederationClient
    from tacit.peer.federation.local_processes import LocalFederation

    manifest = home.manifest()
    title = f"{manifest.federation}, generation {manifest.generation}"
    console = Console(stderr=True)
    console.print(
        f"Starting {len(manifest.members)} nodes; logs in {home.path}/nodes/*/run/log.jsonl"
    )
    enquiry = FederationClient(manifest, home.operator(), home.ca())
    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: the nodes must not be left behind
        signal.signal(number, signal.default_int_handler)
    try:
        with LocalFederation(home, data, save_every) as local:
            with Live(console=console, refresh_per_second=4) as live:
                while local.running and not local.failed():
                    live.update(_table(title, enquiry, local))
                    time.sleep(0.5)
                live.update(_table(title, enquiry, local))
            if failed := local.failed():
                reasons = "".join(f"\n  {node.name}: {node.last_words()}" for node in failed)
                raise TacitError(
                    f"A node failed, so all were stopped; what was done is saved.{reasons}"
                )
    except KeyboardInterrupt:
        again = f"tacit federation up {home.path}" + (f" --data {data}" if data else "")
        raise Interrupted(f"Stopped; what was done is saved. Go on with\n  {again}") from None
    finally:
        enquiry.close()
    _print_results(home)


def _table(title: str, enquiry: FederationClient, local: LocalFederation) -> Group:
    ended = [node.name for node in local.nodes.values() if node.process.poll() == 0]
    return status_table(title, enquiry.status(seconds=1.0), ended)


def _print_results(home: FederationFolder) -> None:
    """What each node has left."""
    from tacit.core.storage import read_json

    table = Table()
    for name in ("node", "iterations", "loss", "accuracy"):
        table.add_column(name, overflow="fold")
    for member in home.manifest().members:
        summary = read_json(home.node(member.name).run / "summary.json")
        loss, accuracy = summary["loss"], summary["accuracy"]
        table.add_row(
            member.name,
            str(summary["steps"]),
            "" if loss is None else f"{loss:.4f}",
            "" if accuracy is None else f"{accuracy:.2f} %",
        )
    Console().print(table)
    print(f"Models: {home.path}/nodes/*/run/model.safetensors")
