"""From a configuration to what runs: graph, data, partition, task, algorithm."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import torch
from torch import nn

from tacit import data, models
from tacit.algorithms.algorithm import Algorithm, gradients_per_step
from tacit.data.partition import Partition, partition
from tacit.errors import Misuse, unknown
from tacit.experiment.config import Config, DataSection, GraphSection, ModelSection
from tacit.experiment.options import by_path, make_algorithm, said_of, typed
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
PARTITION_OPTIONS = {"alpha": float, "k": int, "indices": list[list[int]]}


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
    # A first one, of no length, to refuse what is wrong before data is loaded.
    draft = make_algorithm(name, options, round_length=1, steps=1)
    with said_of("[graph]"):
        graph.require(*draft.requires, by=draft.name)
    if dataset is None:
        dataset = load_data(config.data, folder)
    parts = make_partition(config, dataset, graph.clients)
    with said_of("[model]"):
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
    options = _topology_options(section, make, seed)
    with said_of("[graph]"):
        topology = make(**options)
    if section.mixing == "matrix":
        matrix = _read_matrix(section.matrix)
        with said_of(f"graph.matrix = {section.matrix!r}"):
            return Graph.from_matrix(matrix, topology)
    if section.matrix is not None:
        raise Misuse(f"graph.matrix = {section.matrix!r} is set.", 'Set graph.mixing = "matrix" to use it.')
    weighing: dict[str, Any] = {}
    if section.kappa is not None:
        weighing["kappa"] = section.kappa
    if section.random_weights:
        weighing["seed"] = seed
    with said_of("[graph]"):
        return topology.mixing(section.mixing, lazy=section.lazy, **weighing)


def load_data(section: DataSection, folder: Path | None) -> data.Dataset:
    """The dataset, or as much of it as is asked for."""
    with said_of("[data]"):
        known = [*DataSection.model_fields, *data.describe(section.name).options]
        for key in section.options:
            if key not in known:
                raise unknown(f"{key} is not an option of {section.name}.", key, known)
        return data.load(
            section.name,
            folder,
            seed=section.seed,
            limit_train=section.limit_train,
            limit_test=section.limit_test,
            **section.options,
        )


def make_partition(config: Config, dataset: data.Dataset, clients: int) -> Partition:
    """Who gets which samples: at least one batch each."""
    section = config.partition
    for key, value in section.options.items():
        typed(f"partition.{key}", value, PARTITION_OPTIONS.get(key, Any))
    with said_of("[partition]"):
        return partition(
            section.kind,
            dataset.train.y.numpy(),
            clients,
            seed=config.run.seed if section.seed is None else section.seed,
            minimum=config.run.batch_size,
            **section.options,
        )


def make_model(section: ModelSection, dataset: data.Dataset) -> nn.Module:
    """The model for a dataset's inputs and classes, named or the user's own."""
    if ":" not in section.name:
        return models.build(section.name, dataset.train.x.shape[1:], dataset.classes, **section.options)
    make = by_path(section.name, "name")
    try:
        module = make(**section.options)
    except Exception as problem:  # whatever the user's code raises
        raise Misuse(f"name = {section.name!r} cannot be made: {problem}.", "Check its options.") from None
    if not isinstance(module, nn.Module):
        raise Misuse(f"name = {section.name!r} is not a torch.nn.Module.", "Name a module class.")
    _try_model(module, section.name, dataset)
    return module


def _try_model(module: nn.Module, name: str, dataset: data.Dataset) -> None:
    """Refuse a model of the user's that does not fit the data."""
    x = dataset.train.x[:2]
    try:
        with torch.no_grad():
            shape = tuple(module(x).shape)
    except Exception as problem:  # whatever the user's code raises
        raise Misuse(
            f"name = {name!r} fails on inputs of shape {tuple(x.shape)}: {problem}.",
            "Make it take such inputs, or choose other data.",
        ) from None
    if shape != (len(x), dataset.classes):
        raise Misuse(
            f"name = {name!r} gives an output of shape {shape} for {len(x)} samples.",
            f"{dataset.name} has {dataset.classes} classes: make it ({len(x)}, {dataset.classes}).",
        )


def check_device(device: str) -> None:
    """Refuse a device that is not here."""
    try:
        wanted = torch.device(device)
    except RuntimeError:
        wanted = torch.device("meta")
    if wanted.type not in ("cpu", "cuda"):
        raise Misuse(f"run.device = {device!r} is not a device for this.", 'Use "cpu" or "cuda".')
    present = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if wanted.type == "cuda" and (wanted.index or 0) >= present:
        raise Misuse(
            f"run.device = {device!r}, but this machine has {present or 'no'} CUDA devices.", 'Use "cpu".'
        )


def _topology_options(section: GraphSection, make: Callable[..., Topology], seed: int) -> dict[str, Any]:
    """The options of one kind of graph; `clients` is what the constructors call n."""
    parameters, hints = inspect.signature(make).parameters, get_type_hints(make)
    names = {"clients" if name == "n" else name: name for name in parameters}
    options: dict[str, Any] = {}
    for key, value in section.options.items():
        if key not in names:
            raise unknown(f"graph.{key} is not an option of kind {section.kind!r}.", key, names)
        options[names[key]] = typed(f"graph.{key}", value, hints[names[key]])
    if (clients := options.get("n", 1)) < 1:
        raise Misuse(f"graph.clients = {clients} is too small.", "Give at least 1.")
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
        separator = "," if "," in Path(file).read_text(encoding="utf-8")[:4096] else None
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # numpy only warns of an empty file
            return np.loadtxt(file, delimiter=separator, ndmin=2)
    except (OSError, EOFError, ValueError, UserWarning) as problem:
        raise Misuse(
            f"graph.matrix = {file!r} cannot be read: {str(problem).split(';')[0].rstrip('.')}.",
            "Give the numbers of W as text, one row per line, or as a .npy file.",
        ) from None
