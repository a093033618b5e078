"""A run, and how much of what was sent were updates: the only messages that are compressed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tacit.algorithms.defl_vp import DeFLVP
from tacit.compression import for_signs
from tacit.config.sections import Config
from tacit.core.errors import Misuse
from tacit.experiment.auditing import read_subject
from tacit_papers.framework.artifact import MeasureContext, Values
from tacit_papers.measures.training import Training


@dataclass(frozen=True)
class CountedTraining:
    """What `Training` gives, and megabytes per client: of all messages, and of the updates among them."""

    config: Config

    def describe(self) -> dict[str, Any]:
        """The configuration, and that bytes are counted."""
        return {**Training(self.config).describe(), "counted": "updates"}

    def __call__(self, seed: int, place: MeasureContext) -> Values:
        """Train and count."""
        values = Training(self.config)(seed, place)
        made = read_subject(
            place.scratch, data_folder=place.data_folder, dataset=place.dataset(self.config)
        ).experiment
        algorithm, task = made.algorithm, made.task
        if not isinstance(algorithm, DeFLVP):
            raise Misuse(
                f"{algorithm.name} has no updates of its own.", "Count those of DeFL-VP's variants."
            )
        codec = for_signs(algorithm.codec) if algorithm.randomized_response else algorithm.codec
        times = values["curve"]["step"][-1] * len(made.graph.edges)
        updates = times * codec.size(task.parameters, task.dtype)
        per_client = 1e6 * task.clients
        return values | {
            "megabytes": values["bytes_sent"] / per_client,
            "update_megabytes": updates / per_client,
        }
