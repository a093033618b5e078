"""`tacit federation up`: run all nodes on this machine and show their status."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table

from tacit.cli.federation_tables import status_table
from tacit.core.errors import Interrupted, TacitError

if TYPE_CHECKING:
    from tacit.peer.federation.folders import FederationFolder


def run_all_nodes(folder: FederationFolder, data: str | None, save_every: float) -> None:
    """Start all nodes, show their status, and stop them if one fails or on Ctrl-C."""
    from tacit.peer.federation.federation_client import FederationClient
    from tacit.peer.federation.local_processes import LocalFederation

    manifest = folder.manifest()
    title = f"{manifest.federation}, generation {manifest.generation}"
    console = Console(stderr=True)
    console.print(
        f"Starting {len(manifest.members)} nodes; logs: {folder.path}/nodes/*/run/log.jsonl"
    )
    client = FederationClient(manifest, folder.operator_credentials(), folder.ca())
    # Handled like Ctrl-C, so that no nodes are left running.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    try:
        with LocalFederation(folder, data, save_every) as local:

            def update(live: Live) -> None:
                ended = [node.name for node in local.nodes.values() if node.process.poll() == 0]
                live.update(status_table(title, client.status(seconds=1.0), ended))

            with Live(console=console, refresh_per_second=4) as live:
                while local.running and not local.failed():
                    update(live)
                    time.sleep(0.5)
                update(live)
            if failed := local.failed():
                reasons = "".join(f"\n  {node.name}: {node.last_error()}" for node in failed)
                raise TacitError(
                    f"A node failed, so all nodes were stopped. Progress is saved.{reasons}"
                )
    except KeyboardInterrupt:
        again = f"tacit federation up {folder.path}" + (f" --data {data}" if data else "")
        raise Interrupted(f"Stopped. Progress is saved; continue with\n  {again}") from None
    finally:
        client.close()
    _print_results(folder)


def _print_results(folder: FederationFolder) -> None:
    from tacit.core.storage import read_json

    table = Table()
    for name in ("node", "iterations", "loss", "accuracy"):
        table.add_column(name, overflow="fold")
    for member in folder.members:
        summary = read_json(folder.node(member.name).run / "summary.json")
        loss, accuracy = summary["loss"], summary["accuracy"]
        table.add_row(
            member.name,
            str(summary["steps"]),
            "" if loss is None else f"{loss:.4f}",
            "" if accuracy is None else f"{accuracy:.2f} %",
        )
    Console().print(table)
    print(f"Models: {folder.path}/nodes/*/run/model.safetensors")
