"""A small ResNet and a small transformer, with an algorithm for each way to communicate."""

import torch

import tacit
from support import suited

CLIENTS, STEPS, SEED = 3, 3, 5
# Meets every requirement of every algorithm.
GRAPH = tacit.Topology.ring(CLIENTS).mixing("metropolis", lazy=True)
MODULES = {
    "resnet": ("resnet18-gn", (1, 8, 8), {"width": 2, "groups": 2}),
    "transformer": (
        "transformer",
        (5,),
        {"vocabulary": 7, "dim": 8, "heads": 2, "feedforward": 12, "layers": 2},
    ),
    # As people write it, of torch's own layers.
    "encoder layer": (None, (4, 6), {}),
}
ALGORITHMS = {
    "mix": ("lppa", {"fresh": True}),
    "mix, local steps": ("dsgt", {"local_steps": 2}),
    "send": ("pdmm", {}),
    "total": ("private-sgd", {"momentum": 0.9}),
    "average": ("fedavg", {"local_steps": 2}),
}


class Encoder(torch.nn.Module):
    """One of torch's transformer layers, its mean over the sequence, a linear layer."""

    def __init__(self, dim, classes):
        super().__init__()
        self.layer = torch.nn.TransformerEncoderLayer(
            dim, 2, 8, dropout=0.0, batch_first=True, norm_first=True
        )
        self.linear = torch.nn.Linear(dim, classes)

    def forward(self, x):
        return self.linear(self.layer(x).mean(1))


def module_task(name, dtype=torch.float64):
    """A task in which clients have 4, 5 and 6 samples, and batches of 2."""
    model, shape, options = MODULES[name]
    draw = torch.Generator().manual_seed(1)
    with torch.random.fork_rng():
        torch.manual_seed(2)
        module = Encoder(shape[-1], 3) if model is None else tacit.models.build(
            model, shape, 3, **options
        )  # fmt: skip
    parts = []
    for size in range(4, 4 + CLIENTS):
        x = torch.randn(size, *shape, generator=draw, dtype=torch.float64).to(dtype)
        if "vocabulary" in options:
            x = torch.randint(options["vocabulary"], (size, *shape), generator=draw)
        parts.append((x, torch.randint(3, (size,), generator=draw)))
    return tacit.Task(module.to(dtype), parts, batch_size=2)


def module_case(label, name, dtype=torch.float64):
    """An algorithm that communicates in this way, and the task."""
    kind, options = ALGORITHMS[label]
    algorithm = suited.made(tacit.ALGORITHMS[kind], **options)
    return suited.suited(algorithm, module_task(name, dtype), GRAPH)
