"""The table of `tacit algorithms`; messages and bytes are counted by running each algorithm."""

from __future__ import annotations

import dataclasses
import inspect
import math
import warnings
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from tacit.algorithms import ALGORITHMS, Algorithm
from tacit.algorithms.algorithm import options_of
from tacit.core.errors import Caution
from tacit.engines.running import run
from tacit.graph import Topology
from tacit.privacy.guarantee import Privacy
from tacit.report.numbers import format_bytes
from tacit.tasks import Task

WITH_GUARANTEE = (
    "(ε, δ)-differential privacy for the whole run, as promised in [privacy]; `tacit privacy` "
    "plans it"
)
NO_GUARANTEE = "none; `tacit audit` proves and bounds what messages reveal"


def algorithm_rows(parameters: int) -> list[dict[str, Any]]:
    """What each registered algorithm sends, needs and protects, with this many parameters."""
    return [_row(name, kind, parameters) for name, kind in ALGORITHMS.loadable()[0].items()]


def algorithm_facts(name: str, parameters: int) -> dict[str, Any]:
    """One algorithm: its row, its equations, its options and its guarantee."""
    kind = ALGORITHMS.find(name)
    text, described = _documented(kind)
    return _row(name, kind, parameters) | {
        "description": text,
        "guarantee": WITH_GUARANTEE if kind.keeps_guarantee else NO_GUARANTEE,
        "options": [
            {"name": option, "default": _default(field), "meaning": described.get(option, "")}
            for option, field in options_of(kind).items()
        ],
    }


def print_algorithm(facts: dict[str, Any], console: Console) -> None:
    """Print what `algorithm_facts` says."""
    console.print(f"[bold]{facts['name']}[/bold]: {escape(facts['paper'])}\n")
    console.print(facts["description"], markup=False, highlight=False)
    table = Table("option", "default", Column("meaning", overflow="fold"))
    for option in facts["options"]:
        table.add_row(*(escape(option[key]) for key in ("name", "default", "meaning")))
    console.print("", table)
    count = facts["messages_per_iteration"]
    sent = (
        f"{count} message{'' if count == 1 else 's'}, {format_bytes(facts['bytes_per_iteration'])}"
    )
    lines = {
        "known as": facts["known_as"],
        "sends": f"{sent} per iteration and neighbour",
        "needs": ", ".join(facts["needs"]) or "a connected graph",
        "allows": ", ".join(facts["allows"]) or "a fixed graph only",
        "protects": facts["protects"],
        "guarantee": facts["guarantee"],
    }
    for title, text in lines.items():
        console.print(f"{title:<10}{text}", markup=False, highlight=False)


def _row(name: str, kind: type[Algorithm], parameters: int) -> dict[str, Any]:
    return {
        "name": name,
        "paper": kind.paper,
        "known_as": kind.known_as,
        **_traffic(kind, parameters),
        "needs": ["a server"] if kind.needs_server else list(kind.requires),
        "allows": kind.tolerates.allowed,
        "protects": kind.protects,
    }


def _documented(kind: type[Algorithm]) -> tuple[str, dict[str, str]]:
    """The docstring above "Args:", and what it says about each option."""
    text, _, below = (inspect.getdoc(kind) or "").partition("\nArgs:\n")
    options: dict[str, str] = {}
    for line in below.splitlines():
        if not line.startswith("    "):
            break
        name, colon, meaning = line.strip().partition(": ")
        if line[4] != " " and colon:
            options[name] = meaning
        elif options:
            options[list(options)[-1]] += f" {line.strip()}"
    return text.strip(), options


def _default(option: dataclasses.Field[Any]) -> str:
    if option.default is not dataclasses.MISSING:
        return str(option.default)
    if option.default_factory is not dataclasses.MISSING:
        return str(option.default_factory())
    return "required"


def algorithm_table(parameters: int) -> Table:
    table = Table(
        show_lines=True,
        caption="Messages and bytes are per iteration and out-neighbour (with a server: per "
        "client, up and down; with a sum over all clients: per edge of a spanning tree and "
        f"direction), for {parameters:,} parameters and default options. Needs are beyond a "
        "connected graph whose weights mix.",
    )
    table.add_column("algorithm", overflow="fold", max_width=28)
    table.add_column("sends", justify="right", no_wrap=True)
    for name in ("needs", "protects"):
        table.add_column(name, overflow="fold")
    for row in algorithm_rows(parameters):
        count = row["messages_per_iteration"]
        needs = [need for need in row["needs"] if need not in ("connected", "primitive")]
        table.add_row(
            f"[bold]{row['name']}[/bold]\n{escape(row['known_as'])}\n"
            f"[dim]{escape(row['paper'])}[/dim]",
            f"{count} message{'' if count == 1 else 's'}\n"
            f"{format_bytes(row['bytes_per_iteration'])}",
            ", ".join(needs),
            row["protects"],
        )
    return table


def _traffic(kind: type[Algorithm], parameters: int) -> dict[str, int]:
    """Messages and bytes per directed edge, or between one client and the server and back.

    Of a sum over all clients: per edge of the spanning tree and direction.
    """
    clients = 3
    parts = list(torch.zeros(clients, 1, parameters))
    task = Task(
        torch.zeros(parameters),
        parts,
        loss=lambda theta, x: (theta - x).square().sum(),
        batch_size=1,
    )
    # This graph meets the requirements of all algorithms.
    graph = Topology.ring(clients).mixing("metropolis", lazy=True)
    # Options without a default are step sizes.
    options = {
        name: 0.1
        for name, field in options_of(kind).items()
        if field.default is field.default_factory is dataclasses.MISSING
    }
    # Noise does not change what is sent.
    promise = Privacy(epsilon=math.inf) if kind.keeps_guarantee else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Caution)
        made = run(
            task,
            kind(**options),
            graph,
            steps=1,
            gradients="looped",
            privacy=promise,
            transcript=True,
        )
    assert made.transcript is not None
    at_start, at_end = (
        [message for message in made.transcript.messages if message.tick == tick] for tick in (0, 1)
    )
    links, per_link = len(graph.edges), len(at_end)
    if any(message.verb == "average" for message in at_end):
        links = clients
    elif kind.needs_total:
        # One message up and one down, on each edge of the tree.
        links, per_link = 2 * (clients - 1), len(at_end) // 2
    before, after = (record.bytes_sent for record in made.history)
    return {
        "messages_per_iteration": per_link,
        "messages_at_start": len(at_start),
        "bytes_per_iteration": (after - before) // links,
    }
