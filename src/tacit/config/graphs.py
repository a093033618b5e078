"""The graph of a configuration."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tacit.config.options import call_with_options, check_names
from tacit.config.sections import Config, GraphSection
from tacit.core.errors import Misuse, prefix_errors, unknown_name
from tacit.graph import (
    Absence,
    Graph,
    GraphSchedule,
    Matchings,
    Participation,
    Phases,
    Topology,
    World,
)
from tacit.graph.named import TOPOLOGIES

# Kinds of graphs that change, and the key that each of them needs or may have.
CHANGING = {"matchings": "of", "phases": "phases"}


def make_world(config: Config) -> World:
    """The graph of each iteration, who takes part in it, and which messages are late."""
    section, seed = config.graph, config.run.seed
    _check_changing_keys(section)
    schedule: GraphSchedule | None = None
    if section.kind == "matchings":
        schedule = _matchings(section, seed)
    elif section.kind == "phases":
        schedule = _phases(section, seed)
    graph = make_graph(section, seed) if schedule is None else schedule.union
    participation = None
    if (chosen := config.participation) is not None:
        absences = []
        for number, absence in enumerate(chosen.absences, start=1):
            with prefix_errors(f"[[participation.absences]] {number}"):
                absences.append(Absence(**absence.model_dump()))
        late = None if chosen.stragglers is None else tuple(chosen.stragglers)
        with prefix_errors("[participation]"):
            participation = Participation(chosen.share, tuple(absences), chosen.delay, late)
    return World(graph, schedule, participation, seed)


def _check_changing_keys(section: GraphSection) -> None:
    """Raise Misuse for a key of a kind of graph that changes with another kind."""
    for kind, key in CHANGING.items():
        if getattr(section, key) is not None and section.kind != kind:
            raise Misuse(
                f"graph.{key} is set, but graph.kind = {section.kind!r}.",
                f'Set graph.kind = "{kind}", or remove {key}.',
            )


def _matchings(section: GraphSection, seed: int) -> Matchings:
    seed = seed if section.seed is None else section.seed
    if section.mixing != "metropolis" or section.lazy:
        raise Misuse(
            "Matched clients average their rows: graph.kind = 'matchings' has its own weights.",
            "Remove mixing and lazy from [graph].",
        )
    if section.of is None:
        if "clients" not in section.options:
            raise Misuse(
                "graph.kind = 'matchings' needs graph.clients, or another graph in [graph.of].",
                "Set clients in [graph], e.g. clients = 8.",
            )
        complete = section.model_copy(update={"kind": "complete"})
        return Matchings(_make_topology(complete, seed), section.seed)
    check_names("graph", section.options, [], "kind 'matchings' with [graph.of]")
    with prefix_errors("[graph.of]"):
        return Matchings(_make_topology(section.of, seed), section.seed)


def _phases(section: GraphSection, seed: int) -> Phases:
    if not section.phases:
        raise Misuse(
            "graph.kind = 'phases' needs the graphs.",
            "Add [[graph.phases]] sections, each with kind and iterations.",
        )
    check_names("graph", section.options, [], "kind 'phases'")
    for key, default in (("mixing", "metropolis"), ("lazy", False), ("kappa", None),
                         ("random_weights", False), ("matrix", None)):  # fmt: skip
        if getattr(section, key) != default:
            raise Misuse(
                f"graph.{key} has no meaning with kind 'phases'.", f"Set {key} in [[graph.phases]]."
            )
    seed = seed if section.seed is None else section.seed
    phases = []
    for number, phase in enumerate(section.phases, start=1):
        with prefix_errors(f"[[graph.phases]] {number}"):
            phases.append((make_graph(phase, seed), phase.iterations))
    with prefix_errors("[[graph.phases]]"):
        return Phases(phases)


def make_graph(section: GraphSection, seed: int) -> Graph:
    """Make the topology and its weights; `seed` is used where the section has none."""
    if section.kind in CHANGING:
        raise Misuse(
            f"graph.kind = {section.kind!r} changes over time, and here the graph must be fixed.",
            "Choose another kind: only simulations have graphs that change.",
        )
    _check_changing_keys(section)
    seed = seed if section.seed is None else section.seed
    if section.kind == "matrix":
        check_names("graph", section.options, ["matrix"], "kind 'matrix'")
        topology = None
    else:
        topology = _make_topology(section, seed)
    if topology is None or section.mixing == "matrix":
        matrix = _read_matrix(section.matrix)
        with prefix_errors(f"graph.matrix = {section.matrix!r}"):
            return Graph.from_matrix(matrix, topology)
    if section.matrix is not None:
        raise Misuse(
            f"graph.matrix = {section.matrix!r} is set.", 'Set graph.mixing = "matrix" to use it.'
        )
    options: dict[str, Any] = {"lazy": section.lazy}
    if section.kappa is not None:
        options["kappa"] = section.kappa
    if section.random_weights:
        options["seed"] = seed
    with prefix_errors("[graph]"):
        return topology.mixing(section.mixing, **options)


def takes_clients(kind: str) -> bool:
    """Whether a kind of graph exists for any number of clients."""
    make = TOPOLOGIES.get(kind)
    return make is not None and bool({"n", "clients"} & inspect.signature(make).parameters.keys())


def with_clients(section: GraphSection, clients: int) -> GraphSection:
    """The section for so many clients, where it leaves their number open."""
    if not clients or "clients" in section.options or not takes_clients(section.kind):
        return section
    return GraphSection.model_validate({**section.model_dump(), "clients": clients})


def _make_topology(section: GraphSection, seed: int) -> Topology:
    kind = section.kind
    if kind not in TOPOLOGIES:
        kinds = [*TOPOLOGIES, "matrix", *CHANGING]
        raise unknown_name(f"graph.kind = {kind!r} is not a kind of graph.", kind, kinds)
    clients = section.options.get("clients")
    if isinstance(clients, int) and clients < 1:
        raise Misuse(f"graph.clients = {clients} is too small.", "Give at least 1.")
    owner = f"graph.kind = {kind!r}"
    return call_with_options("graph", owner, TOPOLOGIES[kind], section.options, seed=seed)


def _read_matrix(file: str | None) -> Any:
    if file is None:
        raise Misuse(
            "The weights come from a file, but graph.matrix is not set.",
            "Name a file with the numbers of W.",
        )
    try:
        if file.endswith(".npy"):
            return np.load(file, allow_pickle=False)
        separator = "," if "," in Path(file).read_text(encoding="utf-8")[:4096] else None
        with warnings.catch_warnings():
            # For an empty file, numpy only warns.
            warnings.simplefilter("error")
            return np.loadtxt(file, delimiter=separator, ndmin=2)
    except (OSError, EOFError, ValueError, UserWarning) as problem:
        raise Misuse(
            f"graph.matrix = {file!r} cannot be read: {str(problem).split(';')[0].rstrip('.')}.",
            "Give the numbers of W as text, one row per line, or as a .npy file.",
        ) from None
