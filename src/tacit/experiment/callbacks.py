"""The callbacks of a configuration: [stop], [log] and run.keep_best."""

from __future__ import annotations

import os

from tacit.config.build import Experiment
from tacit.config.sections import Config
from tacit.core.errors import prefix_errors
from tacit.engines.callbacks import BestCheckpoint, EarlyStopping, MLflow, TensorBoard, WandB
from tacit.engines.observation import recordable, recorded_columns
from tacit.experiment.folder import RunFolder, fingerprint
from tacit.record.callbacks import Callback
from tacit.record.history import find_column


def check_metrics(config: Config, experiment: Experiment) -> list[str]:
    """The columns that records will have; Misuse if [stop] or run.keep_best name another one."""
    columns = recorded_columns(recordable(experiment.task, experiment.algorithm))
    stop = None if config.stop is None else config.stop.metric
    for key, metric in (("[stop]", stop), ("run.keep_best", config.run.keep_best)):
        if metric is not None:
            with prefix_errors(key):
                find_column(metric, columns)
    return columns


def make_callbacks(config: Config, folder: RunFolder) -> list[Callback]:
    """Callbacks that write into a run's folder; Misuse if they cannot be made."""
    callbacks: list[Callback] = []
    if config.stop is not None:
        with prefix_errors("[stop]"):
            callbacks.append(EarlyStopping(**config.stop.model_dump()))
    if config.run.keep_best is not None:
        with prefix_errors("run.keep_best"):
            place = folder.path / "best"
            callbacks.append(BestCheckpoint(config.run.keep_best, place, fingerprint(config)))
    if (log := config.log) is not None:
        name = folder.path.resolve().name
        values = {
            f"{section}.{key}": value
            for section, table in config.as_dict().items()
            for key, value in table.items()
        }
        with prefix_errors("[log]"):
            if log.tensorboard:
                callbacks.append(TensorBoard(folder.path / "tensorboard"))
            if log.mlflow is not None:
                callbacks.append(MLflow(log.mlflow, name, values))
            if log.wandb is not None:
                mode = os.environ.get("WANDB_MODE", "offline")
                callbacks.append(WandB(log.wandb, name, values, folder.path, mode))
    return callbacks
