"""Clients with different mixes of digits: a last layer for each client, beside one model for all.

Every client has its own mix of digits (Dirichlet, alpha = 0.1). Once all of them train one model,
and once each keeps its last layer to itself: only the layers before it travel. Both are tested on
digits that the client has held out, of its own mix.

    python examples/local_heads.py
"""

import torch

import tacit

CLIENTS, STEPS = 6, 400
digits = tacit.data.load("mnist-mini", limit_train=2400)
labels = digits.train.y.numpy()
mixes = tacit.data.partition("dirichlet", labels, CLIENTS, alpha=0.1, seed=4, minimum=60)
train, held_out = [], []
for rows in mixes.indices:
    shuffled = torch.as_tensor(rows)[torch.randperm(len(rows), generator=torch.manual_seed(0))]
    test, rest = shuffled.tensor_split([len(rows) // 3])
    train.append((digits.train.x[rest], digits.train.y[rest]))
    held_out.append((digits.train.x[test], digits.train.y[test]))

graph = tacit.Topology.ring(CLIENTS).mixing("metropolis")


def accuracies(local: list[str] | None) -> tuple[list[float], int]:
    """The accuracy of each client's own model on its held-out digits, and the bytes sent."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(784, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)
    )
    task = tacit.Task(model, train, batch_size=20, local=local)
    run = tacit.run(task, tacit.DSGT(lr=0.1), graph, steps=STEPS)
    right = []
    for client, (x, y) in enumerate(held_out):
        right.append(float((run.module(client)(x).argmax(1) == y).float().mean()))
    return right, run.history[-1].bytes_sent


shared, sent = accuracies(None)
own, less = accuracies(["3"])
print("client  digits   one model   own last layer")
for client, (x, _) in enumerate(held_out):
    print(f"{client:6}  {len(x):6}   {shared[client]:9.1%}   {own[client]:14.1%}")
print(f"mean             {sum(shared) / CLIENTS:9.1%}   {sum(own) / CLIENTS:14.1%}")
print(f"sent           {sent / 1e6:8.1f} MB   {less / 1e6:11.1f} MB")
