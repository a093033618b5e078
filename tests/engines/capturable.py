"""Algorithms with a step size that changes in every iteration, and a small task, for captures."""

from dataclasses import fields, replace

import torch
from torch import nn

import tacit
from tacit import ALGORITHMS
from tacit.core.schedules import Exponential

N = 6
GRAPH = tacit.Topology.ring(N).mixing("metropolis", lazy=True)
FALLING = Exponential(0.05, 0.8)
# The scale of its noise is computed on the host.
CANNOT = {"psgt"}


def digits(batch_size=3, uneven=True):
    draw = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)).double()
    # Uneven clients have epochs of 3, 4 and 5 batches, some with samples left over.
    sizes = [9 + (4 * (k % 3) if uneven else 0) for k in range(N)]
    parts = [
        (torch.randn(n, 3, generator=draw, dtype=torch.float64), torch.arange(n) % 2) for n in sizes
    ]
    return tacit.Task.from_module(module, parts, batch_size=batch_size, init="independent")


def made(kind):
    given = {"lr": FALLING, "solver": tacit.QuadraticSolver(mu=0.25)}
    return kind(**{field.name: given[field.name] for field in fields(kind) if field.name in given})


VARIANTS = {
    **{name: made(kind) for name, kind in ALGORITHMS.items()},
    "dp-dsgt every": replace(made(tacit.DPDSGT), inject="every"),
    "lppa fresh": replace(made(tacit.LPPA), fresh=True, noise=tacit.Gaussian(0.1)),
    "lppa fresh, local steps": replace(made(tacit.LPPA), fresh=True, local_steps=3),
    "defl-vp private": replace(
        made(tacit.DeFLVP), private_variates=True, momentum=0.5, zeros="coin"
    ),
}
