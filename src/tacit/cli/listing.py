"""The table of `tacit algorithms`; messages and bytes are counted by running each algorithm."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any, cast

import torch
from rich.table import Table

from tacit.algorithms import ALGORITHMS, Algorithm
from tacit.core.errors import Caution
from tacit.graph import Topology
from tacit.report.page import format_bytes
from tacit.simulation import simulate
from tacit.tasks import Task


def algorithm_rows(parameters: int) -> list[dict[str, Any]]:
    """What each registered algorithm sends, needs and protects, with this many parameters."""
    return [
        {
            "name": name,
            "paper": kind.paper,
            **_traffic(kind, parameters),
            "needs": ["a server"] if kind.needs_server else list(kind.requires),
            "protects": kind.protects,
        }
        for name, kind in ALGORITHMS.loadable()[0].items()
    ]


def algorithm_table(parameters: int) -> Table:
    table = Table(
        show_lines=True,
        caption="Messages and bytes are per iteration and out-neighbour (with a server: per "
        f"client, up and down), for {parameters:,} parameters and default options. Needs are "
        "beyond a connected graph whose weights mix.",
    )
    table.add_column("algorithm", overflow="fold", max_width=28)
    table.add_column("sends", justify="right", no_wrap=True)
    for name in ("needs", "protects"):
        table.add_column(name, overflow="fold")
    for row in algorithm_rows(parameters):
        count = row["messages_per_iteration"]
        needs = [need for need in row["needs"] if need not in ("connected", "primitive")]
        table.add_row(
            f"[bold]{row['name']}[/bold]\n[dim]{row['paper']}[/dim]",
            f"{count} message{'' if count == 1 else 's'}\n"
            f"{format_bytes(row['bytes_per_iteration'])}",
            ", ".join(needs),
            row["protects"],
        )
    return table


def _traffic(kind: type[Algorithm], parameters: int) -> dict[str, int]:
    """Messages and bytes per directed edge, or between one client and the server and back."""
    clients = 3
    parts = list(torch.zeros(clients, parameters))
    task = Task.from_loss(
        lambda theta, x: (theta - x).square().sum(), parts, torch.zeros(parameters)
    )
    # This graph meets the requirements of all algorithms.
    graph = Topology.ring(clients).mixing("metropolis", lazy=True)
    fields = dataclasses.fields(cast(Any, kind))
    # Options without a default are step sizes.
    options = {field.name: 0.1 for field in fields if field.default is dataclasses.MISSING}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)
        run = simulate(kind(**options), task, graph, steps=1, gradients="looped", transcript=True)
    assert run.transcript is not None
    messages = run.transcript.messages
    server = any(message.verb == "average" for message in messages)
    links = clients if server else len(graph.edges)
    at_start, at_end = (record.bytes_sent for record in run.history)
    return {
        "messages_per_iteration": sum(message.tick == 1 for message in messages),
        "messages_at_start": sum(message.tick == 0 for message in messages),
        "bytes_per_iteration": (at_end - at_start) // links,
    }
