"""What an evaluation says of one node's model, for its own files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tacit.core.missing_numbers import finite_or_none
from tacit.record.predictions import ERRORS, Predictions, accuracy_alerts, error_alerts
from tacit.tasks.evaluation import ModelScores


@dataclass(frozen=True)
class NodeScores:
    """Loss, accuracy in percent and further metrics; None where a metric is not defined.

    Attributes:
        baseline: Accuracy in percent of always predicting the most frequent class.
        own_test: The same on the node's own test set, if there is also a common one.
    """

    loss: float
    accuracy: float | None = None
    baseline: float | None = None
    metrics: dict[str, float | None] = field(default_factory=dict)
    own_test: dict[str, float | None] = field(default_factory=dict)
    predictions: Predictions | None = None
    class_names: Sequence[str] = ()

    @classmethod
    def of(
        cls, scores: ModelScores, own: ModelScores | None = None, class_names: Sequence[str] = ()
    ) -> NodeScores:
        """The scores of the first model."""
        accuracy = None if scores.accuracy is None else float(scores.accuracy[0])
        metrics = {
            name: finite_or_none(float(values[0])) for name, values in scores.metrics.items()
        }
        tested = {}
        if own is not None:
            one = cls.of(own)
            tested = {
                "loss": finite_or_none(one.loss),
                "accuracy": one.accuracy,
                **one.further_numbers(),
            }
        if (counts := scores.counts) is None:
            return cls(float(scores.loss[0]), accuracy, metrics=metrics, own_test=tested)
        (baseline, majority), (share, favourite) = counts.majority, counts.favourite
        matrix = None if counts.confusion is None else counts.confusion[0].tolist()
        predictions = Predictions(
            int(majority[0]),
            ((int(favourite[0]), float(share[0])),),
            None if matrix is None else tuple(map(tuple, matrix)),
        )
        loss = float(scores.loss[0])
        return cls(loss, accuracy, float(baseline[0]), metrics, tested, predictions, class_names)

    def further_numbers(self) -> dict[str, float | None]:
        return {"baseline": self.baseline, **self.metrics}

    def further(self) -> dict[str, Any]:
        """What a record of the history has beside loss and accuracy."""
        return {
            "baseline": self.baseline,
            **({"metrics": self.metrics} if self.metrics else {}),
            **({"own_test": self.own_test} if self.own_test else {}),
        }

    def summary(self) -> dict[str, Any]:
        """What the summary has beside loss and accuracy."""
        confusion = None if self.predictions is None else self.predictions.as_dict(self.class_names)
        return {
            **self.further(),
            **({"confusion": confusion} if confusion else {}),
            **({"alerts": alerts} if (alerts := self.alerts) else {}),
        }

    @property
    def alerts(self) -> list[str]:
        """Why the results mislead, if they do."""
        columns = {f"own_test.{name}": [value] for name, value in self.own_test.items()}
        known = {name: [v for v in values if v is not None] for name, values in columns.items()}
        found = accuracy_alerts(
            self.accuracy, self.baseline, self.predictions, known, self.class_names
        )
        return found + error_alerts(*(self.metrics.get(name) for name in ERRORS))
