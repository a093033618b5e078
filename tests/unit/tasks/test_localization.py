import pytest
import torch

import tacit
from tacit.core.errors import Misuse
from tacit.engines.gradients.objective import HostedObjective
from tacit.tasks import localization
from tacit.tasks.batches import one_chunk

ANCHORS = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.5, 3.0], [-1.0, -2.0]], dtype=torch.float64)
TARGET = torch.tensor([0.7, 1.1], dtype=torch.float64)
MANY = 100_000


def gradient(task, theta, number=0):
    ids = torch.arange(task.clients)
    loader = task.loader(ids, 0, "cpu")
    return HostedObjective(task, ids.tolist(), loader, "stacked", 0, "cpu").grad(theta, number)


def measurements(**options):
    task = localization(ANCHORS, TARGET, batch_size=MANY, **options)
    ((_, load),) = task.loader(torch.arange(4), 0, "cpu").chunks(2, one_chunk)
    return load()


def test_directions_point_to_the_target_and_err_along_and_across():
    z, _ = measurements(across=0.2, along=0.05)
    for anchor, seen in zip(ANCHORS, z, strict=True):
        sight = (TARGET - anchor) / (TARGET - anchor).norm()
        athwart = torch.stack((-sight[1], sight[0]))
        torch.testing.assert_close(seen.mean(0), sight, rtol=0, atol=0.003)
        assert float((seen @ sight).std()) == pytest.approx(0.05, rel=0.02)
        assert float((seen @ athwart).std()) == pytest.approx(0.2, rel=0.02)
        assert abs(float(torch.corrcoef(torch.stack((seen @ sight, seen @ athwart)))[0, 1])) < 0.02


def test_the_model_is_exact_in_the_target():
    z, d = measurements(noise=0.3)
    v = d - z @ TARGET
    torch.testing.assert_close(
        v.std(1), torch.full((4,), 0.3, dtype=torch.float64), rtol=0.02, atol=0
    )
    assert float(v.mean(1).abs().max()) < 0.005
    silent, exact = measurements(noise=0.0)
    torch.testing.assert_close(exact, silent @ TARGET, rtol=0, atol=1e-12)
    # The distance measured along z from the anchor is what the paper calls r.
    r = exact - (silent @ ANCHORS[:, :, None]).squeeze(2)
    assert float(r.mean(1)[1]) == pytest.approx(float((TARGET - ANCHORS[1]).norm()), rel=0.01)


def test_the_target_minimises_every_clients_expected_loss():
    task = localization(ANCHORS, TARGET, exact=True)
    assert torch.equal(task.optimum, TARGET)
    at = gradient(task, TARGET.repeat(4, 1))
    torch.testing.assert_close(at, torch.zeros(4, 2, dtype=torch.float64), rtol=0, atol=1e-14)
    losses = task.evaluation.models(TARGET.repeat(4, 1), range(4)).loss
    torch.testing.assert_close(losses, torch.full((4,), 0.5 * 0.1**2, dtype=torch.float64))


def test_no_client_can_localize_alone_but_all_together_can():
    task = localization(ANCHORS, TARGET, exact=True, across=0.1, along=0.01)
    columns = [
        gradient(task, (TARGET + step).repeat(4, 1)) for step in torch.eye(2, dtype=torch.float64)
    ]
    hessians = torch.stack(columns, dim=2)
    expected = torch.tensor([0.1**2, 1 + 0.01**2], dtype=torch.float64).expand(4, 2)
    torch.testing.assert_close(torch.linalg.eigvalsh(hessians), expected, rtol=1e-9, atol=0)
    assert float(torch.linalg.eigvalsh(hessians.mean(0))[0]) > 0.2


def test_stochastic_gradients_are_right_on_average():
    theta = torch.tensor([[1.0, -2.0], [0.0, 0.0], [-1.0, 2.0], [3.0, 1.0]], dtype=torch.float64)
    sampled = gradient(localization(ANCHORS, TARGET, batch_size=MANY), theta)
    exact = gradient(localization(ANCHORS, TARGET, exact=True), theta)
    torch.testing.assert_close(sampled, exact, rtol=0, atol=0.01)
    assert float(exact.abs().max()) > 1


@pytest.mark.parametrize(("exact", "near"), [(True, 1e-14), (False, 1e-2)])
def test_a_ring_of_anchors_finds_the_target(exact, near):
    task = localization(exact=exact)
    graph = tacit.Topology.ring(4).mixing("metropolis")
    run = tacit.run(task, tacit.DSGT(lr=0.1), graph, steps=400)
    assert run.history[0].msd > 0.1
    assert run.history[-1].msd < near
    torch.testing.assert_close(run.theta.mean(0), task.optimum, rtol=0, atol=near**0.5)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"anchors": [[0, 0, 0]]}, r"anchors have shape \(1, 3\)"),
        ({"anchors": []}, "anchors have shape"),
        ({"target": [1, 2, 3]}, r"target \(3,\)"),
        ({"across": -0.1}, "across is -0.1"),
        ({"noise": float("nan")}, "noise is nan"),
        ({"anchors": [[0, 0], [0.3, -0.4]]}, "Anchor 1 is at the target"),
        ({"anchors": [[0.3, 0], [0.3, 1]], "across": 0.0}, "along one line"),
        ({"batch_size": 0}, "batch_size is 0"),
    ],
)
def test_misuse(options, problem):
    with pytest.raises(Misuse, match=problem):
        localization(**options)
