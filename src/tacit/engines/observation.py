"""Metrics of the models of all clients, also when several processes host them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm
from tacit.engines.group import Hosted
from tacit.engines.model_scores import CommonScores, OwnScores
from tacit.record.history import SCALARS, Record, Spread
from tacit.tasks.evaluation import Evaluation, NoScores, TestSet
from tacit.tasks.objective import Objective

MAX_EVALUATED_CLIENTS = 32


def observe(
    theta: Tensor,
    evaluation: Evaluation,
    hosted: Hosted,
    *,
    own_tests: Sequence[TestSet | None] | None = None,
    optimum: Tensor | None = None,
    round: int,
    step: int,
    bytes_sent: int,
    wall_seconds: float,
    shared: Tensor | None = None,
) -> Record:
    """Evaluate the models of the clients and return one record of the history.

    Each process evaluates the clients it hosts. The process of client 0 also evaluates the average
    model.

    Args:
        theta: The models of the hosted clients, [n, P].
        evaluation: Computes loss and accuracy of a model.
        hosted: Which clients this process hosts.
        own_tests: The clients' own test sets, if there are any.
        optimum: The optimum [P], if it is known; the record then has the mean-square deviation.
        round: Number of the round, as recorded.
        step: Number of iterations so far, as recorded.
        bytes_sent: Bytes that all clients have sent so far, as recorded.
        wall_seconds: Seconds since the start, as recorded.
        shared: What clients agree on, if their models have local parameters, too; [n, P].
    """
    average = mean_row(theta, hosted)
    agreed = theta if shared is None else shared
    agreed_average = average if shared is None else mean_row(shared, hosted)
    distance = consensus_distance(agreed, agreed_average, hosted)
    evaluated = evaluated_clients(hosted.clients)
    common = CommonScores.measure(theta, average, evaluation, hosted, evaluated)
    own = None
    if own_tests is not None:
        own = OwnScores.measure(theta, average, own_tests, hosted, evaluated)
    per_client: dict[str, Sequence[float]] = {}
    if common.metrics or own is not None:
        per_client = {"client": evaluated, **(common.clients if evaluation.has_loss else {})}
        per_client |= {} if own is None else own.clients
    return Record(
        round,
        step,
        common.spread("accuracy") if common.has_accuracy else None,
        common.spread("loss") if evaluation.has_loss else None,
        distance,
        bytes_sent,
        wall_seconds,
        None if optimum is None else mean_square_deviation(theta, optimum, hosted),
        common.baseline,
        {name: common.spread(name) for name in common.metrics},
        {} if own is None else own.spreads,
        per_client,
        common.predictions,
    )


def recordable(task: Objective, algorithm: Algorithm) -> Objective:
    """The task without what records of a run with a guarantee must not have.

    Without a test set the loss would be computed from the training data, and so is the optimum. The
    guarantee covers neither.
    """
    budget = algorithm.budget
    if budget is None or math.isinf(budget.epsilon) or not task.evaluation.reads_training_data:
        return task
    return replace(task, evaluation=NoScores(), optimum=None)


def recorded_columns(task: Objective) -> list[str]:
    """The columns that records of a run of this task have."""
    evaluation, own = task.evaluation, task.own_tests
    counted: tuple[str, ...] = ("accuracy",) if evaluation.has_accuracy else ()
    common = (*["loss"] * evaluation.has_loss, *counted, *evaluation.metric_names)
    own_metrics: tuple[str, ...] = ()
    if own is not None:
        counted = ("accuracy", "baseline") if evaluation.has_accuracy else ()
        names = next((test.metric_names for test in own if test is not None), ())
        own_metrics = tuple(f"own_test.{name}" for name in ("loss", *counted, *names))
    unknown = {"msd": task.optimum is None, "baseline": not evaluation.has_accuracy}
    clients = evaluated_clients(task.clients) if evaluation.metric_names or own else ()
    metrics = (*common, *own_metrics)
    return [
        *(f"{metric}.{part}" for metric in metrics for part in Spread.__annotations__),
        *(name for name in SCALARS if not unknown.get(name)),
        *(f"{metric}.clients.{client}" for metric in metrics for client in clients),
    ]


def evaluated_clients(count: int) -> list[int]:
    """All clients, or `MAX_EVALUATED_CLIENTS` evenly spaced ones if there are more."""
    if count <= MAX_EVALUATED_CLIENTS:
        return list(range(count))
    return [k * count // MAX_EVALUATED_CLIENTS for k in range(MAX_EVALUATED_CLIENTS)]


def mean_row(theta: Tensor, hosted: Hosted) -> Tensor:
    """The average model [P] of all clients, summed in double precision."""
    total = hosted.group.total(theta.sum(0, dtype=torch.float64))
    return (total / hosted.clients).to(theta.dtype)


def consensus_distance(theta: Tensor, average: Tensor, hosted: Hosted) -> float:
    """(1/N Σᵢ ‖θᵢ − θ̄‖²)^½."""
    return math.sqrt(mean_square_deviation(theta, average, hosted))


def mean_square_deviation(theta: Tensor, point: Tensor, hosted: Hosted) -> float:
    """1/N Σᵢ ‖θᵢ − point‖², or NaN if it is not finite."""
    # In pieces of 2²⁴ numbers, because the difference needs as much memory as the rows.
    step = max(1, (1 << 24) // theta.shape[1])
    point = point.to(theta)
    here = 0.0
    for rows in torch.split(theta, step):
        here += float((rows - point).square().sum(dtype=torch.float64))
    total = float(hosted.group.total(torch.tensor(here, dtype=torch.float64)))
    return total / hosted.clients if math.isfinite(total) else math.nan
