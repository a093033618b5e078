"""The graph that a configuration asks for."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np

from tacit.config.options import prefix_errors, validate_value
from tacit.config.sections import GraphSection
from tacit.core.errors import Misuse, unknown
from tacit.graph import Graph, Topology

TOPOLOGIES: dict[str, Callable[..., Topology]] = {
    "ring": Topology.ring,
    "directed-ring": Topology.directed_ring,
    "complete": Topology.complete,
    "star": Topology.star,
    "grid": Topology.grid,
    "torus": Topology.torus,
    "random-regular": Topology.random_regular,
    "erdos-renyi": Topology.erdos_renyi,
    "random-geometric": Topology.random_geometric,
    "exponential": Topology.exponential,
    "random-directed": Topology.random_directed,
    "edges": Topology.from_edges,
    "edge-file": Topology.from_edge_file,
}


def make_graph(section: GraphSection, seed: int) -> Graph:
    """The topology and its weights."""
    if section.kind == "matrix":
        return _graph_of_matrix(section)
    if section.kind not in TOPOLOGIES:
        kinds = [*TOPOLOGIES, "matrix"]
        raise unknown(f"graph.kind = {section.kind!r} is not a kind of graph.", section.kind, kinds)
    make = TOPOLOGIES[section.kind]
    seed = seed if section.seed is None else section.seed
    options = _topology_options(section, make, seed)
    with prefix_errors("[graph]"):
        topology = make(**options)
    if section.mixing == "matrix":
        matrix = _read_matrix(section.matrix)
        with prefix_errors(f"graph.matrix = {section.matrix!r}"):
            return Graph.from_matrix(matrix, topology)
    if section.matrix is not None:
        raise Misuse(
            f"graph.matrix = {section.matrix!r} is set.", 'Set graph.mixing = "matrix" to use it.'
        )
    weighing: dict[str, Any] = {}
    if section.kappa is not None:
        weighing["kappa"] = section.kappa
    if section.random_weights:
        weighing["seed"] = seed
    with prefix_errors("[graph]"):
        return topology.mixing(section.mixing, lazy=section.lazy, **weighing)


def _graph_of_matrix(section: GraphSection) -> Graph:
    """The graph whose edges are where a given W is not zero."""
    for key in section.options:
        raise unknown(f"graph.{key} is not an option of kind 'matrix'.", key, ["matrix"])
    with prefix_errors(f"graph.matrix = {section.matrix!r}"):
        return Graph.from_matrix(_read_matrix(section.matrix))


def _topology_options(
    section: GraphSection, make: Callable[..., Topology], seed: int
) -> dict[str, Any]:
    """The options of one kind of graph; `clients` is what the constructors call n."""
    parameters, hints = inspect.signature(make).parameters, get_type_hints(make)
    names = {"clients" if name == "n" else name: name for name in parameters}
    options: dict[str, Any] = {}
    for key, value in section.options.items():
        if key not in names:
            raise unknown(f"graph.{key} is not an option of kind {section.kind!r}.", key, names)
        options[names[key]] = validate_value(f"graph.{key}", value, hints[names[key]])
    if (clients := options.get("n", 1)) < 1:
        raise Misuse(f"graph.clients = {clients} is too small.", "Give at least 1.")
    for key, name in names.items():
        if parameters[name].default is inspect.Parameter.empty and name not in options:
            raise Misuse(
                f"graph.kind = {section.kind!r} needs graph.{key}.", f"Set {key} in [graph]."
            )
    if "seed" in parameters:
        options["seed"] = seed
    return options


def _read_matrix(file: str | None) -> Any:
    if file is None:
        raise Misuse(
            "A matrix is asked for, but graph.matrix is not set.",
            "Name a file with the numbers of W.",
        )
    try:
        if file.endswith(".npy"):
            return np.load(file, allow_pickle=False)
        separator = "," if "," in Path(file).read_text(encoding="utf-8")[:4096] else None
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # numpy only warns of an empty file
            return np.loadtxt(file, delimiter=separator, ndmin=2)
    except (OSError, EOFError, ValueError, UserWarning) as problem:
        raise Misuse(
            f"graph.matrix = {file!r} cannot be read: {str(problem).split(';')[0].rstrip('.')}.",
            "Give the numbers of W as text, one row per line, or as a .npy file.",
        ) from None
