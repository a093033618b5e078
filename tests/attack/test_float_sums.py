"""One sample changes a client's float32 sum by 4C, not C: noise is exact, the sum is not."""

import math

import numpy as np
import torch

import tacit
from tacit.algorithms.private_algorithm import prepare
from tacit.engines.gradients.objective import HostedObjective
from tacit.privacy.accounting.gaussian import gaussian_epsilon
from tacit.tasks.poisson import PoissonSampler

C = 1.000001  # gradients of 1 are not clipped
TINY = 1 + 2.0**-10  # a little more than half of a unit in the last place


def loss(theta, x):
    return (theta * x).sum(1).mean()


def dataset(canary, stages=2):
    k, gap = 13, 1
    ones = 2**13 - 1
    parts = [torch.ones(ones), torch.tensor([float(canary)])]
    total = 2**13  # of the larger world
    for stage in range(stages):
        half = 2.0 ** (k + stage - 24)
        groups = int(gap / half)
        parts.append(torch.full((4 * groups,), half * TINY / 4))
        total += 2 * gap
        gap *= 2
        if stage + 1 < stages:
            need = 2 ** (k + stage + 1) - total
            parts.append(torch.ones(need))
            total += need
    return torch.cat(parts)[:, None]


def private(canary, epsilon=1.0, steps=1):
    x = dataset(canary)
    other = torch.zeros_like(x)
    task = tacit.Task.from_loss(loss, [x, other], torch.zeros(1), batch_size=len(x))
    graph = tacit.Topology.complete(2).mixing("metropolis")
    algorithm = tacit.PrivateSGD(lr=1.0, clip=C)
    promise = tacit.Privacy(epsilon=epsilon, delta=1e-6, honest=1)
    return prepare(algorithm, promise, task, graph, steps), task, graph


def integers(canary):
    algorithm, task, _ = private(canary)
    mechanism = algorithm.mechanism
    loader = task.loader(torch.tensor([0]), 0, "cpu", positions=torch.tensor([0]))
    objective = HostedObjective(task, [0], loader, "looped", 0, "cpu")  # as a node has it
    sample = objective.poisson_sample(1.0, lambda ids, width: torch.zeros(len(ids), width).long())
    out = objective.clipped_sum_of(torch.zeros(1, 1), sample, C)
    return mechanism, int(mechanism.code.encode(out)[0, 0])


def test_one_sample_changes_the_integers_by_at_most_what_noise_is_calibrated_for():
    mechanism, without = integers(0)
    _, with_it = integers(1)
    s, budget = mechanism.code.scale, mechanism.budget
    allowed = s * C + 1
    change = with_it - without
    noise = mechanism.code.noise.scale  # of one honest client
    claimed = budget.spent(1)
    true = gaussian_epsilon(budget.delta, change / noise)
    print(f"n={len(dataset(0))} allowed {allowed:.0f} change {change} = {change/allowed:.2f}x; "
          f"promised eps {budget.epsilon}, claimed {claimed:.3f}, true {true:.3f}")
    assert change <= allowed
