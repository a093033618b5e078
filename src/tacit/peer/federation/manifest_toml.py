"""The tables of a manifest as TOML: members and topology, written to be read by people and read strictly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import numpy as np
from scipy import sparse

from tacit.config.toml import to_toml
from tacit.core.errors import Misuse, unknown_name
from tacit.graph import Graph, Topology
from tacit.peer.federation.roster import Member

LARGEST_NUMBER = 2**31  # of generations and members
REMEDY = "Ask the operator for the manifest as it was signed."
KINDS = {
    str: "a text",
    int: "a whole number",
    bool: "true or false",
    list: "a list",
    dict: "a table",
}
T = TypeVar("T")

# --- writing -------------------------------------------------------------------------------------------


def roster_text(members: Iterable[Member]) -> str:
    """A table for each member."""
    return "\n".join(
        "[[member]]\n"
        + keys(
            {
                "name": member.name,
                "address": member.address,
                "number": member.number,
                "since": member.since,
                "mask_key": member.mask_key.hex(),
            }
        )
        for member in members
    )


def topology_text(graph: Graph) -> str:
    """Edges (source, target), an undirected one once; weights (i, j, wᵢⱼ) where they are not zero, to the last bit."""
    edges = [[a, b] for a, b in graph.edges.tolist() if graph.directed or a < b]
    entries = graph.weights.tocoo()
    weights = [
        list(entry)
        for entry in zip(
            entries.row.tolist(), entries.col.tolist(), entries.data.tolist(), strict=True
        )
    ]
    head = {"name": graph.topology.name, "rule": graph.rule, "directed": graph.directed}
    return f"[topology]\n{keys(head)}edges = {_rows(edges)}\nweights = {_rows(weights)}\n"


def _rows(rows: list[list[Any]]) -> str:
    """A list of lists, one line for each; Python writes the shortest digits that give the same number again."""
    return "[\n" + "".join(f"  {row!r},\n" for row in rows) + "]"


def keys(values: dict[str, Any]) -> str:
    """Keys with plain values, a line each."""
    return to_toml({"": values}).split("\n", 1)[1]


# --- reading -------------------------------------------------------------------------------------------


def read_member(table: Any) -> Member:
    """One member, its names and addresses not yet checked."""
    if not isinstance(table, dict):
        raise Misuse("member is not a list of tables.", REMEDY)
    refuse_others(table, ["name", "address", "number", "since", "mask_key"], "in [[member]]")
    name, address, key = (get(table, part, str) for part in ("name", "address", "mask_key"))
    number, since = whole(table, "number"), whole(table, "since")
    try:
        return Member(name, address, number, bytes.fromhex(key), since)
    except ValueError:
        raise Misuse(f"mask_key = {key!r:.80} is not hexadecimal.", REMEDY) from None


def read_graph(table: dict[str, Any], clients: int) -> Graph:
    """The graph as it was, to the last bit."""
    refuse_others(table, ["name", "rule", "directed", "edges", "weights"], "in [topology]")
    name, rule = _printable(table, "name"), _printable(table, "rule")
    edges = get(table, "edges", list)
    for edge in edges:
        if not _is_row(edge, [int, int], clients):
            raise Misuse(
                f"edges: {edge!r:.80} is not a pair of clients from 0 to {clients - 1}.", REMEDY
            )
    entries = get(table, "weights", list)
    for entry in entries:
        if not _is_row(entry, [int, int, float], clients):
            raise Misuse(f"weights: {entry!r:.80} is not (client, client, weight).", REMEDY)
    if len({(i, j) for i, j, _ in entries}) < len(entries):
        raise Misuse("weights: one is given twice.", REMEDY)
    places = np.array([entry[:2] for entry in entries], dtype=np.int64).reshape(-1, 2)
    numbers = np.array([entry[2] for entry in entries], dtype=np.float64)
    weights = sparse.csr_array((numbers, (places[:, 0], places[:, 1])), shape=(clients, clients))
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return Graph(Topology(clients, pairs, get(table, "directed", bool), name), weights, rule)


def _is_row(row: Any, kinds: list[type], clients: int) -> bool:
    """A row of these very types (True is not 1) whose first two entries number clients."""
    return (
        isinstance(row, list)
        and [type(value) for value in row] == kinds
        and all(0 <= client < clients for client in row[:2])
    )


def get(table: dict[str, Any], key: str, kind: type[T]) -> T:
    """The value of a key, which must be of this very type."""
    value = table.get(key)
    if type(value) is not kind:
        raise Misuse(f"{key} = {value!r:.80} is not {KINDS[kind]}.", REMEDY)
    return value


def whole(table: dict[str, Any], key: str) -> int:
    """A whole number that is not negative and not absurd."""
    value = get(table, key, int)
    if not 0 <= value < LARGEST_NUMBER:
        raise Misuse(f"{key} is out of range.", REMEDY)
    return value


def _printable(table: dict[str, Any], key: str) -> str:
    """A short text that does nothing to a terminal."""
    value = get(table, key, str)
    if not value.isprintable() or len(value) > 200:
        raise Misuse(f"{key} in [topology] is not a short line of text.", REMEDY)
    return value


def refuse_others(table: dict[str, Any], known: list[str], where: str) -> None:
    """Refuse a key that nobody knows."""
    for key in table:
        if key not in known:
            raise unknown_name(f"there is no key {key!r} {where}.", key, known)
