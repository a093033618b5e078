"""A model, data and graph of your own: `python examples/own_model.py` (a few seconds)."""

import networkx as nx
import torch
from torch import nn
from torch.nn.utils import vector_to_parameters

import tacit

# Data: two moons, one third of the samples held out; six clients of different sizes and different rotations.
generator = torch.Generator().manual_seed(0)
angle = torch.pi * torch.rand(1200, generator=generator)
label = torch.randint(0, 2, (1200,), generator=generator)
x = torch.stack(
    (torch.cos(angle) + label - 0.5, torch.where(label == 0, 1.0, -1.0) * torch.sin(angle)), dim=1
)
x = x + 0.15 * torch.randn(x.shape, generator=generator)
test = (x[800:], label[800:])
sizes = [250, 200, 150, 100, 60, 40]
parts = list(zip(x[:800].split(sizes), label[:800].split(sizes), strict=True))

# Who talks to whom: any networkx graph.
graph = tacit.Topology.from_networkx(nx.circular_ladder_graph(3)).mixing("metropolis")

model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
task = tacit.Task.from_module(model, parts, batch_size=20, test=test)
run = tacit.simulate(
    tacit.LPPA(lr=0.3, noise=tacit.Laplace(0.1)), task, graph, steps=400, seed=0, transcript=True
)

for record in run.history:
    print(
        f"step {record.step:4d}: accuracy {record.accuracy.mean:.1f} %, apart {record.consensus_distance:.3f}"
    )

first = run.transcript.of("gamma")[0]
print(
    f"the first tracker that client 0 sent begins with {[round(v, 2) for v in first.rows[0, :3].tolist()]}"
)

# Back into an ordinary module: the rows of theta are in the order of module.parameters().
vector_to_parameters(run.theta.mean(0), model.parameters())
right = (model(test[0]).argmax(1) == test[1]).float().mean()
print(f"the average model is right on {100 * right:.1f} % of the held-out samples")
