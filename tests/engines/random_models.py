"""A task whose model draws for every sample, on small images of two classes."""

import torch
from torch import nn

import tacit


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(1, 4, 3),
            nn.Tanh(),
            nn.Dropout2d(0.3),
            nn.Flatten(),
            nn.Linear(64, 6),
            nn.Tanh(),
            nn.Dropout(0.5),
            nn.Linear(6, 2),
        ).double()


def random_task(clients, batch_size=3, uneven=True):
    draw = torch.Generator().manual_seed(0)
    sizes = [9 + (4 * (k % 3) if uneven else 0) for k in range(clients)]
    parts = [
        (torch.randn(n, 1, 6, 6, generator=draw, dtype=torch.float64), torch.arange(n) % 2)
        for n in sizes
    ]
    augment = tacit.Augment(crop=1, flip=True)
    return tacit.Task(network(), parts, batch_size=batch_size, augment=augment)
