"""Algorithms with a step size that changes in every iteration, and a small task, for captures."""

from dataclasses import replace

import torch
from torch import nn

import tacit
from support import suited
from support.suited import PROMISE
from tacit import ALGORITHMS
from tacit.algorithms.algorithm import tensors_of
from tacit.core.rows import is_shared
from tacit.core.schedules import Exponential
from tacit.engines.capture.iteration import overwrite

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
    return tacit.Task(module, parts, batch_size=batch_size, init="independent")


def made(kind, **options):
    algorithm = suited.made(kind, **options)
    return replace(algorithm, lr=FALLING) if hasattr(algorithm, "lr") else algorithm


VARIANTS = {
    **{name: made(kind) for name, kind in ALGORITHMS.items()},
    "dp-dsgt every": replace(made(tacit.DPDSGT), inject="every"),
    "lppa fresh": replace(made(tacit.LPPA), fresh=True, noise=tacit.Gaussian(0.1)),
    "lppa fresh, local steps": replace(made(tacit.LPPA), fresh=True, local_steps=3),
    "defl-vp private": replace(
        made(tacit.DeFLVP), private_variates=True, momentum=0.5, zeros="coin"
    ),
    "lppa nesterov": made(tacit.LPPA, momentum=0.9, nesterov=True, weight_decay=0.1),
    "edsg momentum": made(tacit.EDSG, momentum=0.9),
    "dsg adam": made(tacit.DSG, optimizer="adam", weight_decay=0.1),
    "d-psgd adamw": made(tacit.DPSGD, optimizer="adamw", weight_decay=0.1),
    "fedavg adam": made(tacit.FedAvg, optimizer="adam"),
    "dsgt warm-up": replace(made(tacit.DSGT), lr=tacit.Warmup(4, then=FALLING)),
    "private-sgd momentum": made(tacit.PrivateSGD, momentum=0.9),
    "private-sgd adam": made(tacit.PrivateSGD, optimizer="adam"),
    "private-sgd clients": made(tacit.PrivateSGD, momentum=0.9, local_steps=3),
    "private-sgd adam clients": made(tacit.PrivateSGD, optimizer="adam"),
}
CLIENTS = tacit.Privacy(epsilon=5.0, delta=0.01, unit="client")


def case(name, uneven=True):
    """An algorithm and the task that suits it."""
    promise = CLIENTS if name.endswith("clients") else PROMISE
    task = digits(uneven=uneven)
    return suited.suited(VARIANTS[name], task, GRAPH, promise=promise, steps=40)


def capture_on_cpu(step):
    """Run the text of a step once for each place of its state, and undo the effects."""
    first = tensors_of(step.state)
    before = {name: rows.clone() for name, rows in first.items()}
    del first

    def capture(work, device):
        work()
        return work

    step.capture(capture)
    for tensor in step.buffers.held():
        if not is_shared(tensor):
            tensor.fill_(torch.nan)
    overwrite(tensors_of(step.state), before)
