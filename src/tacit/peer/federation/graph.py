"""The graph of a federation: made for nodes that have names, and made anew when one joins or leaves."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit.algorithms.algorithm import cautions
from tacit.config.build import make_model
from tacit.config.graphs import TOPOLOGIES, make_graph
from tacit.config.options import algorithm_class, make_algorithm, prefix_errors
from tacit.config.loading import with_keys, make_config
from tacit.config.sections import Config, GraphSection
from tacit.core.errors import Misuse, unknown_name
from tacit.graph import Graph, Topology
from tacit.peer.federation.manifest import Manifest
from tacit.peer.node.local_data import expected

SPELLED_OUT = "edges"  # the kind of graph whose edges are said one by one
GIVEN = "matrix"  # the mixing whose weights are said one by one


def first_graph(config: Config, names: Sequence[str]) -> tuple[Graph, Config]:
    """The graph that a configuration asks for, with a client for each name, and the configuration of just that."""
    options, kind = config.graph.options, config.graph.kind
    asked = options.get("clients", len(names))
    if asked != len(names):
        raise Misuse(
            f"graph.clients = {asked!r}, and there are {len(names)} nodes.",
            "Leave graph.clients out: every node is a client.",
        )
    if kind == SPELLED_OUT and "edges" in options:
        pairs = positions(options["edges"], names)
        refuse_apart(
            Topology.from_edges(pairs, len(names), bool(options.get("directed", False))), names
        )
        config = with_keys(config, "graph", edges=pairs)
    if _takes_clients(kind):
        config = with_keys(config, "graph", clients=len(names))
    graph = make_graph(config.graph, config.run.seed)
    if graph.clients != len(names):
        raise Misuse(
            f"graph.kind = {kind!r} gives {graph.clients} clients, and there are {len(names)} nodes.",
            "Name as many nodes as the graph has clients, or choose another graph.",
        )
    refuse_apart(graph.topology, names)
    if kind == "edge-file":  # its name would be that of a file on this machine
        topology = Topology(len(names), graph.edges, graph.directed, f"edges({len(names)})")
        graph = Graph(topology, graph.weights, graph.rule)
    return graph, config


def next_graph(
    manifest: Manifest, names: Sequence[str], edges: Sequence[str] | None
) -> tuple[Graph, Config]:
    """The graph after a change of the roster: of the same kind, or the old edges that remain and those given.

    Weights are made by the same rule; those of a matrix by Metropolis's (Sinkhorn's where edges are directed).
    """
    config = manifest.config
    if config.graph.mixing == GIVEN:
        config = with_keys(
            config, "graph", mixing="sinkhorn" if manifest.graph.directed else "metropolis"
        )
    kind = config.graph.kind
    if edges is None and _takes_clients(kind) and kind != SPELLED_OUT:
        config = with_keys(config, "graph", clients=len(names))
        try:
            return make_graph(config.graph, config.run.seed), config
        except Misuse as problem:
            raise Misuse(
                f"A graph of kind {kind!r} cannot be made for {len(names)} nodes: {problem.problem}",
                "Say with --edges who talks to whom.",
            ) from None
    old = [member.name for member in manifest.members]
    place = {name: at for at, name in enumerate(names)}
    stay = [
        (old[a], old[b])
        for a, b in manifest.graph.edges.tolist()
        if {old[a], old[b]} <= place.keys()
    ]
    pairs = [[place[a], place[b]] for a, b in stay] + positions(edges or [], names)
    directed = manifest.graph.directed
    refuse_apart(Topology.from_edges(pairs, len(names), directed), names)
    known = {
        key: value
        for key, value in config.as_dict()["graph"].items()
        if key in GraphSection.model_fields
    }
    spelled = known | {
        "kind": SPELLED_OUT,
        "clients": len(names),
        "directed": directed,
        "edges": pairs,
    }
    config = make_config(config.as_dict() | {"graph": spelled})
    return make_graph(config.graph, config.run.seed), config


def positions(edges: Any, names: Sequence[str]) -> list[list[int]]:
    """Edges as pairs of positions; they may be written "a:b", as pairs of names, or as pairs of positions."""
    remedy = 'Write node:node, e.g. "a:b", where the first sends to the second.'
    if not isinstance(edges, list | tuple):
        raise Misuse(f"The edges {edges!r} are not a list.", remedy)
    pairs = []
    for edge in edges:
        ends = edge.split(":") if isinstance(edge, str) else edge
        if not isinstance(ends, list | tuple) or len(ends) != 2:
            raise Misuse(f"{edge!r} is not an edge.", remedy)
        pairs.append([_position(end, names, remedy) for end in ends])
    return pairs


def _position(end: Any, names: Sequence[str], remedy: str) -> int:
    if isinstance(end, str):
        if end.strip() not in names:
            raise unknown_name(f"An edge ends at {end!r}, which is no node.", end, names)
        return names.index(end.strip())
    if isinstance(end, bool) or not isinstance(end, int):
        raise Misuse(f"{end!r} is not an end of an edge.", remedy)
    return end


def refuse_apart(topology: Topology, names: Sequence[str]) -> None:
    """Refuse a graph in which somebody cannot be reached."""
    components = topology.components()
    if not components.any():
        return
    smallest = int(np.bincount(components).argmin())
    alone = [
        name for name, component in zip(names, components, strict=True) if component == smallest
    ]
    raise Misuse(
        f"The graph falls apart: {', '.join(alone[:5])} cannot exchange messages with all the others.",
        "Say with --edges who talks to whom, e.g. --edges a:b,b:c.",
    )


def check_plan(config: Config, graph: Graph) -> list[str]:
    """Refuse what nodes on their own cannot do; what the algorithm cautions about on this graph."""
    name = config.algorithm.name
    if getattr(algorithm_class(name, "algorithm.name"), "needs_server", False):
        raise Misuse(
            f"algorithm.name = {name!r} needs a server, and a federation has none.",
            "Choose one for graphs: `tacit algorithms` lists them.",
        )
    if config.task is None and config.run.iterations_per_round is None:
        raise Misuse(
            "run.iterations_per_round is not set, and no node knows how much data the others have.",
            "Set it, e.g. --set run.iterations_per_round=20: all rounds are of that length.",
        )
    algorithm = make_algorithm(name, config.algorithm.options, round_length=1, steps=1)
    with prefix_errors("[graph]"):
        graph.require(*algorithm.requires, by=algorithm.name)
    if (
        config.task is None and ":" not in config.model.name
    ):  # a model of one's own may not be on this machine
        with prefix_errors("[model]"):
            make_model(config.model, *expected(config), config.run.seed)
    return cautions(algorithm, graph)


def _takes_clients(kind: str) -> bool:
    """Whether a kind of graph is made for any number of clients."""
    return kind in TOPOLOGIES and bool(
        {"n", "clients"} & inspect.signature(TOPOLOGIES[kind]).parameters.keys()
    )
