"""Members and graph of a manifest as TOML: readable to write, strict to read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy import sparse

from tacit.config.toml import to_toml
from tacit.core.errors import Misuse, unknown_name
from tacit.graph import Graph, Topology
from tacit.peer.federation.roster import Member

MAX_NUMBER = 2**31  # of generations and members
MAX_CHARACTERS = 300  # of one text
REMEDY = "Get the manifest as it was signed from the operator."
TYPE_NAMES = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}


def format_members(members: Iterable[Member]) -> str:
    """One table [[member]] per member."""
    tables = [
        {
            "name": member.name,
            "address": member.address,
            "number": member.number,
            "since": member.since,
            "mask_key": member.mask_key.hex(),
        }
        for member in members
    ]
    return "\n".join(f"[[member]]\n{format_keys(table)}" for table in tables)


def format_graph(graph: Graph) -> str:
    """Edges (source, target) and nonzero weights (i, j, wᵢⱼ), exact; undirected edges once."""
    edges = [[a, b] for a, b in graph.edges.tolist() if graph.directed or a < b]
    entries = graph.weights.tocoo()
    columns = (entries.row.tolist(), entries.col.tolist(), entries.data.tolist())
    weights = [list(entry) for entry in zip(*columns, strict=True)]
    header = {"name": graph.topology.name, "rule": graph.rule, "directed": graph.directed}
    return (
        f"[topology]\n{format_keys(header)}edges = {_format_rows(edges)}\n"
        f"weights = {_format_rows(weights)}\n"
    )


def _format_rows(rows: list[list[Any]]) -> str:
    """A list of lists, one per line. `repr` gives the shortest digits that restore a float."""
    return "[\n" + "".join(f"  {row!r},\n" for row in rows) + "]"


def format_keys(values: dict[str, Any]) -> str:
    """Keys and values, one per line."""
    return to_toml({"": values}).split("\n", 1)[1]


def parse_member(table: Any) -> Member:
    """One member; `check_roster` checks its name, address and numbers."""
    types = {"name": str, "address": str, "number": int, "since": int, "mask_key": str}
    name, address, number, since, key = read_table(table, types, "in [[member]]")
    try:
        return Member(name, address, number, bytes.fromhex(key), since)
    except ValueError:
        raise Misuse(f"mask_key = {key!r:.80} is not hexadecimal.", REMEDY) from None


def parse_graph(table: Any, clients: int) -> Graph:
    """The graph, bit for bit as it was written."""
    types = {"name": str, "rule": str, "directed": bool, "edges": list, "weights": list}
    name, rule, directed, edges, entries = read_table(table, types, "in [topology]")
    for edge in edges:
        if not _is_row(edge, [int, int], clients):
            raise Misuse(
                f"edges: {edge!r:.80} is not a pair of clients from 0 to {clients - 1}.", REMEDY
            )
    for entry in entries:
        if not _is_row(entry, [int, int, float], clients):
            raise Misuse(f"weights: {entry!r:.80} is not (client, client, weight).", REMEDY)
    if len({(i, j) for i, j, _ in entries}) < len(entries):
        raise Misuse("weights: one is given twice.", REMEDY)
    places = np.array([entry[:2] for entry in entries], dtype=np.int64).reshape(-1, 2)
    numbers = np.array([entry[2] for entry in entries], dtype=np.float64)
    weights = sparse.csr_array((numbers, (places[:, 0], places[:, 1])), shape=(clients, clients))
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return Graph(Topology(clients, pairs, directed, name), weights, rule)


def _is_row(row: Any, types: list[type], clients: int) -> bool:
    """Whether a row has exactly these types (True is not 1) and begins with two clients."""
    return (
        isinstance(row, list)
        and [type(value) for value in row] == types
        and all(0 <= client < clients for client in row[:2])
    )


def read_table(table: Any, types: dict[str, type], where: str) -> list[Any]:
    """The values of these keys; raise Misuse for other keys, types, or values out of range."""
    if not isinstance(table, dict):
        raise Misuse(f"There is no table {where}.", REMEDY)
    for key in table:
        if key not in types:
            raise unknown_name(f"there is no key {key!r} {where}.", key, types)
    for key, expected in types.items():
        value = table.get(key)
        if type(value) is not expected:
            raise Misuse(f"{key} = {value!r:.80} is not {TYPE_NAMES[expected]}.", REMEDY)
        if isinstance(value, int) and not 0 <= value < MAX_NUMBER:
            raise Misuse(f"{key} is out of range.", REMEDY)
        # Texts are printed to terminals, so they must not control them.
        if isinstance(value, str) and not (value.isprintable() and len(value) <= MAX_CHARACTERS):
            raise Misuse(f"{key} {where} is not a short line of text.", REMEDY)
    return [table[key] for key in types]
