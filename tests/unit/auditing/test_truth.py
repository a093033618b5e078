"""The data that an audit compares with."""

import torch

import tacit
from tacit.auditing.scoring.truth import Truth

SEED = 5


def batches(task, ids, positions, number):
    """What the gradient `number` of a run saw, by client."""
    loader = task.loader(torch.tensor(ids), SEED, "cpu", positions=torch.tensor(positions))
    ((_, load),) = loader.chunks(number, lambda count: [slice(0, count)])
    return load()[0]


def task_of(parts):
    return tacit.Task(torch.nn.Linear(3, 2), parts, batch_size=4)


def parts_of(clients):
    draw = torch.Generator().manual_seed(1)
    return [
        (torch.randn(20, 3, generator=draw), torch.randint(2, (20,), generator=draw))
        for _ in range(clients)
    ]


def test_batches_are_those_of_the_run_for_every_client_and_gradient():
    task = task_of(parts_of(3))
    truth, seen = Truth(task, SEED), set()
    for number in range(4):
        expected = batches(task, [0, 1, 2], [0, 1, 2], number)
        for client in range(3):
            inputs, _ = truth.batch(client, number)
            assert torch.equal(inputs, expected[client])
            seen.add(inputs.numpy().tobytes())
    assert len(seen) == 12


def test_a_node_with_its_own_part_only_has_the_batches_of_its_number():
    task = task_of(parts_of(1))
    for number in range(3):
        inputs, _ = Truth(task, SEED, number=7).batch(0, number)
        assert torch.equal(inputs, batches(task, [7], [0], number)[0])
