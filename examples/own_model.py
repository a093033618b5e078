"""Your own model, data and graph: `python examples/own_model.py` (a few seconds)."""

import networkx as nx
import torch
from torch import nn

import tacit

# Two moons: 800 samples for six clients with different amounts of data, 400 for testing.
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

# Any networkx graph.
graph = tacit.Topology.from_networkx(nx.circular_ladder_graph(3)).mixing("metropolis")

model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
task = tacit.Task(model, parts, batch_size=20, test=test)
run = tacit.run(
    task, tacit.LPPA(lr=0.3, noise=tacit.Laplace(0.1)), graph, steps=400, seed=0, transcript=True
)

for record in run.history:
    print(
        f"step {record.step:4d}: accuracy {record.accuracy.mean:.1f} %, "
        f"consensus distance {record.consensus_distance:.3f}"
    )

tracker = run.transcript.of("gamma")[0].rows[0]
print(f"client 0's first masked tracker: {[round(v, 2) for v in tracker[:3].tolist()]} …")

average = run.module("average")
accuracy = (average(test[0]).argmax(1) == test[1]).float().mean()
print(f"accuracy of the average model: {100 * accuracy:.1f} %")
