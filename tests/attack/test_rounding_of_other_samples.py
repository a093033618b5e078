"""Layered gradients of a sample depend on how many others are in the batch (GEMM tails).

At a kink of ReLU a last bit decides about a whole gradient: one sample changes those of others.
"""

import torch

import tacit
from tacit.engines.gradients.objective import HostedObjective
from tacit.engines.gradients.sample_backends import SampleBackend

N, C = 700, 1.0
POSITIONS = (696, 697, 698)


def made():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    first, last = torch.nn.Linear(784, 64), torch.nn.Linear(64, 10)
    with torch.no_grad():
        last.weight[:, 0] *= 1e4  # the gradient is that through unit 0, if it is active
        last.weight[:, 0] -= last.weight[:, 0].mean()
    module = torch.nn.Sequential(torch.nn.Flatten(), first, torch.nn.ReLU(), last)
    x, y = torch.randn(N, 1, 28, 28), torch.zeros(N, dtype=torch.int64)
    return module, first, x, y


def clipped_sum(module, x, y):
    task = tacit.Task.from_module(module, [(x, y)], batch_size=len(x))
    loader = task.loader(torch.tensor([0]), 0, "cpu", positions=torch.tensor([0]))
    objective = HostedObjective(task, [0], loader, "looped", 0, "cpu")
    sample = objective.poisson_sample(1.0, lambda ids, width: torch.zeros(len(ids), width).long())
    return objective.clipped_sum_of(task.initial(0, [0]), sample, C)[0].double()


def test_one_sample_changes_a_sum_by_its_own_gradient_only():
    module, first, x, y = made()
    task = tacit.Task.from_module(module, [(x, y)], batch_size=N)
    backend, theta = SampleBackend.of(task, "layered"), task.initial(0, [0])[0]
    w, b = first.weight[0].double(), first.bias[0].double()
    found = []
    generator = torch.Generator().manual_seed(1)
    tries = 0
    while len(found) < 3 and tries < 100:
        tries += 1
        trial = []
        for _ in POSITIONS:
            one = torch.randn(784, generator=generator)
            # Move onto the plane on which unit 0 is zero.
            one = (one.double() - ((one.double() @ w + b) / (w @ w)) * w).float()
            trial.append(one.view(1, 28, 28))
        for at, one in zip(POSITIONS, trial):
            x[at] = one
        more = backend.gradients(theta, (x, y))
        less = backend.gradients(theta, (x[:-1], y[:-1]))
        active = [[(p.left[at, 0] != 0).item() for at in POSITIONS] for p in (more[0], less[0])]
        found += [one for one, a, c in zip(trial, *active) if a != c]
    print("tries", tries, "found", len(found))
    for at, one in zip(POSITIONS, found):
        x[at] = one
    best = 0.0
    import itertools
    for order in itertools.permutations(range(len(found))):
        for at, k in zip(POSITIONS, order):
            x[at] = found[k]
        change = (clipped_sum(module, x, y) - clipped_sum(module, x[:-1], y[:-1])).norm()
        best = max(best, float(change))
    print("change", best, "bound", C)
    assert best <= C * 1.001
