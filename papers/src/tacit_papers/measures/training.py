"""The measure of most cells: a configuration is run to its end."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from typing import Any

from tacit.config.sections import Config, with_keys
from tacit.core.errors import Diverged
from tacit.experiment.folder import RunFolder
from tacit.experiment.run import run
from tacit.record.history import History, decibels
from tacit_papers.framework.artifact import MeasureContext, Values

DIGITS = 6  # of the numbers of curves, which are many


@dataclass(frozen=True)
class Training:
    """Accuracy, loss and mean-square deviation at the end of a run and over its rounds.

    Graph and partition are drawn by the run's seed unless the configuration has seeds of their own.
    """

    config: Config

    def describe(self) -> dict[str, Any]:
        """The configuration."""
        return {"training": self.config.as_dict()}

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """Run with this seed, going on where an earlier attempt was interrupted."""
        config = with_keys(self.config, "run", seed=seed, device=place.device)
        folder = RunFolder(place.scratch)
        resume = folder.config.exists()
        if resume and folder.read_config().run.device != place.device:
            shutil.rmtree(place.scratch)  # begun elsewhere: another device rounds otherwise
            resume = False
        ended = ""
        try:
            outcome = run(
                config,
                place.scratch,
                data_folder=place.data_folder,
                dataset=place.dataset(config),
                resume=resume,
                watcher=place.watcher,
            )
            history, seconds = outcome.history, outcome.summary["wall_seconds"]
            ended = outcome.summary.get("diverged", "")
        except Diverged as problem:
            history, seconds, ended = folder.read_history(), None, str(problem)
        last = history[-1]
        values: Values = {
            "loss": rounded(last.loss.mean),
            "bytes_sent": last.bytes_sent,
            "seconds": seconds,
        }
        values["consensus_distance"] = rounded(last.consensus_distance)
        if (dataset := place.dataset(config)) is not None:
            values["training_samples"] = len(dataset.train.y)  # files may be there in part
        if last.accuracy is not None:
            values |= {"accuracy": last.accuracy.mean, "average_model": last.accuracy.average_model}
        if last.msd is not None:
            values["msd_db"] = decibels(last.msd)
        if ended:
            values["diverged"] = ended
        return values | {"curve": _curve(history)}


def _curve(history: History) -> dict[str, list[float | None]]:
    """What was recorded, by rounds."""
    curve: dict[str, list[float | None]] = {
        "round": [record.round for record in history],
        "step": [record.step for record in history],
        "loss": [rounded(record.loss.mean) for record in history],
    }
    if all(record.accuracy is not None for record in history):
        curve["accuracy"] = [
            rounded(record.accuracy.mean) for record in history if record.accuracy is not None
        ]
    if all(record.msd is not None for record in history):
        curve["msd"] = [rounded(record.msd) for record in history]
    return curve


def rounded(value: float | None) -> float | None:
    """Rounded, or None where it is no number that JSON has."""
    return None if value is None or value - value != 0 else float(f"{value:.{DIGITS}g}")
