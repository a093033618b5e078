import math
import numpy as np, torch, pytest, tacit
from tacit.algorithms.private_algorithm import prepare
from tacit.engines.gradients.objective import HostedObjective
from tacit.tasks.parts import Parts
from tacit.tasks.sample_gradients import OuterProducts, write_clipped_sums
from tacit.privacy.keystreams import KeyRing
from dataclasses import replace


def loss(theta, x):
    return (theta * x).sum(1).mean()


def test_a_sample_that_several_clients_hold():
    """`Parts` with repeats: one training sample is in all five clients' sums, and changes 5C."""
    arrays = (torch.cat((torch.zeros(50, 1), torch.ones(1, 1))),)
    indices = [[*range(10 * i, 10 * i + 10), 50] for i in range(5)]
    parts = Parts.split(arrays, indices)
    assert parts.has_repeats
    module = torch.nn.Linear(1, 1, bias=False)
    parts = Parts.split((*arrays, torch.zeros(51, 1)), indices)
    task = tacit.Task.from_module(module, parts, loss=torch.nn.functional.mse_loss, batch_size=11)
    graph = tacit.Topology.complete(5).mixing("metropolis")
    with pytest.raises(tacit.Misuse):
        prepare(tacit.PrivateSGD(lr=1.0), tacit.Privacy(epsilon=1.0, delta=1e-3), task, graph, 1)


@pytest.mark.parametrize("bound", [1e-6, 1e-3])
def test_clipping_of_outer_products_that_underflow(bound):
    """left is subnormal: factor · left is rounded to one digit, by up to a factor of two."""
    width = max(16, int((1.3 * bound / 4.7e-7) ** 2))
    left = torch.full((1, 1), 2.0**-149)
    right = torch.full((1, width), 3.3e38)
    exact = 2.0**-149 * 3.3e38 * math.sqrt(width)
    out = torch.zeros(1, width)
    write_clipped_sums([OuterProducts(right, left)], bound, [(torch.tensor([0, 1]), out)])
    norm = float(out.double().norm())
    print("before", exact, "after", norm, "bound", bound)
    assert norm <= bound * (1 + 1e-6)


def test_sampling_of_a_federation_that_starts_over_is_new():
    """Masks and noise have fresh salts; the words that choose samples do not."""
    ring = KeyRing.from_seed(3, 0)
    one = replace(ring, salts={i: bytes([i] * 16) for i in range(3)})
    two = replace(ring, salts={i: bytes([i + 9] * 16) for i in range(3)})
    client = torch.tensor([0])
    a, b = (r.randomness(8, torch.float32).words("sampling/0", 1, client, 8) for r in (one, two))
    assert not torch.equal(a, b)
