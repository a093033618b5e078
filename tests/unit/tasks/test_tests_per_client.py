"""Test data per client, NaN and infinity in data, and NumPy's integers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import tacit
from support.misuse import assert_mentions, misuse_message
from tacit.core.errors import Misuse
from tacit.tasks.evaluation import TestSet

PARTS = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(3)]
TESTS = [(torch.randn(n, 4), torch.randint(3, (n,))) for n in (5, 6, 7)]


def test_one_test_set_per_client() -> None:
    task = tacit.Task(nn.Linear(4, 3), PARTS, batch_size=10, test=TESTS)
    assert task.client_tests is not None
    for (x, y), (mine, own) in zip(TESTS, task.client_tests, strict=True):
        assert torch.equal(x, mine)
        assert torch.equal(y, own)
    together = (torch.cat([x for x, _ in TESTS]), torch.cat([y for _, y in TESTS]))
    common = tacit.Task(nn.Linear(4, 3), PARTS, batch_size=10, test=together)
    assert common.client_tests is None
    theta = torch.randn(3, task.parameters)
    one, other = (each.evaluation.models(theta, range(3)) for each in (task, common))
    assert torch.equal(one.loss, other.loss)


def test_two_clients_are_not_taken_for_a_pair() -> None:
    tests = tuple(TESTS[:2])
    task = tacit.Task(nn.Linear(4, 3), PARTS[:2], batch_size=10, test=tests)
    assert task.client_tests is not None


def test_wrong_test_sets() -> None:
    with pytest.raises(Misuse, match="2 entries for 3 clients"):
        tacit.Task(nn.Linear(4, 3), PARTS, batch_size=10, test=TESTS[:2])
    wrong = [*TESTS[:2], (torch.randn(5, 2), torch.randint(3, (5,)))]
    with pytest.raises(Misuse, match="Client 2: test holds an array of shape"):
        tacit.Task(nn.Linear(4, 3), PARTS, batch_size=10, test=wrong)


class Filled(nn.Module):
    """Takes NaN, and infinity if it is told what that is."""

    def __init__(self, infinite: float) -> None:
        super().__init__()
        self.linear, self.infinite = nn.Linear(4, 3), infinite

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x.nan_to_num(posinf=self.infinite))


@pytest.mark.parametrize(
    ("value", "kind"), [(torch.nan, "NaN"), (torch.inf, "infinite"), (-torch.inf, "infinite")]
)
def test_nan_and_infinity_in_the_data_are_named(value: float, kind: str) -> None:
    x, y = torch.randn(20, 4), torch.randint(3, (20,))
    x[7, 2] = x[9, 0] = value
    parts = [PARTS[0], (x, y)]
    # A saturated layer has a finite loss, and no gradient.
    for module in (nn.Linear(4, 3), nn.Sequential(nn.Linear(4, 3), nn.Tanh())):
        with pytest.raises(Misuse, match=f"client 1 have {kind}.* in sample 7 and 1 more"):
            tacit.Task(module, parts, batch_size=10)
        with pytest.raises(Misuse, match=f"^The test data have {kind}.* in sample 7 and 1 more"):
            tacit.Task(module, PARTS, batch_size=10, test=(x, y))
    with pytest.raises(Misuse, match=f"Client 1: The test data have {kind}"):
        tacit.Task(nn.Linear(4, 3), PARTS, batch_size=10, test=[TESTS[0], (x, y), TESTS[2]])
    task = tacit.Task(Filled(0.0), parts, test=(x.abs(), y))
    assert task.clients == 2


def test_a_model_that_takes_nan_takes_no_infinity_by_that() -> None:
    x = torch.randn(20, 4)
    x[3, 0], x[5, 1] = torch.nan, torch.inf
    with pytest.raises(Misuse, match="client 0 have infinite values in sample 5"):
        tacit.Task(Filled(torch.inf), [(x, torch.randint(3, (20,)))])


def test_targets_that_a_loss_masks_may_be_nan() -> None:
    y = torch.randn(20, 1)
    y[4] = torch.nan

    def known(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (output - y)[~y.isnan()].square().mean()

    tacit.Task(nn.Linear(4, 1), [(PARTS[0][0], y)], loss=known)
    with pytest.raises(Misuse, match="NaN in sample 4"):
        tacit.Task(nn.Linear(4, 1), [(PARTS[0][0], y)], loss=functional.mse_loss)


@pytest.mark.parametrize("per_client", [False, True])
@pytest.mark.parametrize(
    ("outputs", "test", "words"),
    [
        (3, [0, 1, 3], ["3 outputs", "from 0 to 3"]),
        (3, [0.7, 1.0, 2.0], ["float32", "int64"]),
        (3, [0.0, torch.nan, 2.0], ["float32", "int64"]),
        (1, [0, 1, 2], ["one logit", "from 0 to 2"]),
    ],
)
def test_targets_of_tests_are_checked(
    outputs: int, test: list[float], words: list[str], per_client: bool
) -> None:
    parts = [(x, y.clamp(max=min(outputs, 2))) for x, y in PARTS]
    good, bad = TESTS[0][0][:3], (TESTS[0][0][:3], torch.tensor(test))
    given = [(good, torch.tensor([0, 1, 0])), bad, bad] if per_client else bad
    message = misuse_message(tacit.Task, nn.Linear(4, outputs), parts, batch_size=10, test=given)
    assert_mentions(message, "The test data", *words, *(["Client 1: "] if per_client else []))


def test_whole_numbers_of_another_type_are_the_same_targets() -> None:
    x, y = TESTS[0]
    for same in (y.double(), y.to(torch.uint16)):
        task = tacit.Task(nn.Linear(4, 3), PARTS, test=(x, same))
        assert isinstance(task.evaluation, TestSet)
        assert torch.equal(task.evaluation.y, y)


def test_data_frames_belong_into_a_dataset() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2, 3, 4], "b": [0.0, 1, 1, 0], "y": [0, 1, 0, 1]})
    with pytest.raises(Misuse, match=r"tacit\.data\.from_tables"):
        tacit.Task(nn.Linear(2, 2), [frame, frame], batch_size=2)
    dataset = tacit.data.from_tables({"one": frame, "two": frame}, label="y", test=None)
    task = tacit.Task(nn.Linear(2, 2), dataset, batch_size=2)
    assert task.names == ("one", "two")
    with pytest.raises(Misuse, match="one has 4 samples, fewer than one batch of 5"):
        tacit.Task(nn.Linear(2, 2), dataset, batch_size=5)
    whole = tacit.data.load("mnist-mini", limit_train=20)
    with pytest.raises(Misuse, match="have no owners"):
        tacit.Task(nn.Linear(2, 2), whole, batch_size=5)


def test_numpy_integers() -> None:
    three = np.int64(3)
    graph = tacit.Topology.ring(three).mixing("metropolis")
    task = tacit.Task(nn.Linear(4, 3), PARTS, batch_size=np.int64(10))
    assert type(task.batch_size) is int
    algorithm = tacit.LPPA(lr=np.float32(0.1))
    run = tacit.run(
        task, algorithm, graph, steps=np.int64(4), seed=np.int64(1), record_every=np.int32(2)
    )
    assert [record.step for record in run.history] == [0, 2, 4]
    run.history.to_jsonl()
    found = tacit.audit(run, victim=np.int64(1), iterations=np.int64(2), attacks=False)
    assert found.victims == [1]
    assert len(tacit.data.iid(np.int64(30), clients=three)) == 3
