"""From a configuration to what runs: graph, data, partition, task, algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tacit import data, models
from tacit.algorithms.algorithm import Algorithm, gradients_per_step
from tacit.config.graphs import make_graph
from tacit.config.named_tasks import make_task
from tacit.config.options import import_object, make_algorithm, prefix_errors, validate_value
from tacit.config.sections import Config, DataSection, ModelSection
from tacit.core.devices import check_device
from tacit.core.errors import Misuse, unknown
from tacit.core.randomness import key_of
from tacit.data.partition import Partition, partition
from tacit.engines.group import Hosted
from tacit.graph import Graph
from tacit.record.transcript import Transcript
from tacit.simulation import Simulation, check_fit
from tacit.tasks import Task
from tacit.tasks.parts import Parts

PARTITION_OPTIONS = {"alpha": float, "k": int, "indices": list[list[int]]}


@dataclass(frozen=True, eq=False)
class Experiment:
    """Everything a run needs, made from one configuration."""

    config: Config
    graph: Graph
    task: Task
    algorithm: Algorithm
    round_length: int
    dataset: data.Dataset | None  # None where the task makes its own data
    partition: Partition | None

    @property
    def steps(self) -> int:
        """Iterations of the whole run."""
        return self.config.run.rounds * self.round_length

    def simulation(
        self,
        transcript: Transcript | None = None,
        *,
        gradients: str | None = None,
        hosted: Hosted | None = None,
    ) -> Simulation:
        """Its run before the start; `gradients` says otherwise than the configuration how they are computed."""
        run = self.config.run
        return Simulation(
            self.algorithm,
            self.task,
            self.graph,
            seed=run.seed,
            device=run.device,
            gradients=gradients or run.gradients,
            prg=run.prg,
            allow_divergence=run.allow_divergence,
            round_length=self.round_length,
            transcript=transcript,
            hosted=hosted,
        )


def build(
    config: Config, folder: Path | None = None, dataset: data.Dataset | None = None
) -> Experiment:
    """Make everything a configuration asks for, so that what is wrong shows before anything runs.

    `folder` is the data folder; a `dataset` that was loaded before can be handed in.
    """
    seed = config.run.seed
    graph = make_graph(config.graph, seed)
    check_device(config.run.device, "run.device")
    name, options = config.algorithm.name, config.algorithm.options
    # A first one, of no length, to refuse what is wrong before data is loaded.
    draft = make_algorithm(name, options, round_length=1, steps=1)
    with prefix_errors("[graph]"):
        graph.require(*draft.requires, by=draft.name)
    parts: Partition | None = None
    if config.task is not None:
        task, dataset = make_task(config.task, graph.clients), None
    else:
        dataset = dataset or load_data(config.data, folder)
        parts = make_partition(config, dataset, graph.clients)
        task = make_training(config, dataset, parts)
    if (clip := config.run.clip) is not None:
        task = task.clipped(clip.bound, clip.norm)
    with prefix_errors("[algorithm]"):
        check_fit(draft, task)
    # Local steps belong to the iteration they follow: a round is one pass over the data however it is cut.
    epoch = max(1, task.steps_per_epoch // gradients_per_step(draft))
    round_length = config.run.iterations_per_round or epoch
    algorithm = make_algorithm(name, options, round_length, round_length * config.run.rounds)
    return Experiment(config, graph, task, algorithm, round_length, dataset, parts)


def load_data(section: DataSection, folder: Path | None) -> data.Dataset:
    """The dataset, or as much of it as is asked for."""
    with prefix_errors("[data]"):
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
        validate_value(f"partition.{key}", value, PARTITION_OPTIONS.get(key, Any))
    with prefix_errors("[partition]"):
        return partition(
            section.kind,
            dataset.train.y.numpy(),
            clients,
            seed=config.run.seed if section.seed is None else section.seed,
            minimum=config.run.batch_size,
            **section.options,
        )


def make_training(config: Config, dataset: data.Dataset, parts: Partition) -> Task:
    """The task of training the model on data that were dealt out."""
    with prefix_errors("[model]"):
        return Task.from_module(
            make_model(config.model, dataset.train.x.shape[1:], dataset.classes, config.run.seed),
            Parts.split((dataset.train.x, dataset.train.y), parts.indices),
            batch_size=config.run.batch_size,
            test=(dataset.test.x, dataset.test.y),
            init=config.model.init,
        )


def make_model(section: ModelSection, shape: Sequence[int], classes: int, seed: int) -> nn.Module:
    """The model for inputs of `shape` and so many classes, named or the user's own; what it draws is keyed."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(key_of(seed, "model") >> 1)
        return _make_model(section, shape, classes)


def _make_model(section: ModelSection, shape: Sequence[int], classes: int) -> nn.Module:
    if ":" not in section.name:
        return models.build(section.name, shape, classes, **section.options)
    make = import_object(section.name, "name")
    try:
        module = make(**section.options)
    except Exception as problem:  # whatever the user's code raises
        raise Misuse(
            f"name = {section.name!r} cannot be made: {problem}.", "Check its options."
        ) from None
    if not isinstance(module, nn.Module):
        raise Misuse(f"name = {section.name!r} is not a torch.nn.Module.", "Name a module class.")
    _try_model(module, section.name, shape, classes)
    return module


def _try_model(module: nn.Module, name: str, shape: Sequence[int], classes: int) -> None:
    """Refuse a model of the user's that does not fit the data."""
    x = torch.zeros(2, *shape, dtype=torch.float32)
    try:
        with torch.no_grad():
            output = tuple(module(x).shape)
    except Exception as problem:  # whatever the user's code raises
        raise Misuse(
            f"name = {name!r} fails on inputs of shape {tuple(x.shape)}: {problem}.",
            "Make it take such inputs, or choose other data.",
        ) from None
    if output != (len(x), classes):
        raise Misuse(
            f"name = {name!r} gives an output of shape {output} for {len(x)} samples.",
            f"The data have {classes} classes: make it ({len(x)}, {classes}).",
        )
