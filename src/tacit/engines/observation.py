"""Metrics of the models of all clients, also when several processes host them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tacit.core.rows import is_shared, shared
from tacit.engines.group import Hosted
from tacit.record.history import Record, Spread
from tacit.tasks.evaluation import Evaluation, ModelScores

MAX_EVALUATED_CLIENTS = 32


def observe(
    theta: Tensor,
    evaluation: Evaluation,
    hosted: Hosted,
    *,
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
    scores = _scores(theta, average, evaluation, hosted.ids.tolist(), hosted.clients)
    loss, accuracy, classified = hosted.group.total(scores)
    return Record(
        round,
        step,
        _spread(accuracy) if bool(classified.all()) else None,
        _spread(loss),
        distance,
        bytes_sent,
        wall_seconds,
        None if optimum is None else mean_square_deviation(theta, optimum, hosted),
    )


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


def _scores(
    theta: Tensor, average: Tensor, evaluation: Evaluation, ids: list[int], count: int
) -> Tensor:
    """Loss, accuracy and whether there is an accuracy, [3, evaluated + 1].

    The last column belongs to the average model. Columns of clients hosted elsewhere are zero.
    """
    evaluated = evaluated_clients(count)
    table = torch.zeros(3, len(evaluated) + 1, dtype=torch.float64)

    def enter(columns: list[int], scores: ModelScores) -> None:
        table[0, columns] = scores.loss.double().cpu()
        if scores.accuracy is not None:
            table[1, columns], table[2, columns] = scores.accuracy.double().cpu(), 1.0

    row_of = {client: row for row, client in enumerate(ids)}
    columns = [column for column, client in enumerate(evaluated) if client in row_of]
    if columns:
        clients = [evaluated[column] for column in columns]
        rows = theta[[row_of[client] for client in clients]]
        if is_shared(theta):
            rows = shared(theta[:1], len(clients))
        enter(columns, evaluation.models(rows, clients))
    if 0 in row_of:
        enter([len(evaluated)], evaluation.average(average))
    return table


def _spread(scores: Tensor) -> Spread:
    """The spread of scores [k + 1], the last of which belongs to the average model."""
    each = scores[:-1]
    return Spread(float(each.mean()), float(each.min()), float(each.max()), float(scores[-1]))
