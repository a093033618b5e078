"""Test data per client, NaN in data, and NumPy's integers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import tacit
from tacit.core.errors import Misuse

PARTS = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(3)]
TESTS = [(torch.randn(n, 4), torch.randint(3, (n,))) for n in (5, 6, 7)]


def test_one_test_set_per_client() -> None:
    task = tacit.Task.from_module(nn.Linear(4, 3), PARTS, batch_size=10, test=TESTS)
    assert task.client_tests is not None
    for (x, y), (mine, own) in zip(TESTS, task.client_tests, strict=True):
        assert torch.equal(x, mine)
        assert torch.equal(y, own)
    together = (torch.cat([x for x, _ in TESTS]), torch.cat([y for _, y in TESTS]))
    common = tacit.Task.from_module(nn.Linear(4, 3), PARTS, batch_size=10, test=together)
    assert common.client_tests is None
    theta = torch.randn(3, task.parameters)
    one, other = (each.evaluation.models(theta, range(3)) for each in (task, common))
    assert torch.equal(one.loss, other.loss)


def test_two_clients_are_not_taken_for_a_pair() -> None:
    tests = tuple(TESTS[:2])
    task = tacit.Task.from_module(nn.Linear(4, 3), PARTS[:2], batch_size=10, test=tests)
    assert task.client_tests is not None


def test_wrong_test_sets() -> None:
    with pytest.raises(Misuse, match="2 entries for 3 clients"):
        tacit.Task.from_module(nn.Linear(4, 3), PARTS, batch_size=10, test=TESTS[:2])
    wrong = [*TESTS[:2], (torch.randn(5, 2), torch.randint(3, (5,)))]
    with pytest.raises(Misuse, match="Client 2: test holds an array of shape"):
        tacit.Task.from_module(nn.Linear(4, 3), PARTS, batch_size=10, test=wrong)


def test_nan_in_the_data_is_named() -> None:
    x = torch.randn(20, 4)
    x[7, 2] = x[9, 0] = torch.nan
    parts = [PARTS[0], (x, torch.randint(3, (20,)))]
    with pytest.raises(Misuse, match="client 1 have NaN in sample 7 and 1 more"):
        tacit.Task.from_module(nn.Linear(4, 3), parts, batch_size=10)

    class Filled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x.nan_to_num())

    assert tacit.Task.from_module(Filled(), parts, batch_size=10).clients == 2


def test_data_frames_belong_into_a_dataset() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2, 3, 4], "b": [0.0, 1, 1, 0], "y": [0, 1, 0, 1]})
    with pytest.raises(Misuse, match=r"tacit\.data\.from_tables"):
        tacit.Task.from_module(nn.Linear(2, 2), [frame, frame], batch_size=2)
    dataset = tacit.data.from_tables({"one": frame, "two": frame}, label="y", test=None)
    task = tacit.Task.from_module(nn.Linear(2, 2), dataset, batch_size=2)
    assert task.names == ("one", "two")
    with pytest.raises(Misuse, match="one has 4 samples, fewer than one batch of 5"):
        tacit.Task.from_module(nn.Linear(2, 2), dataset, batch_size=5)
    whole = tacit.data.load("mnist-mini", limit_train=20)
    with pytest.raises(Misuse, match="have no owners"):
        tacit.Task.from_module(nn.Linear(2, 2), whole, batch_size=5)


def test_numpy_integers() -> None:
    three = np.int64(3)
    graph = tacit.Topology.ring(three).mixing("metropolis")
    task = tacit.Task.from_module(nn.Linear(4, 3), PARTS, batch_size=np.int64(10))
    assert type(task.batch_size) is int
    algorithm = tacit.LPPA(lr=np.float32(0.1))
    run = tacit.simulate(
        algorithm, task, graph, steps=np.int64(4), seed=np.int64(1), record_every=np.int32(2)
    )
    assert [record.step for record in run.history] == [0, 2, 4]
    run.history.to_jsonl()
    found = tacit.audit(run, victim=np.int64(1), iterations=np.int64(2), attacks=False)
    assert found.victims == [1]
    assert len(tacit.data.iid(np.int64(30), clients=three)) == 3
