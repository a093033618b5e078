"""An attack: the mean of a victim's data, from a gradient that a neighbour computed."""

import torch

import tacit


def reconstruct(evidence):
    """The gradient of ‖θ − x‖² summed over the coordinates of a victim is 2(θ − x)."""
    return evidence.points[0] - evidence.values / 2


secrets = [torch.tensor([1.0, 2.0]).double() * client for client in range(5)]
task = tacit.Task(
    torch.zeros(2).double(), secrets, loss=lambda theta, x: torch.sum((theta - x) ** 2)
)
run = tacit.run(task, "dsgt", steps=3, lr=0.1)
gradient, *_ = tacit.evidence(run, "curious(1)", victim=2)
result = torch.allclose(reconstruct(gradient), secrets[2], atol=1e-4)
