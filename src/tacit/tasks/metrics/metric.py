"""The metrics that runs can record, by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tacit.core.errors import Misuse, first_line, unknown_name
from tacit.tasks.criteria import Criterion
from tacit.tasks.metrics.batch import ClassBatch, Kind, NumberBatch, read_classes
from tacit.tasks.metrics.class_counts import ClassCounts
from tacit.tasks.metrics.ranking import auc_of_logits

# A user's metric: outputs [n, ...] of a model and targets [n, ...] of the test set ↦ a number.
Function = Callable[[Tensor, Tensor], Any]
Metrics = Sequence[str] | Mapping[str, Function | str]

EPSILON = torch.finfo(torch.float64).eps


@dataclass(frozen=True, eq=False)
class Totals:
    """What a pass over the test set leaves of k models.

    Attributes:
        criterion: The loss, which says what outputs mean.
        targets: Of the test set, [n, ...].
        outputs: Of each model, [n, ...], if a metric needs all of them.
        sums: Over the samples, [k] or for each of several outputs [k, d]; see `CLASS_SUMS`.
        counts: None unless the models predict classes.
    """

    criterion: Criterion
    targets: Tensor
    outputs: Sequence[Tensor]
    sums: Mapping[str, Tensor]
    counts: ClassCounts | None

    @property
    def class_counts(self) -> ClassCounts:
        assert self.counts is not None, "a metric of classes fits no other task"
        return self.counts

    def mean(self, name: str) -> Tensor:
        """The mean over samples, or over the tokens that count."""
        count = len(self.targets) if self.counts is None else int(self.counts.actual[0].sum())
        return self.sums[name] / count


@dataclass(frozen=True, eq=False)
class Metric:
    """A number that says how good a model is.

    Attributes:
        kinds: What models must predict; empty: anything.
        compute: The metric of k models, [k].
        sums: The sums that it needs.
        needs_outputs: Whether it needs all outputs at once.
        higher_is_better: Which of two values is the better one.
        unit: Behind the number: " %" or nothing.
    """

    name: str
    label: str
    kinds: frozenset[Kind]
    compute: Callable[[Totals], Tensor]
    sums: tuple[str, ...] = ()
    needs_outputs: bool = False
    higher_is_better: bool = True
    unit: str = ""

    @property
    def is_standard(self) -> bool:
        """Whether every run records it anyway."""
        return self.name in STANDARD


def _clipped_log_loss(batch: ClassBatch) -> Tensor:
    # At the rounding error of a probability, as scikit-learn does.
    return -batch.log_likelihood.clamp(math.log(EPSILON), math.log1p(-EPSILON))


def _brier(batch: ClassBatch) -> Tensor:
    square = batch.log_probabilities.mul(2).exp().sum(1)
    distance = square - 2 * batch.log_likelihood.exp() + 1
    return distance / 2 if batch.classes == 2 else distance


# Terms [m] of each sample, or [m, d] of each of its outputs; the sums are over samples.
CLASS_SUMS: dict[str, Callable[[ClassBatch], Tensor]] = {
    "log-loss": _clipped_log_loss,
    "nll": lambda batch: -batch.log_likelihood,
    "brier": _brier,
}
NUMBER_SUMS: dict[str, Callable[[NumberBatch], Tensor]] = {
    "squared": lambda batch: (batch.values - batch.targets).square(),
    "absolute": lambda batch: (batch.values - batch.targets).abs(),
}


def _auc(totals: Totals) -> Tensor:
    areas, kept = [], None
    for output in totals.outputs:
        batch = read_classes(totals.criterion, output, totals.targets)
        assert batch is not None
        if kept is None:
            # The same for all models. Read from a GPU once.
            kept = batch.in_range.nonzero()[:, 0]
        areas.append(auc_of_logits(batch.logits[kept], batch.actual[kept]))
    return torch.stack(areas)


def _mean_predictor_rmse(totals: Totals) -> Tensor:
    """RMSE of always predicting the mean of these targets: where R² is 0."""
    error = totals.targets.double().cpu().std(0, correction=0).mean()
    return error.expand(len(totals.sums["squared"]))


def _r2(totals: Totals) -> Tensor:
    """1 − Σ(y − ŷ)² / Σ(y − ȳ)², the mean over outputs; constant targets: 1 if right, else 0."""
    targets = totals.targets.double().reshape(len(totals.targets), -1).cpu()
    spread = (targets - targets.mean(0)).square().sum(0)
    residual = totals.sums["squared"]
    constant = torch.where(residual == 0, 1.0, 0.0).double()
    return torch.where(spread > 0, 1 - residual / spread, constant).mean(1)


_CLASSES: frozenset[Kind] = frozenset({"classes", "tokens"})
_NUMBERS: frozenset[Kind] = frozenset({"numbers"})


def _by_counts(name: str, label: str, compute: Callable[[ClassCounts], Tensor]) -> Metric:
    return Metric(name, label, _CLASSES, lambda totals: compute(totals.class_counts))


def _by_sum(name: str, label: str, key: str, finish: Callable[[Tensor], Tensor]) -> Metric:
    kinds = _CLASSES if key in CLASS_SUMS else _NUMBERS

    def compute(totals: Totals) -> Tensor:
        return finish(totals.mean(key))

    return Metric(name, label, kinds, compute, (key,), higher_is_better=False)


def _recorded_anyway(totals: Totals) -> Tensor:
    raise AssertionError("every evaluation computes loss and accuracy")


METRICS = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "Accuracy", _CLASSES, _recorded_anyway, unit=" %"),
        Metric("loss", "Loss", frozenset(), _recorded_anyway, higher_is_better=False),
        Metric(
            "balanced-accuracy",
            "Balanced accuracy",
            _CLASSES,
            lambda totals: 100 * totals.class_counts.balanced_accuracy,
            unit=" %",
        ),
        Metric("auc", "AUC", frozenset({"classes"}), _auc, needs_outputs=True),
        _by_counts("f1", "F1", lambda counts: counts.positive(counts.f1)),
        _by_counts("f1-macro", "Macro F1", lambda counts: counts.macro(counts.f1)),
        _by_counts("precision", "Precision", lambda counts: counts.positive(counts.precision)),
        _by_counts("recall", "Recall", lambda counts: counts.positive(counts.recall)),
        _by_sum("brier", "Brier score", "brier", lambda mean: mean),
        _by_sum("log-loss", "Log-loss", "log-loss", lambda mean: mean),
        Metric(
            "perplexity",
            "Perplexity",
            frozenset({"tokens"}),
            lambda totals: totals.mean("nll").exp(),
            ("nll",),
            higher_is_better=False,
        ),
        _by_sum("mse", "Mean squared error", "squared", lambda mean: mean.mean(1)),
        _by_sum("rmse", "Root mean squared error", "squared", lambda mean: mean.sqrt().mean(1)),
        Metric(
            "baseline-rmse",
            "RMSE of predicting the mean",
            _NUMBERS,
            _mean_predictor_rmse,
            ("squared",),
            higher_is_better=False,
        ),
        _by_sum("mae", "Mean absolute error", "absolute", lambda mean: mean.mean(1)),
        Metric("r2", "R²", _NUMBERS, _r2, ("squared",)),
    )
}
STANDARD = ("accuracy", "loss")
# What every run records whose target is a number in its own unit.
REGRESSION = tuple(METRICS[name] for name in ("rmse", "baseline-rmse", "mae", "r2"))

_PREDICTIONS = {
    "classes": "classes",
    "tokens": "tokens of sequences",
    "numbers": "numbers",
    "other": "neither single classes nor numbers",
}


def describe_metric(name: str) -> Metric:
    """The metric of this name; of a user's own, its name is its label."""
    own = Metric(name, name, frozenset(), _recorded_anyway)
    return METRICS.get(name, own)


def find_metrics(given: Metrics | None, key: str = "metrics") -> tuple[Metric, ...]:
    """The metrics that a user names or gives as functions.

    Args:
        given: Names, or functions by name; a name may stand in place of a function.
        key: What the argument is called, for messages.

    Raises:
        Misuse: If a name is unknown or taken, or something is not a function.
    """
    if given is None:
        return ()
    if isinstance(given, str) or not isinstance(given, Mapping | Sequence):
        raise Misuse(
            f"{key} is {given!r}.", f'Give a list such as {key} = ["auc", "f1"], or functions.'
        )
    items: Iterable[tuple[Any, Any]] = (
        given.items() if isinstance(given, Mapping) else ((name, name) for name in given)
    )
    by_name = {name: _find(name, value, key) for name, value in items}
    return tuple(by_name.values())


def check_kind(metrics: Iterable[Metric], kind: Kind, key: str = "metrics") -> None:
    """Raise Misuse if a metric does not fit what the model predicts."""
    for metric in metrics:
        if metric.kinds and kind not in metric.kinds:
            wanted = " or ".join(_PREDICTIONS[kind] for kind in sorted(metric.kinds))
            fitting = [other.name for other in METRICS.values() if kind in other.kinds]
            remedy = f"Choose {', '.join(fitting)}" if fitting else "Choose loss"
            if kind != "tokens" and metric.kinds & _CLASSES:
                remedy += "; classes are whole numbers, with cross-entropy as the loss"
            raise Misuse(
                f"{key}: {metric.name!r} is for models that predict {wanted}, but this one "
                f"predicts {_PREDICTIONS[kind]}.",
                f"{remedy}, or give a function of your own.",
            )


def _find(name: Any, value: Any, key: str) -> Metric:
    if isinstance(value, str):
        if value not in METRICS:
            raise unknown_name(
                f"{key}: {value!r} is not a metric.", value, METRICS, also=", or your own function"
            )
        if name != value:
            raise Misuse(
                f"{key}: {name!r} stands for {value!r}.", f"Call it {value!r}, as all runs do."
            )
        return METRICS[value]
    if not isinstance(name, str) or not name.strip() or "." in name or name in METRICS:
        raise Misuse(
            f"{key}: a function of yours cannot be called {name!r}.",
            "Give it a name without dots that is not a built-in metric's.",
        )
    if not callable(value):
        raise Misuse(
            f"{key}: {name!r} is a {type(value).__name__}.",
            "Give a function of outputs [n, ...] and targets [n, ...] that returns a number.",
        )
    function: Function = value

    def compute(totals: Totals) -> Tensor:
        values = [_call(name, function, output, totals.targets) for output in totals.outputs]
        return torch.tensor(values, dtype=torch.float64)

    return Metric(name, name, frozenset(), compute, needs_outputs=True)


def _call(name: str, function: Function, output: Tensor, targets: Tensor) -> float:
    remedy = "It takes outputs [n, ...] and targets [n, ...], and returns one number."
    try:
        return float(function(output, targets))
    except Exception as problem:  # whatever the user's function raises
        raise Misuse(
            f"The metric {name!r} fails for outputs of shape {tuple(output.shape)}: "
            f"{first_line(problem)}.",
            remedy,
        ) from problem
