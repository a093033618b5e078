"""What all nodes agree on: their graph, and the shape and classes of their data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import PositiveInt

from tacit import data
from tacit.algorithms.algorithm import Algorithm, options_of
from tacit.config.algorithms import (
    algorithm_class,
    make_algorithm,
    promise_of,
    with_robust_mixing,
)
from tacit.config.graphs import make_graph, takes_clients
from tacit.config.loading import make_config, with_keys
from tacit.config.options import validate_value
from tacit.config.own_data import (
    check_disclosure,
    check_own_keys,
    declared_spec,
    declared_target,
)
from tacit.config.sections import OWN_DATA, Config, GraphSection
from tacit.config.tasks import make_model
from tacit.core.errors import Misuse, prefix_errors, unknown_name
from tacit.data.own.loading import class_names_of, disclosed
from tacit.data.own.sources import PLACEHOLDER
from tacit.graph import Graph, Topology
from tacit.peer.federation.absence import AbsenceRules, neighbour_counts
from tacit.peer.federation.manifest import Manifest
from tacit.privacy.guarantee import Privacy

EDGE_LIST = "edges"  # the graph.kind that lists its edges
MATRIX = "matrix"  # the graph.mixing that lists its weights


def initial_graph(config: Config, names: Sequence[str]) -> tuple[Graph, Config]:
    """The graph of a configuration, with one client per name, and the configuration of it."""
    options, kind = config.graph.options, config.graph.kind
    clients = options.get("clients", len(names))
    if clients != len(names):
        problem = f"graph.clients = {clients!r}, but there are {len(names)} nodes."
        raise Misuse(problem, "Leave graph.clients out: every node is a client.")
    if kind == EDGE_LIST and "edges" in options:
        pairs = edge_positions(options["edges"], names)
        directed = bool(options.get("directed", False))
        check_connected(Topology.from_edges(pairs, len(names), directed), names)
        config = with_keys(config, "graph", edges=pairs)
    if takes_clients(kind):
        config = with_keys(config, "graph", clients=len(names))
    graph = make_graph(config.graph, config.run.seed)
    if graph.clients != len(names):
        raise Misuse(
            f"graph.kind = {kind!r} has {graph.clients} clients, but there are {len(names)} nodes.",
            "Name as many nodes as the graph has clients, or choose another graph.",
        )
    check_connected(graph.topology, names)
    # The name of the topology would contain a path of this machine.
    if kind == "edge-file":
        topology = Topology(len(names), graph.edges, graph.directed, f"edges({len(names)})")
        graph = Graph(topology, graph.weights, graph.rule)
    return graph, config


def updated_graph(
    manifest: Manifest, names: Sequence[str], edges: Sequence[str] | None
) -> tuple[Graph, Config]:
    """The graph after a change of the roster.

    It has the same kind as before, or the remaining old edges and the given ones. The rule for the
    weights stays, except that a matrix is replaced by Metropolis weights (Sinkhorn if directed).
    """
    config, directed = manifest.config, manifest.graph.directed
    if config.graph.mixing == MATRIX:
        config = with_keys(config, "graph", mixing="sinkhorn" if directed else "metropolis")
    kind = config.graph.kind
    if edges is None and takes_clients(kind) and kind != EDGE_LIST:
        config = with_keys(config, "graph", clients=len(names))
        try:
            return make_graph(config.graph, config.run.seed), config
        except Misuse as problem:
            raise Misuse(
                f"A graph of kind {kind!r} cannot have {len(names)} nodes: {problem.problem}",
                "List the edges with --edges, e.g. --edges a:b,b:c.",
            ) from None
    ends = [[manifest.names[at] for at in edge] for edge in manifest.graph.edges.tolist()]
    pairs = [[names.index(a), names.index(b)] for a, b in ends if a in names and b in names]
    pairs += edge_positions(edges or [], names)
    check_connected(Topology.from_edges(pairs, len(names), directed), names)
    values = config.as_dict()
    # Options of the old kind of graph do not fit a list of edges.
    values["graph"] = {
        key: value for key, value in values["graph"].items() if key in GraphSection.model_fields
    } | {"kind": EDGE_LIST, "clients": len(names), "directed": directed, "edges": pairs}
    config = make_config(values)
    return make_graph(config.graph, config.run.seed), config


def edge_positions(edges: Any, names: Sequence[str]) -> list[list[int]]:
    """Edges as pairs of positions. Given as "a:b", as pairs of names or as pairs of positions."""
    remedy = 'Write node:node, e.g. "a:b"; in a directed graph the first sends to the second.'
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
            raise unknown_name(f"An edge ends at {end!r}, which is not a node.", end, names)
        return names.index(end.strip())
    if isinstance(end, bool) or not isinstance(end, int):
        raise Misuse(f"{end!r} is not an end of an edge.", remedy)
    return end


def check_connected(topology: Topology, names: Sequence[str]) -> None:
    components = topology.components()
    if not components.any():
        return
    smallest = np.flatnonzero(components == np.bincount(components).argmin())
    apart = ", ".join(names[at] for at in smallest[:5])
    problem = f"The graph is not connected: {apart} cannot reach all other nodes."
    raise Misuse(problem, "List the edges with --edges, e.g. --edges a:b,b:c.")


def check_runnable(config: Config, graph: Graph) -> list[str]:
    """Raise Misuse if nodes cannot run a configuration; return the algorithm's cautions."""
    name = config.algorithm.name
    if getattr(algorithm_class(name, "algorithm.name"), "needs_server", False):
        problem = f"algorithm.name = {name!r} needs a server, and a federation has none."
        raise Misuse(problem, "Choose a decentralized algorithm: `tacit algorithms` lists them.")
    if config.participation is not None:
        raise Misuse(
            "[participation] is for simulations: it decides which clients are absent or late.",
            "Remove the section; `patience` says what nodes do without absent ones.",
        )
    _check_given(config)
    if config.task is None and config.run.iterations_per_round is None:
        raise Misuse(
            "run.iterations_per_round is not set, and nodes do not share how much data they have.",
            "Set the length of a round, e.g. --set run.iterations_per_round=20.",
        )
    draft = make_algorithm(name, config.algorithm.options, round_length=1, steps=1)
    _check_promise(config, draft, graph)
    algorithm = with_robust_mixing(config, draft)
    with prefix_errors("[graph]"):
        algorithm.check_graph(graph)
    told = disclosed_by(config, graph.clients)
    check_disclosure(config, told)
    if told and graph.directed:
        raise Misuse(
            "Means and deviations of columns need a masked sum, and a directed graph has none.",
            "Agree on public ones in [data.schema], e.g. age = { mean = 50, std = 20 }; or set "
            "standardize = false, or choose an undirected graph.",
        )
    # A user's own model may not be installed on this machine.
    if config.task is None and ":" not in config.model.name:
        with prefix_errors("[model]"):
            make_model(config.model, *agreed_data(config), config.run.seed)
    return algorithm.cautions(graph)


def _check_given(config: Config) -> None:
    """Raise Misuse if several keys are missing, with all of them; one has a message of its own."""
    kind = algorithm_class(config.algorithm.name, "algorithm.name")
    missing = [
        f"algorithm.{name}"
        for name, option in options_of(kind).items()
        if option.default is option.default_factory is MISSING
        and name not in config.algorithm.options
    ]
    if config.task is None and config.run.iterations_per_round is None:
        missing.append("run.iterations_per_round")
    if kind.keeps_guarantee:
        given = {} if config.privacy is None else config.privacy.model_dump(exclude_none=True)
        missing += [f"privacy.{key}" for key in ("epsilon", "samples") if key not in given]
    section = config.data
    if config.task is None and section.name == OWN_DATA and section.label is None:
        needed = ("shape", "classes") if declared_target(section) is None else ("shape",)
        missing += [f"data.{key}" for key in needed if getattr(section, key) is None]
    if len(missing) > 1:
        raise Misuse(
            f"{len(missing)} keys are not set that all nodes must agree on: {', '.join(missing)}.",
            "Add them to the configuration, or give each with --set, e.g. "
            "--set run.iterations_per_round=20. Nodes do not share how much data they have.",
        )


def _check_promise(config: Config, algorithm: Algorithm, graph: Graph) -> None:
    """Raise Misuse if [privacy] does not suit the algorithm or the number of clients."""
    promise = promise_of(config, algorithm)
    if promise is None:
        return
    with prefix_errors("[privacy]"):
        promise.check(samples=promise.samples, clients=graph.clients)
        if promise.samples is None:
            raise Misuse(
                "samples is not set, and nodes do not share how much data they have.",
                "Agree on the number of training samples of all nodes, e.g. samples = 60000.",
            )


def with_sampling_rate(config: Config, clients: int) -> Config:
    """The configuration with the sampling rate of the first roster, which later ones keep.

    The accountant counts on one rate for the whole run.
    """
    section = config.privacy
    if section is None or section.samples is None:
        return config
    batch = Privacy(**section.model_dump()).expected_batch(
        section.samples, clients * config.run.batch_size
    )
    privacy = section.model_copy(update={"sampling_rate": batch / section.samples})
    return config.model_copy(update={"privacy": privacy})


def absence_rules(
    config: Config, graph: Graph, patience: str, min_neighbours: int | None
) -> AbsenceRules:
    """What members do without others; by default with the neighbours that the algorithm needs.

    If the graph has fewer anyway, there is no such limit; see `absence_cautions`.
    """
    if min_neighbours is None:
        kind = algorithm_class(config.algorithm.name, "algorithm.name")
        wanted = getattr(kind, "protecting_neighbours", 1)
        min_neighbours = wanted if min(neighbour_counts(graph)) >= wanted else 1
    return AbsenceRules(patience, min_neighbours)


def absence_cautions(manifest: Manifest) -> list[str]:
    """Sentences that warn an operator of what can happen when members are absent."""
    rules, names = manifest.absence, manifest.names
    kind = algorithm_class(manifest.config.algorithm.name, "algorithm.name")
    wanted = getattr(kind, "protecting_neighbours", 1)
    found = []
    if rules.min_neighbours < wanted:
        counts = neighbour_counts(manifest.graph)
        few = [name for name, count in zip(names, counts, strict=True) if count < wanted]
        reason = f"{', '.join(few[:5])} have fewer" if few else "the operator set it"
        name, least = manifest.config.algorithm.name, rules.min_neighbours
        found.append(
            f"min_neighbours = {least}, as {reason}: {name} protects nodes with {wanted} "
            "neighbours or more"
        )
    if rules.seconds < math.inf and len(names) < 4:
        found.append(
            f"patience = {rules.patience!r} has little effect with {len(names)} nodes: those who "
            "are left must be a majority of all, and have enough neighbours"
        )
    return found


def disclosed_by(config: Config, clients: int) -> str:
    """What nodes tell each other to prepare their data, in words; empty if it is nothing."""
    if config.task is not None or not config.data.is_own or config.data.label is None:
        return ""
    return disclosed(declared_spec(config.data), clients)


def without_folders(config: Config) -> Config:
    """The configuration with names of data files as nodes find them, in folders of their own."""
    section = config.data
    if config.task is not None or not section.is_own:
        return config
    names = {}
    if section.files is not None:
        parts = Path(section.files).parts
        first = next((at for at, part in enumerate(parts) if PLACEHOLDER in part), len(parts) - 1)
        names["files"] = "/".join(parts[first:])
    for key in ("file", "test"):
        if isinstance(name := getattr(section, key), str):
            names[key] = Path(name).name
    return with_keys(config, "data", **names)


def agreed_data(config: Config) -> tuple[tuple[int, ...], int]:
    """The shape of one input and the number of classes, which is 0 for a number to predict.

    Raises:
        Misuse: They are not agreed on.
    """
    section, options = config.data, config.data.options
    if section.name != OWN_DATA:
        with prefix_errors("[data]"):
            known = data.describe(section.name)
        if "features" in options and "features" in known.options:
            features = validate_value("data.features", options["features"], PositiveInt)
            return (features,), known.classes
        return known.shape, known.classes
    check_own_keys(section)
    if section.validation is not None:
        problem = "[data]: validation is set, but nodes are evaluated on their test samples."
        raise Misuse(problem, "Remove it: choose options in a simulation.")
    if section.label is not None:
        spec = declared_spec(section)
        return (spec.width,), len(spec.classes)
    target = declared_target(section)
    for key in ("shape", "classes") if target is None else ("shape",):
        if getattr(section, key) is None:
            problem = f"[data]: own data need {key}, which is not set."
            raise Misuse(
                problem,
                "Add what all nodes agree on, e.g. shape = [30] and classes = 2; or for tables "
                "label, classes and [data.schema].",
            )
    if not section.shape:
        raise Misuse(f"data.shape = {section.shape} is not possible.", "Give one number or more.")
    with prefix_errors("[data]"):
        return tuple(section.shape), len(class_names_of(section.classes)) if target is None else 0
