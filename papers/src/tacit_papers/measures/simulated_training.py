"""Accuracy of models that are too large to keep checkpoints of: nothing is written to disk."""

from __future__ import annotations

from dataclasses import dataclass

from tacit.config.sections import Config
from tacit.record.history import Record
from tacit_papers.framework.cells import FieldDescription, MeasureContext, Values, rounded


@dataclass(frozen=True)
class SimulatedTraining(FieldDescription):
    """Accuracy of the clients' own models and of their average, at the end and over the rounds."""

    label = ("simulated training", "config")
    config: Config

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        experiment = context.experiment(self.config, seed)
        every = self.config.run.evaluate_every * experiment.round_length
        simulation = experiment.simulation()
        simulation.start()
        records = [simulation.observe()]
        while simulation.t < experiment.steps:
            simulation.step()
            context.progress("training", simulation.t, experiment.steps)
            if simulation.t % every == 0 or simulation.t == experiment.steps:
                records.append(simulation.observe())
        last = records[-1]
        values: Values = {
            **_accuracies(last),
            "loss": rounded(last.numbers["loss.mean"]),
            "consensus_distance": rounded(last.consensus_distance),
            "bytes_sent": last.bytes_sent,
            "seconds": rounded(simulation.wall_seconds),
            "parameters": experiment.task.parameters,
            "curve": {
                "round": [record.round for record in records],
                "step": [record.step for record in records],
                "loss": [rounded(record.numbers["loss.mean"]) for record in records],
                "accuracy": [_accuracies(record)["accuracy"] for record in records],
            },
        }
        return values | ({} if simulation.diverged is None else {"diverged": simulation.diverged})


def _accuracies(record: Record) -> dict[str, float | None]:
    assert record.accuracy is not None
    return {
        "accuracy": rounded(record.accuracy.mean),
        "worst": rounded(record.accuracy.min),
        "average_model": rounded(record.accuracy.average_model),
    }
