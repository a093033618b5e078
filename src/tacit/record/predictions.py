"""What models predict beside how often they are right: accuracy alone can mislead."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Percentage of one class in the predictions above which a model "predicts almost only" it.
ONE_CLASS = 99.0
# The metric of a regression, and what it is compared with.
ERRORS = ("rmse", "baseline-rmse")


@dataclass(frozen=True)
class Predictions:
    """Predictions of the evaluated clients' models on the common test set.

    Attributes:
        majority: The most frequent class of the test set.
        favourites: For each model, the class that it predicts most often, and how often in percent.
        confusion: By class (rows) and prediction (columns), summed over the models; None for many
            classes.
    """

    majority: int
    favourites: tuple[tuple[int, float], ...]
    confusion: tuple[tuple[int, ...], ...] | None

    def as_dict(self, class_names: Sequence[str] = ()) -> dict[str, object] | None:
        """The confusion matrix as kept in files; None without one."""
        if self.confusion is None:
            return None
        classes = [class_name(number, class_names) for number in range(len(self.confusion))]
        counts = [list(row) for row in self.confusion]
        return {"classes": classes, "counts": counts, "models": len(self.favourites)}


def class_name(number: int, names: Sequence[str] = ()) -> str:
    """The name of a class, or its number."""
    return names[number] if number < len(names) else str(number)


def accuracy_alerts(
    accuracy: float | None,
    baseline: float | None,
    predictions: Predictions | None,
    clients: Mapping[str, Sequence[float]],
    class_names: Sequence[str] = (),
) -> list[str]:
    """Sentences that say why an accuracy is worth little; none if it is not.

    Args:
        accuracy: Mean over the clients, in percent.
        baseline: The majority baseline, in percent.
        predictions: What the models predict.
        clients: Metrics of single clients: `Record.per_client`.
        class_names: Names of the classes, if they are known.
    """
    alerts = []
    if accuracy is not None and baseline is not None and predictions is not None:
        name = class_name(predictions.majority, class_names)
        if baseline >= 100:
            alerts.append(f"All test samples are of class {name}: accuracy says nothing here.")
        else:
            alerts += _one_class(predictions, baseline, class_names)
            if accuracy <= baseline + 1e-9:
                alerts.append(
                    f"Accuracy {accuracy:.2f} % does not beat the majority baseline: predicting "
                    f"class {name} for every sample gives {baseline:.2f} %."
                )
    return alerts + _own_tests(clients)


def error_alerts(rmse: float | None, baseline: float | None) -> list[str]:
    """A sentence if a regression is not better than predicting the mean of the target."""
    # NaN does not compare.
    if rmse is None or baseline is None or not rmse >= baseline:
        return []
    return [
        f"The root mean squared error {rmse:.4g} does not beat predicting the mean for every "
        f"sample, which gives {baseline:.4g}."
    ]


def _one_class(predictions: Predictions, baseline: float, names: Sequence[str]) -> list[str]:
    # A test set of almost one class is rightly predicted to be so.
    enough = max(ONE_CLASS, (100 + baseline) / 2)
    favoured = [(number, share) for number, share in predictions.favourites if share >= enough]
    if not favoured:
        return []
    models = len(predictions.favourites)
    who = "The model predicts"
    if models > 1:
        who = "Every client's model predicts"
        if len(favoured) < models:
            who = f"{len(favoured)} of {models} clients' models predict"
    what = "almost only one class"
    if len(classes := {number for number, _ in favoured}) == 1:
        what = f"almost only class {class_name(classes.pop(), names)}"
    share = min(share for _, share in favoured)
    if share >= 100:
        what = what.removeprefix("almost ")
    return [
        f"{who} {what} ({share:.4g} % of the test samples). Accuracy does not show this: "
        "balanced accuracy, F1 and the confusion matrix do."
    ]


def _own_tests(clients: Mapping[str, Sequence[float]]) -> list[str]:
    pairs = [
        (accuracy, baseline)
        for accuracy, baseline in zip(
            clients.get("own_test.accuracy", ()), clients.get("own_test.baseline", ()), strict=False
        )
        if math.isfinite(accuracy) and baseline < 100
    ]
    if not pairs or any(accuracy > baseline + 1e-9 for accuracy, baseline in pairs):
        return []
    who = "No client's model beats" if len(pairs) > 1 else "The model does not beat"
    return [f"{who} the majority class of its client's own test set."]
