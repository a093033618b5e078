"""Measures of training: accuracy over the rounds, traffic, and coordinates that stay zero."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from tacit.algorithms.defl_vp import DeFLVP
from tacit.compression import for_signs
from tacit.config.loading import with_keys
from tacit.config.sections import Config
from tacit.core.errors import Diverged, Misuse
from tacit.engines.execution import reproducible
from tacit.engines.simulation import Simulation
from tacit.experiment.auditing import AuditSubject, load_subject
from tacit.experiment.folder import RunFolder
from tacit.experiment.run import run
from tacit.record.history import History, decibels
from tacit_papers.framework.cells import FieldDescription, MeasureContext, Values, rounded


@dataclass(frozen=True)
class Training(FieldDescription):
    """Accuracy, loss and mean-square deviation at the end of a run and over its rounds.

    The run's seed draws graph and partition too, unless the configuration gives them seeds.
    """

    label = ("training", "config")
    config: Config

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        """Run with this seed, or continue where an earlier attempt was interrupted."""
        config = with_keys(self.config, "run", seed=seed, device=context.device)
        folder = RunFolder(context.scratch)
        resume = folder.config.exists()
        # Another device rounds differently: start again.
        if resume and folder.read_config().run.device != context.device:
            shutil.rmtree(context.scratch)
            resume = False
        dataset = context.dataset(config)
        try:
            result = run(
                config,
                context.scratch,
                data_folder=context.data_folder,
                dataset=dataset,
                resume=resume,
                listener=context.listener,
            )
            history, seconds = result.history, result.summary["wall_seconds"]
            diverged = result.summary.get("diverged", "")
            privacy = result.summary["privacy"]
        except Diverged as problem:
            history, seconds, diverged = folder.read_history(), None, str(problem)
            privacy = None
        last = history[-1]
        values: Values = {
            "loss": rounded(last.numbers["loss.mean"]),
            "bytes_sent": last.bytes_sent,
            "seconds": seconds,
            "consensus_distance": rounded(last.consensus_distance),
        }
        if dataset is not None:
            # Data folders may have a part of a dataset only.
            values["training_samples"] = len(dataset.train.y)
        if last.accuracy is not None:
            values |= {"accuracy": last.accuracy.mean, "average_model": last.accuracy.average_model}
        if privacy is not None:
            spent = {"noise_multiplier": privacy["noise_multiplier"], "epsilon": privacy["spent"]}
            values |= {name: rounded(value) for name, value in spent.items()}
        if last.msd is not None:
            values["msd_db"] = decibels(last.msd)
        if diverged:
            values["diverged"] = diverged
        return values | {"curve": _curve(history)}


def _curve(history: History) -> dict[str, list[float | None]]:
    curve: dict[str, list[float | None]] = {
        "round": [record.round for record in history],
        "step": [record.step for record in history],
        "loss": [rounded(record.numbers["loss.mean"]) for record in history],
    }
    accuracies = [record.accuracy for record in history if record.accuracy is not None]
    if len(accuracies) == len(history):
        curve["accuracy"] = [rounded(accuracy.mean) for accuracy in accuracies]
    if all(record.msd is not None for record in history):
        curve["msd"] = [rounded(record.msd) for record in history]
    return curve


def load_trained(config: Config, context: MeasureContext) -> AuditSubject:
    """The run that `Training` left in the scratch folder."""
    dataset = context.dataset(config)
    return load_subject(context.scratch, data_folder=context.data_folder, dataset=dataset)


@dataclass(frozen=True)
class CommunicationCost:
    """`Training`, and megabytes per client: of all messages, and of the updates among them.

    Updates are the only messages that DeFL-VP compresses.
    """

    config: Config

    def describe(self) -> dict[str, Any]:
        return {**Training(self.config).describe(), "counted": "updates"}

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        values = Training(self.config)(seed, context)
        experiment = load_trained(self.config, context).experiment
        algorithm, task = experiment.algorithm, experiment.task
        if not isinstance(algorithm, DeFLVP):
            raise Misuse(f"{algorithm.name} sends no updates.", "Name a variant of DeFL-VP.")
        codec = for_signs(algorithm.codec) if algorithm.randomized_response else algorithm.codec
        messages = values["curve"]["step"][-1] * len(experiment.graph.edges)
        updates = messages * codec.size(task.parameters, task.dtype)
        per_client = 1e6 * task.clients
        return values | {
            "megabytes": values["bytes_sent"] / per_client,
            "update_megabytes": updates / per_client,
        }


@dataclass(frozen=True)
class DeadCoordinates(FieldDescription):
    """Accuracy, percentage of coordinates of gradients that are zero, and mean |θ|, by round."""

    label = ("dead_coordinates", "config")
    config: Config

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        experiment = context.experiment(self.config, seed)
        every = self.config.run.evaluate_every
        simulation = experiment.simulation()
        simulation.start()
        records = [_zeros(simulation)]
        while simulation.t < experiment.steps:
            simulation.step()
            context.progress("training", simulation.t, experiment.steps)
            if simulation.t % (every * experiment.round_length) == 0:
                records.append(_zeros(simulation))
        curve = {name: [rounded(record[name]) for record in records] for name in records[0]}
        last = {name: values[-1] for name, values in curve.items()}
        rounds = list(range(0, self.config.run.rounds + 1, every))
        return last | {"curve": {"round": rounds} | curve}


def _zeros(simulation: Simulation) -> dict[str, float]:
    """Of the current models, and of the gradients that they would take next."""
    dead = (next_gradients(simulation) == 0).double().mean()
    record = simulation.observe()
    assert record.accuracy is not None
    return {
        "accuracy": record.accuracy.mean,
        "dead": 100 * float(dead),
        "size": float(simulation.state.theta.abs().double().mean()),
    }


def next_gradients(simulation: Simulation) -> Tensor:
    """The gradients [N, P] that the coming step takes at the current models."""
    here = simulation.here
    with reproducible(simulation.device), here.workspace.pool.exclusive():
        # A copy, because the engine recycles its memory.
        gradients: Tensor = here.at(simulation.t).grad(simulation.state.theta).clone()
    return gradients
