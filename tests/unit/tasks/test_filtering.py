import pytest
import torch

import tacit
from tacit.core.errors import Misuse
from tacit.engines.gradients.objective import HostedObjective
from tacit.tasks import adaptive_filtering
from tacit.tasks.batches import one_chunk

RING = tacit.Topology.ring(5).mixing("metropolis")
FAR = torch.tensor([[0.5, -1.0, 2.0, 0.0, 1.0]], dtype=torch.float64).repeat(5, 1)


def objective(task, seed=0):
    ids = torch.arange(task.clients)
    return HostedObjective(
        task, ids.tolist(), task.loader(ids, seed, "cpu"), "stacked", seed, "cpu"
    )


def batch(task, number, seed=0):
    ids = torch.arange(task.clients)
    ((_, load),) = task.loader(ids, seed, "cpu").chunks(number, one_chunk)
    return load()


def constants(task):
    targets, noise_variances, variances = task.parts.constants
    return targets, variances, noise_variances


def test_samples_have_the_moments_of_the_model():
    task = adaptive_filtering(batch_size=40_000)
    targets, variances, noise_variances = constants(task)
    x, d = batch(task, 3)
    assert x.shape == (5, 40_000, 5)
    noise = d - (x @ targets[:, :, None]).squeeze(2)
    for client in range(5):
        scale = float(variances[client])
        covariance = x[client].T @ x[client] / 40_000
        expected = scale * torch.eye(5, dtype=torch.float64)
        torch.testing.assert_close(covariance, expected, rtol=0, atol=0.03 * scale)
        assert float(noise[client].var()) == pytest.approx(float(noise_variances[client]), rel=0.03)
        assert float(x[client].mean(0).abs().max()) < 0.025 * scale**0.5
        both = torch.cat([x[client], noise[client][:, None]], dim=1)
        assert float(torch.corrcoef(both.T)[5, :5].abs().max()) < 0.025  # noise knows nothing of x


def test_the_problem_is_drawn_by_its_seed_and_the_samples_by_the_runs():
    one, same, other = (adaptive_filtering(seed=seed) for seed in (0, 0, 1))
    for a, b, c in zip(constants(one), constants(same), constants(other), strict=True):
        assert torch.equal(a, b)
        assert not torch.equal(a, c)
    assert not torch.equal(batch(one, 0, seed=0)[0], batch(one, 0, seed=1)[0])
    assert not torch.equal(batch(one, 0)[0], batch(one, 1)[0])
    for variances in constants(one)[1:]:
        assert bool(((variances > 0) & (variances < 1)).all())


def test_filters_are_normal_and_each_clients_own_unless_homogeneous():
    many, _, _ = constants(adaptive_filtering(2000, 10))
    assert float(many.mean()) == pytest.approx(0, abs=0.03)
    assert float(many.var()) == pytest.approx(1, rel=0.03)
    same, _, _ = constants(adaptive_filtering(4, homogeneous=True))
    assert torch.equal(same, same[:1].expand(4, 5))
    task = adaptive_filtering(4, homogeneous=True)
    torch.testing.assert_close(task.optimum, same[0], rtol=1e-12, atol=0)


def test_first_estimates_are_uniform_and_each_clients_own():
    task = adaptive_filtering(2000)
    start = task.initial(0, range(2000))
    assert start.dtype == torch.float64
    assert -1 <= float(start.min()) < -0.99
    assert 0.99 < float(start.max()) <= 1
    assert float(start.var()) == pytest.approx(1 / 3, rel=0.03)
    assert torch.equal(task.initial(0, [7, 3]), start[[7, 3]])
    assert not torch.equal(task.initial(1, [7]), start[[7]])
    assert len({tuple(row.tolist()) for row in start}) == 2000


def test_the_optimum_is_the_minimiser_of_the_expected_loss():
    task = adaptive_filtering(exact=True)
    at = task.optimum.repeat(5, 1)
    gradients = objective(task).grad(at, 0)
    torch.testing.assert_close(
        gradients.sum(0), torch.zeros(5, dtype=torch.float64), rtol=0, atol=1e-12
    )
    assert bool((gradients.norm(dim=1) > 0.05).all())  # not the optimum of any client
    least = float(task.evaluation.average(task.optimum).loss)
    for step in torch.eye(5, dtype=torch.float64):
        assert float(task.evaluation.average(task.optimum + 0.01 * step).loss) > least


@pytest.mark.parametrize("number", [4, 5])  # before and after the flip
def test_stochastic_gradients_are_right_on_average(number):
    sampled = objective(adaptive_filtering(batch_size=100_000, flip_at=5)).grad(FAR, number)
    exact = objective(adaptive_filtering(exact=True, flip_at=5)).grad(FAR, number)
    torch.testing.assert_close(sampled, exact, rtol=0, atol=0.05)
    assert float(exact.abs().max()) > 1


def test_losses_are_expected_ones():
    task = adaptive_filtering(batch_size=100_000)
    sampled = [task.loss(FAR[0], x, d) for x, d in zip(*batch(task, 0), strict=True)]
    losses = task.evaluation.models(FAR, range(5)).loss
    torch.testing.assert_close(losses, torch.stack(sampled), rtol=0.03, atol=0)
    some = task.evaluation.models(FAR[:2], [1, 4]).loss
    assert torch.equal(some, losses[[1, 4]])
    assert float(task.evaluation.average(FAR[0]).loss) == pytest.approx(float(losses.mean()))


def test_the_sign_flips_at_its_batch_and_everything_with_it():
    silent = {"noise_variances": [0.0] * 5}
    still, flipping = adaptive_filtering(**silent), adaptive_filtering(**silent, flip_at=3)
    for number, sign in ((0, 1), (2, 1), (3, -1), (4, -1), (900, -1)):
        (x, d), (same, turned) = batch(still, number), batch(flipping, number)
        assert torch.equal(x, same)
        assert torch.equal(turned, sign * d)
        assert torch.equal(flipping.optimum_at(number), sign * still.optimum)
        losses = flipping.evaluation.at_batch(number).models(sign * FAR, range(5)).loss
        assert torch.equal(losses, still.evaluation.at_batch(number).models(FAR, range(5)).loss)
        assert torch.equal(still.optimum_at(number), still.optimum)


def test_exact_gradients_lead_to_the_optimum():
    task = adaptive_filtering(exact=True)
    run = tacit.run(task, tacit.DSGT(lr=0.3), RING, steps=400)
    torch.testing.assert_close(run.theta, task.optimum.repeat(5, 1), rtol=0, atol=1e-9)
    assert run.history[0].msd > 0.1
    assert run.history[-1].msd < 1e-18


def test_sampled_gradients_lead_near_it_and_follow_its_flip():
    task = adaptive_filtering(homogeneous=True, flip_at=150, batch_size=5)
    run = tacit.run(task, tacit.DSGT(lr=0.1), RING, steps=300, record_every=1)
    deviations = run.history.column("msd")
    assert max(deviations[140:150]) < 0.1 < deviations[0]
    assert min(deviations[150:153]) > 5  # about ‖2w*‖²
    assert max(deviations[290:]) < 0.1


def test_numbers_can_be_given_and_have_a_type():
    task = adaptive_filtering(
        2,
        3,
        variances=[1, 3],
        noise_variances=[0, 1],
        targets=[[1, 0, 0], [0, 2, 0]],
        dtype=torch.float32,
    )
    assert task.optimum.tolist() == [0.25, 1.5, 0.0]
    assert (
        task.initial(0, [0]).dtype
        == batch(task, 0)[0].dtype
        == batch(task, 0)[1].dtype
        == torch.float32
    )
    assert repr(task) == "Objective(2 clients, 3 parameters, batches of 1)"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"clients": 0}, "clients is 0"),
        ({"width": 0}, "width is 0"),
        ({"width": 2.5}, "width is 2.5"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"flip_at": -1}, "flip_at is -1"),
        ({"variances": [1, 1]}, r"variances has shape \(2,\)\. Give numbers of shape \(5,\)"),
        ({"targets": [[1, 2]] * 5}, r"targets has shape \(5, 2\)\. Give numbers of shape \(5, 5\)"),
        ({"variances": [1, 1, 0, 1, 1]}, "Give positive variances"),
        ({"noise_variances": [1, 1, -1, 1, 1]}, "Give positive variances"),
    ],
)
def test_misuse(options, problem):
    with pytest.raises(Misuse, match=problem):
        adaptive_filtering(**options)
