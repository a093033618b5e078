"""From a configuration to what runs: graph, data, partition, task, algorithm."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tacit import data, models
from tacit.algorithms.algorithm import Algorithm, gradients_per_step
from tacit.data.partition import Partition, partition
from tacit.errors import Misuse, unknown
from tacit.experiment.config import Config, GraphSection, ModelSection
from tacit.experiment.options import by_path, make_algorithm
from tacit.graph import Graph, Topology
from tacit.tasks import Task
from tacit.tasks.parts import Parts

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


@dataclass(frozen=True, eq=False)
class Experiment:
    """Everything a run needs, made from one configuration."""

    config: Config
    dataset: data.Dataset
    partition: Partition
    graph: Graph
    task: Task
    algorithm: Algorithm
    round_length: int

    @property
    def steps(self) -> int:
        """Iterations of the whole run."""
        return self.config.run.rounds * self.round_length


def build(config: Config, folder: Path | None = None, dataset: data.Dataset | None = None) -> Experiment:
    """Make everything a configuration asks for, so that what is wrong shows before anything runs.

    `folder` is the data folder; a `dataset` that was loaded before can be handed in.
    """
    seed = config.run.seed
    graph = make_graph(config.graph, seed)
    check_device(config.run.device)
    name, options = config.algorithm.name, config.algorithm.options
    draft = make_algorithm(
        name, options, round_length=1, steps=1
    )  # to refuse what is wrong before loading data
    graph.require(*draft.requires, by=draft.name)
    if dataset is None:
        section = config.data
        dataset = data.load(
            section.name,
            folder,
            limit_train=section.limit_train,
            limit_test=section.limit_test,
            **section.options,
        )
    parts = partition(
        config.partition.kind,
        dataset.train.y.numpy(),
        graph.clients,
        seed=seed if config.partition.seed is None else config.partition.seed,
        minimum=config.run.batch_size,
        **config.partition.options,
    )
    task = Task.from_module(
        make_model(config.model, dataset),
        Parts.split((dataset.train.x, dataset.train.y), parts.indices),
        batch_size=config.run.batch_size,
        test=(dataset.test.x, dataset.test.y),
        init=config.model.init,
    )
    epoch = config.run.iterations_per_round or task.steps_per_epoch
    # Local steps belong to the iteration they follow: a round is one pass over the data however it is cut.
    round_length = max(1, epoch // gradients_per_step(draft))
    algorithm = make_algorithm(name, options, round_length, round_length * config.run.rounds)
    return Experiment(config, dataset, parts, graph, task, algorithm, round_length)


def make_graph(section: GraphSection, seed: int) -> Graph:
    """The topology and its weights."""
    if section.kind not in TOPOLOGIES:
        raise unknown(f"graph.kind = {section.kind!r} is not a kind of graph.", section.kind, TOPOLOGIES)
    make = TOPOLOGIES[section.kind]
    seed = seed if section.seed is None else section.seed
    topology = make(**_topology_options(section, make, seed))
    if section.mixing == "matrix":
        return Graph.from_matrix(_read_matrix(section.matrix), topology)
    if section.matrix is not None:
        raise Misuse(f"graph.matrix = {section.matrix!r} is set.", 'Set graph.mixing = "matrix" to use it.')
    options: dict[str, Any] = {}
    if section.kappa is not None:
        options["kappa"] = section.kappa
    if section.random_weights:
        options["seed"] = seed
    return topology.mixing(section.mixing, lazy=section.lazy, **options)


def make_model(section: ModelSection, dataset: data.Dataset) -> nn.Module:
    """The model for a dataset's inputs and classes, named or the user's own."""
    if ":" not in section.name:
        return models.build(section.name, dataset.train.x.shape[1:], dataset.classes, **section.options)
    make = by_path(section.name, "model.name")
    try:
        module = make(**section.options)
    except TypeError as problem:
        raise Misuse(
            f"model.name = {section.name!r} cannot be made: {problem}.", "Check its options."
        ) from None
    if not isinstance(module, nn.Module):
        raise Misuse(f"model.name = {section.name!r} is not a torch.nn.Module.", "Name a module class.")
    return module


def check_device(device: str) -> None:
    """Refuse a device that is not here."""
    try:
        kind = torch.device(device).type
    except RuntimeError:
        raise Misuse(f"run.device = {device!r} is not a device.", 'Use "cpu" or "cuda".') from None
    if kind == "cuda" and not torch.cuda.is_available():
        raise Misuse(f"run.device = {device!r}, but this machine has no CUDA device.", 'Use "cpu".')


def _topology_options(section: GraphSection, make: Callable[..., Topology], seed: int) -> dict[str, Any]:
    """The options of one kind of graph; `clients` is what the constructors call n."""
    parameters = inspect.signature(make).parameters
    names = {"clients" if name == "n" else name: name for name in parameters}
    options: dict[str, Any] = {}
    for key, value in section.options.items():
        if key not in names:
            raise unknown(f"graph.{key} is not an option of kind {section.kind!r}.", key, names)
        options[names[key]] = value
    for key, name in names.items():
        if parameters[name].default is inspect.Parameter.empty and name not in options:
            raise Misuse(f"graph.kind = {section.kind!r} needs graph.{key}.", f"Set {key} in [graph].")
    if "seed" in parameters:
        options["seed"] = seed
    return options


def _read_matrix(file: str | None) -> Any:
    if file is None:
        raise Misuse('graph.mixing = "matrix" needs graph.matrix.', "Name a file with the numbers of W.")
    try:
        if file.endswith(".npy"):
            return np.load(file, allow_pickle=False)
        return np.loadtxt(file, delimiter="," if "," in Path(file).read_text()[:4096] else None, ndmin=2)
    except (OSError, ValueError) as problem:
        raise Misuse(
            f"graph.matrix = {file!r} cannot be read: {problem}.", "One row of W per line."
        ) from None
