"""Tables for the terminal."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, cast

import torch
from rich.table import Table

from tacit.algorithms import ALGORITHMS, Algorithm
from tacit.experiment.compare import Comparison
from tacit.experiment.page import amount
from tacit.graph import Topology
from tacit.simulation import Simulation
from tacit.tasks import quadratic


def comparison_table(comparison: Comparison) -> Table:
    """Mean ± deviation over the seeds; differences are paired by seed."""
    first = comparison.rows[0].label
    count = len(comparison.seeds)
    table = Table(caption=f"mean ± deviation over {count} seeds" if count > 1 else "one seed")
    table.add_column("algorithm", overflow="fold")
    for name in ("accuracy, %", f"difference\nto {first}", "loss", "sent"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in comparison.rows:
        label = f"{row.label} ({row.diverged} diverged)" if row.diverged else row.label
        table.add_row(
            label,
            _spread(row.accuracy, ".2f"),
            _spread(row.difference, "+.2f"),
            _spread(row.loss, ".4f"),
            amount(row.bytes_sent),
        )
    return table


def algorithm_rows(parameters: int) -> list[dict[str, Any]]:
    """What each registered algorithm sends, needs and protects; messages are counted by running it."""
    rows = []
    for name, kind in ALGORITHMS.items():
        start, step = _rows_sent_per_edge(kind)
        rows.append(
            {
                "name": name,
                "paper": kind.paper,
                "messages_per_iteration": step,
                "messages_at_start": start,
                "bytes_per_iteration": step * parameters * 4,
                "needs": list(kind.requires),
                "protects": kind.protects,
            }
        )
    return rows


def algorithm_table(parameters: int) -> Table:
    """The registered algorithms for people."""
    table = Table(caption=f"messages and bytes per out-neighbour and iteration, {parameters:,} parameters")
    for name in ("name", "paper", "messages", "bytes", "needs", "protects"):
        table.add_column(name, justify="right" if name in ("messages", "bytes") else "left", overflow="fold")
    for row in algorithm_rows(parameters):
        table.add_row(
            row["name"],
            row["paper"],
            f"{row['messages_per_iteration']:g}",
            amount(row["bytes_per_iteration"]),
            ", ".join(row["needs"]),
            row["protects"],
        )
    return table


def _rows_sent_per_edge(kind: type[Algorithm]) -> tuple[float, float]:
    """How many rows cross one directed edge in the start and in one step, seen on a tiny run."""
    width, clients = 2, 3
    task = quadratic(torch.eye(width).repeat(clients, 1, 1), torch.zeros(clients, width))
    graph = Topology.ring(clients).mixing("metropolis", lazy=True)  # meets every requirement
    fields = dataclasses.fields(cast(Any, kind))
    options = {field.name: 0.1 for field in fields if field.default is dataclasses.MISSING}  # step sizes
    simulation = Simulation(kind(**options), task, graph, gradients="looped")
    simulation.start()
    row = len(graph.edges) * width * 4
    start = simulation.net.bytes_sent / row
    simulation.step()
    return start, simulation.net.bytes_sent / row - start


def _spread(pair: tuple[float, float] | None, form: str) -> str:
    if pair is None:
        return ""
    mean, deviation = pair
    return f"{mean:{form}}" if math.isnan(deviation) else f"{mean:{form}} ± {deviation:{form.lstrip('+')}}"
