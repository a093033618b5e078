"""From a configuration to an experiment: graph, task and algorithm, ready to simulate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from tacit.algorithms.algorithm import Algorithm
from tacit.config.algorithms import make_algorithm, make_algorithm_for, with_robust_mixing
from tacit.config.graphs import make_world, with_clients
from tacit.config.own_data import check_disclosure, check_named_keys
from tacit.config.sections import Config
from tacit.config.tasks import (
    add_metrics,
    clip_gradients,
    load_data,
    make_metrics,
    make_partition,
    make_task,
    make_training_task,
)
from tacit.core.devices import check_device
from tacit.core.errors import prefix_errors
from tacit.data import Dataset, Partition
from tacit.engines.group import Hosted
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.graph import Graph, GraphSchedule, Participation
from tacit.record.transcript import Keep, Transcript
from tacit.tasks import Objective
from tacit.tasks.parts import Parts


@dataclass(frozen=True, eq=False)
class Experiment:
    """Everything a run needs, made from one configuration.

    Attributes:
        round_length: Iterations in one round.
        dataset: The data, or None if the task generates them.
        schedule: The graph of each iteration, if it changes; `graph` is then its union.
        participation: Which clients take part when, and which messages are late.
        partition: The samples of each client, or None if the task generates its data.
    """

    config: Config
    graph: Graph
    task: Objective
    algorithm: Algorithm
    round_length: int
    dataset: Dataset | None
    partition: Partition | None
    schedule: GraphSchedule | None = None
    participation: Participation | None = None

    @property
    def steps(self) -> int:
        """Iterations of the whole run."""
        return self.config.run.rounds * self.round_length

    @property
    def setting(self) -> Setting:
        """What determines the messages of the run."""
        run = self.config.run
        return Setting(
            self.algorithm,
            self.task,
            self.graph,
            run.seed,
            run.device,
            run.gradients,
            "secret" if run.secret_noise else run.prg,
            run.precision,
            schedule=self.schedule,
            participation=self.participation,
        )

    def simulation(
        self,
        transcript: Transcript | None = None,
        *,
        gradients: str | None = None,
        hosted: Hosted | None = None,
        secret: bytes | None = None,
    ) -> Simulation:
        """A simulation before its start; `gradients` overrides the configuration's."""
        setting = self.setting
        return Simulation(
            replace(setting, gradients=gradients or setting.gradients),
            allow_divergence=self.config.run.allow_divergence,
            round_length=self.round_length,
            transcript=transcript,
            hosted=hosted,
            secret=secret,
        )

    def new_transcript(self) -> Transcript | None:
        """An empty transcript that keeps what [transcript] selects; None without that section."""
        section = self.config.transcript
        if section is None:
            return None
        keys = section.model_dump(exclude={"first", "last"})
        return Transcript(Keep.from_plain(keys | {"ticks": (section.first, section.last)}))


def build(config: Config, folder: Path | None = None, dataset: Dataset | None = None) -> Experiment:
    """Make everything that a configuration describes; errors appear here, before anything runs.

    `folder` holds the datasets. Give the `dataset` if it is loaded already.
    """
    graph_section = config.graph
    if config.task is None and config.data.is_own:
        dataset = dataset or load_data(config.data, folder, config.graph.options.get("clients"))
        graph_section = with_clients(config.graph, len(dataset.clients))
    elif config.task is None:
        with prefix_errors("[data]"):
            check_named_keys(config.data)
    world = make_world(config.model_copy(update={"graph": graph_section}))
    graph = world.graph
    check_device(config.run.device, "run.device")
    # A first version with nominal lengths, to find errors before the data are loaded.
    section = config.algorithm
    draft = make_algorithm(section.name, section.options, round_length=1, steps=1)
    draft = with_robust_mixing(config, draft)
    make_metrics(config)
    with prefix_errors("[graph]" if config.participation is None else "[graph], [participation]"):
        draft.check_world(world)
    parts: Partition | None = None
    if config.task is not None:
        task, dataset = make_task(config.task, graph.clients), None
    else:
        dataset = dataset or load_data(config.data, folder)
        parts = make_partition(config, dataset, graph.clients)
        train, test = dataset.train, dataset.test
        shape, classes = train.x.shape[1:], dataset.classes
        check_disclosure(config, dataset.disclosure)
        if dataset.owners:
            task = make_training_task(config, shape, classes, dataset, None)
        else:
            samples = Parts.split((train.x, train.y), parts.indices)
            held_out = (test.x, test.y)
            task = make_training_task(config, shape, classes, samples, held_out, dataset.target)
            told, scaling = dataset.disclosure, dataset.preprocessing
            task = replace(task, disclosure=told, preprocessing=scaling)
    task = add_metrics(config, clip_gradients(config, task))
    algorithm, round_length = make_algorithm_for(config, task, graph)
    changes = world.schedule, world.participation
    return Experiment(config, graph, task, algorithm, round_length, dataset, parts, *changes)
