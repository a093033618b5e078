"""The table of the algorithms for the terminal, counted by running them."""

from __future__ import annotations

import dataclasses
from typing import Any, cast

import torch
from rich.table import Table

from tacit.algorithms import ALGORITHMS, Algorithm
from tacit.graph import Topology
from tacit.record.transcript import Transcript
from tacit.report.page import amount
from tacit.simulation import Simulation
from tacit.tasks import Task


def algorithm_rows(parameters: int) -> list[dict[str, Any]]:
    """What each registered algorithm sends, needs and protects; messages and bytes are counted by running it."""
    rows = []
    for name, kind in ALGORITHMS.items():
        start, step = _traffic(kind, parameters)
        rows.append(
            {
                "name": name,
                "paper": kind.paper,
                "messages_per_iteration": step.messages,
                "messages_at_start": start.messages,
                "bytes_per_iteration": step.bytes,
                "needs": ["a server"] if step.server else list(kind.requires),
                "protects": kind.protects,
            }
        )
    return rows


def algorithm_table(parameters: int) -> Table:
    """The registered algorithms for people."""
    table = Table(
        show_lines=True,
        caption="Messages and bytes are per iteration and out-neighbour (with a server: per client, up and down), for "
        f"{parameters:,} parameters and default options. Needs are beyond a connected graph whose weights mix.",
    )
    table.add_column("algorithm", overflow="fold", max_width=28)
    table.add_column("sends", justify="right", no_wrap=True)
    for name in ("needs", "protects"):
        table.add_column(name, overflow="fold")
    for row in algorithm_rows(parameters):
        count = row["messages_per_iteration"]
        needs = [what for what in row["needs"] if what not in ("connected", "primitive")]
        table.add_row(
            f"[bold]{row['name']}[/bold]\n[dim]{row['paper']}[/dim]",
            f"{count} message{'' if count == 1 else 's'}\n{amount(row['bytes_per_iteration'])}",
            ", ".join(needs),
            row["protects"],
        )
    return table


@dataclasses.dataclass(frozen=True)
class Traffic:
    """What crosses one directed edge, or goes between one client and the server and back."""

    messages: int
    bytes: int
    server: bool


def _traffic(kind: type[Algorithm], parameters: int) -> tuple[Traffic, Traffic]:
    """The traffic of the start and of one step with default options, seen on a tiny run."""
    clients = 3
    parts = list(torch.zeros(clients, parameters))
    task = Task.from_loss(
        lambda theta, x: (theta - x).square().sum(), parts, torch.zeros(parameters)
    )
    graph = Topology.ring(clients).mixing("metropolis", lazy=True)  # meets every requirement
    fields = dataclasses.fields(cast(Any, kind))
    options = {
        field.name: 0.1 for field in fields if field.default is dataclasses.MISSING
    }  # step sizes
    transcript = Transcript()
    simulation = Simulation(kind(**options), task, graph, gradients="looped", transcript=transcript)
    simulation.start()
    at_start = simulation.net.bytes_sent
    simulation.step()
    sent = (at_start, simulation.net.bytes_sent - at_start)

    def seen(tick: int) -> Traffic:
        said = [message for message in transcript.messages if message.tick == tick]
        server = any(message.verb == "average" for message in said)
        links = clients if server else len(graph.edges)
        return Traffic(len(said), sent[tick] // links, server)

    return seen(0), seen(1)
