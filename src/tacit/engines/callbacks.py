"""Callbacks of a run: stop early, keep the best models, log to other tools.

A callback is called with each record and the simulation, whose `state.theta` are the models. A
function does as well; one that returns True, or the reason as text, ends the run.

>>> import torch, tacit
>>> task = tacit.quadratic(torch.eye(2).repeat(3, 1, 1), torch.ones(3, 2))
>>> graph = tacit.Topology.ring(3).mixing("metropolis")
>>> stop = tacit.callbacks.EarlyStopping("loss.mean", patience=3)
>>> run = tacit.run(task, tacit.DSG(lr=1.0), graph, steps=99, record_every=1, callbacks=[stop])
>>> run.history[-1].step
4
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor

from tacit.core.checks import check_number, is_count
from tacit.core.errors import Misuse, first_line, prefix_errors
from tacit.engines import checkpoints
from tacit.engines.simulation import Simulation
from tacit.record.history import Record, find_column
from tacit.tasks.metrics.metric import describe_metric

__all__ = ["BestCheckpoint", "EarlyStopping", "MLflow", "TensorBoard", "WandB"]

# Metrics of which less is better; of all others more is.
LESS_IS_BETTER = ("msd", "consensus_distance", "bytes_sent", "wall_seconds")


@dataclass(frozen=True)
class EarlyStopping:
    """End a run when a metric has not improved for `patience` records.

    Args:
        metric: A column of the history, such as "accuracy.mean", or a metric such as "auc" for its
            mean; less is better for losses and distances, more for everything else.
        patience: Number of records to wait for a better one.
        min_change: What counts as better: by more than this.
    """

    metric: str = "loss.mean"
    patience: int = 5
    min_change: float = 0.0

    def __post_init__(self) -> None:
        if not is_count(self.patience):
            raise Misuse(f"patience is {self.patience!r}.", "Wait for at least 1 record.")
        check_number("min_change", self.min_change, at_least=0)
        _check_name(self.metric)

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise Misuse if the records of a run have no such metric."""
        with prefix_errors("EarlyStopping"):
            find_column(self.metric, columns)

    def __call__(self, record: Record, simulation: Simulation) -> str | None:
        """The reason to stop, if there is one: it follows from the history alone."""
        values = simulation.history.column(self.metric)
        waited = len(values) - 1 - best_index(values, self.metric, self.min_change)
        if waited < self.patience:
            return None
        return f"{self.metric} has not improved for {waited} records"


@dataclass
class BestCheckpoint:
    """Keep the state of the record that is best by a metric, in the folder `path`."""

    metric: str
    path: Path | str
    fingerprint: str = ""

    def __post_init__(self) -> None:
        _check_name(self.metric)

    def check_columns(self, columns: Sequence[str]) -> None:
        """Raise Misuse if the records of a run have no such metric."""
        with prefix_errors("BestCheckpoint"):
            find_column(self.metric, columns)

    def __call__(self, record: Record, simulation: Simulation) -> None:
        """Save the state if no earlier record is better."""
        values = simulation.history.column(self.metric)
        if best_index(values, self.metric) < len(values) - 1:
            return
        checkpoint = simulation.checkpoint(self.fingerprint)
        checkpoints.save(Path(self.path), checkpoint, simulation.hosted, keep=1)

    def load(self) -> Tensor:
        """The best models [N, P]."""
        from safetensors.torch import load_file

        files = sorted(Path(self.path).glob("step-*.safetensors"))
        if not files:
            raise Misuse(f"{self.path} has no checkpoint.", "Run with this callback first.")
        theta: Tensor = load_file(files[-1])["theta"]
        return theta


@dataclass
class TensorBoard:
    """Write every number of a record for TensorBoard, below `folder`."""

    folder: Path | str
    _writer: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        _imported("torch.utils.tensorboard", "tensorboard")

    def __call__(self, record: Record, simulation: Simulation) -> None:
        """Write the record's numbers at its iteration."""
        if self._writer is None:
            module = _imported("torch.utils.tensorboard", "tensorboard")
            # What an interrupted run wrote after the state that it continues from is void.
            self._writer = module.SummaryWriter(str(self.folder), purge_step=record.step)
        for name, value in record.scalars().items():
            self._writer.add_scalar(name.replace(".", "/"), value, record.step)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


@dataclass
class MLflow:
    """Log to a run of MLflow.

    Args:
        experiment: Name of MLflow's experiment, made if there is none.
        name: Name of the run.
        parameters: What MLflow shows as the run's parameters.
        tracking_uri: Where to log; default: MLflow's own, such as $MLFLOW_TRACKING_URI.
    """

    experiment: str = "tacit"
    name: str | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    tracking_uri: str | None = None
    run_id: str | None = field(default=None, init=False)
    _client: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        _imported("mlflow", "mlflow")

    def __call__(self, record: Record, simulation: Simulation) -> None:
        """Log the record's numbers at its iteration; first all earlier ones of a resumed run."""
        mlflow = _imported("mlflow", "mlflow")
        records = [record]
        try:
            if self._client is None:
                self._client = mlflow.MlflowClient(self.tracking_uri)
                experiment = self._client.get_experiment_by_name(self.experiment)
                number = experiment.experiment_id if experiment else None
                number = number or self._client.create_experiment(self.experiment)
                self.run_id = self._client.create_run(number, run_name=self.name).info.run_id
                for key, value in {**_facts(simulation), **self.parameters}.items():
                    self._client.log_param(self.run_id, key, value)
                records = list(simulation.history)
            for earlier in records:
                for name, value in earlier.scalars().items():
                    self._client.log_metric(self.run_id, name, value, step=earlier.step)
        except mlflow.exceptions.MlflowException as problem:
            raise Misuse(
                f"MLflow refuses: {first_line(problem)}", "Check MLFLOW_TRACKING_URI."
            ) from None

    def close(self) -> None:
        """End MLflow's run."""
        if self._client is not None and self.run_id is not None:
            self._client.set_terminated(self.run_id)
            self._client = None


@dataclass
class WandB:
    """Log to Weights & Biases, by default into local files (`wandb sync` uploads them later)."""

    project: str = "tacit"
    name: str | None = None
    parameters: Mapping[str, object] = field(default_factory=dict)
    folder: Path | str | None = None
    mode: str = "offline"
    _run: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        _imported("wandb", "wandb")

    def __call__(self, record: Record, simulation: Simulation) -> None:
        """Log the record's numbers at its iteration; first all earlier ones of a resumed run."""
        records = [record]
        if self._run is None:
            self._run = _imported("wandb", "wandb").init(
                project=self.project,
                name=self.name,
                dir=self.folder,
                mode=self.mode,
                config={**_facts(simulation), **self.parameters},
            )
            records = list(simulation.history)
        for earlier in records:
            self._run.log(earlier.scalars(), step=earlier.step)

    def close(self) -> None:
        """End the run of Weights & Biases."""
        if self._run is not None:
            self._run.finish()
            self._run = None


def best_index(values: list[float], metric: str, min_change: float = 0.0) -> int:
    """The index of the best value of a metric; NaN is never best, and the first of equals is.

    >>> best_index([3.0, 1.0, 2.0], "loss.mean")
    1
    """
    sign = -1 if less_is_better(metric) else 1
    best, index_of_best = -math.inf, 0
    for index, value in enumerate(values):
        if sign * value > best + (min_change if math.isfinite(best) else 0):
            best, index_of_best = sign * value, index
    return index_of_best


def less_is_better(metric: str) -> bool:
    """Whether a metric such as "loss.mean" is to be made small."""
    name = metric.removeprefix("own_test.").partition(".")[0]
    return name in LESS_IS_BETTER or not describe_metric(name).higher_is_better


def _check_name(metric: object) -> None:
    if not isinstance(metric, str):
        raise Misuse(f"metric is {metric!r}.", 'Give the name of a column, such as "loss.mean".')


def _facts(simulation: Simulation) -> dict[str, object]:
    setting = simulation.setting
    return {
        "algorithm": setting.algorithm.name,
        "graph": str(setting.graph),
        "clients": setting.graph.clients,
        "seed": setting.seed,
    }


def _imported(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError:
        raise Misuse(
            f"{extra} is not installed.", f"Install it: pip install 'tacit-learn[{extra}]'."
        ) from None
