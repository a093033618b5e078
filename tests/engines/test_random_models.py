"""Models that draw for their samples have the same trajectory on every engine."""

from dataclasses import replace

import pytest
import torch
from capturable import FALLING, GRAPH, N
from hosting import rows_of, run_apart, run_together
from random_models import network, random_task
from test_captured import captured
from torch import nn
from torch.nn import functional
from torch.nn.utils import vector_to_parameters

import tacit
from support import suited
from tacit.algorithms.algorithm import tensors_of
from tacit.auditing.attacks.data_spec import reuses_batches
from tacit.auditing.canaries.sample import sample_canaries
from tacit.auditing.options import AttackOptions
from tacit.auditing.scoring.truth import Truth
from tacit.core.workers import WorkerPool
from tacit.engines.gradients.clipped import ClippedSums
from tacit.engines.gradients.objective import HostedObjective
from tacit.engines.gradients.sample_passes import SampleBackend
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.engines.watchdog import Watchdog
from tacit.models.mask_keys import MaskKeys
from tacit.tasks.batches import one_chunk
from tacit.tasks.parts import Parts
from tacit.tasks.poisson import PoissonSample
from tacit.tasks.sample_draws import NO_DRAWS

ALGORITHMS = {
    "lppa": tacit.LPPA(lr=FALLING, fresh=True),
    "lppa, local steps": tacit.LPPA(lr=FALLING, fresh=True, local_steps=3),
    "private-sgd": suited.made(tacit.PrivateSGD, momentum=0.9),
}
CASES = [("lppa", 3), ("lppa", None), ("lppa, local steps", 3), ("private-sgd", 3)]


def case(name, batch_size):
    task = random_task(N, batch_size)
    return suited.suited(ALGORITHMS[name], task, GRAPH, steps=40)


def advanced(algorithm, task, steps, gradients="stacked", seed=3):
    simulation = Simulation(Setting(algorithm, task, GRAPH, seed=seed, gradients=gradients))
    simulation.start()
    for _ in range(steps):
        simulation.step()
    return simulation


def assert_same(one, other):
    for field, rows in tensors_of(other).items():
        torch.testing.assert_close(getattr(one, field), rows, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("name", "batch_size"), CASES)
def test_stacked_is_looped_and_dropout_has_an_effect(name, batch_size, monkeypatch):
    algorithm, task = case(name, batch_size)
    together = advanced(algorithm, task, 5).state
    assert_same(together, advanced(algorithm, task, 5, "looped").state)
    assert torch.equal(together.theta, advanced(algorithm, task, 5).state.theta)
    monkeypatch.setattr(MaskKeys, "keep", lambda self, shape, *options: torch.ones(shape))
    everything = advanced(algorithm, task, 5).state
    assert not torch.allclose(everything.theta, together.theta, atol=1e-3)


@pytest.mark.parametrize(("name", "batch_size"), CASES)
def test_replaying_gives_what_computing_gives(name, batch_size):
    algorithm, task = case(name, batch_size)
    straight, other = advanced(algorithm, task, 9), advanced(algorithm, task, 2)
    replayed = captured(other, algorithm, Watchdog())
    for t in range(2, 9):
        replayed.replay(t)
    assert_same(replayed.state, straight.state)


@pytest.mark.parametrize(("name", "batch_size"), CASES)
def test_clients_apart_draw_what_they_draw_together(name, batch_size):
    algorithm, task = case(name, batch_size)
    ids = [1, 2, 5]
    together, recording = run_together(algorithm, task, GRAPH, 5, 3)
    apart = run_apart(algorithm, task, GRAPH, 5, 3, ids, recording, lazily=True)
    for state, all_clients in zip(apart, together, strict=True):
        for field, rows in rows_of(ids, all_clients, GRAPH).items():
            torch.testing.assert_close(getattr(state, field), rows, rtol=1e-10, atol=1e-10)


def arrays_of(task, client, number, position=None, seed=3):
    """What one client's gradient `number` sees."""
    at = torch.tensor([client if position is None else position])
    loader = task.loader(torch.tensor([client]), seed, "cpu", positions=at)
    ((_, load),) = loader.chunks(number, one_chunk)
    return load()


@pytest.mark.parametrize("batch_size", [3, None])
def test_a_node_that_holds_only_its_own_data_draws_the_same(batch_size):
    task, client = random_task(N, batch_size), 4
    part = task.parts.of(client) if batch_size else task.parts[client]
    alone = replace(task, parts=Parts.concatenate([part]) if batch_size else [part])
    for number in (0, 7):
        own = arrays_of(alone, client, number, position=0)
        assert all(map(torch.equal, own, arrays_of(task, client, number)))
    assert not torch.equal(own[-1], arrays_of(task, client, 8)[-1])
    assert not torch.equal(own[-1], arrays_of(alone, client, 7, position=0, seed=4)[-1])


def test_a_sample_of_several_clients_has_a_key_at_each():
    task = random_task(N)
    x, y = task.parts.arrays
    shared = replace(task, parts=Parts.split((x, y), [torch.arange(3)] * N))
    loader = shared.loader(torch.arange(N), 3, "cpu")
    ((_, load),) = loader.chunks(0, one_chunk)
    inputs, labels, keys = load()
    assert len(torch.unique(keys)) == 3 * N
    for client in range(N):
        alone = arrays_of(shared, client, 0)
        assert all(map(torch.equal, alone, (one[client : client + 1] for one in load())))
    assert len(torch.unique(inputs.flatten(0, 1), dim=0)) > 6
    ((_, load_two),) = shared.loader(torch.tensor([4, 1]), 3, "cpu").chunks(0, one_chunk)
    assert torch.equal(load_two()[-1], keys[[4, 1]])
    assert labels.shape == (N, 3)


@pytest.mark.parametrize("way", ["taped", "looped"])
def test_a_sample_adds_its_own_clipped_gradient_and_changes_no_other(way):
    """What the guarantee of private-sgd rests on: with and without a sample, same draws of all."""
    task, bound = random_task(1), 0.05
    loader = task.loader(torch.tensor([0]), 3, "cpu")
    hosted = HostedObjective(task, [0], loader, "looped", 3, "cpu", WorkerPool(1))
    hosted.__dict__["clipped_sums"] = ClippedSums(SampleBackend.of(task, way), loader, hosted.pool)
    theta = hosted.theta0()

    def clipped(samples, number=5):
        index = torch.tensor(samples)
        counts = torch.tensor([len(samples)])
        drawn = PoissonSample(index, counts, torch.tensor([9]), 1.0, number)
        return hosted.clipped_sum_of(theta, drawn, bound)

    everything = clipped(list(range(9)))
    for one in range(9):
        others = clipped([k for k in range(9) if k != one])
        alone = clipped([one])
        torch.testing.assert_close(everything - others, alone, rtol=1e-9, atol=1e-12)
        assert float(alone.norm()) <= bound * (1 + 1e-9)
    assert not torch.allclose(everything, clipped(list(range(9)), number=6))


def test_models_are_evaluated_without_draws():
    task = random_task(N)
    simulation = advanced(tacit.DSGT(lr=0.1), task, 2)
    scores = simulation.task.evaluation.models(simulation.state.theta, range(N))
    for client in range(N):
        x, y = task.parts.of(client)
        module = network().eval()
        vector_to_parameters(simulation.state.theta[client], module.parameters())
        expected = functional.cross_entropy(module(x), y).detach()
        assert float(scores.loss[client]) == pytest.approx(float(expected))


def test_tasks_without_draws_have_their_arrays_only():
    parts = [(torch.randn(9, 3), torch.arange(9) % 2) for _ in range(2)]
    task = tacit.Task(nn.Linear(3, 2), parts, batch_size=3)
    loader = task.loader(torch.arange(2), 0, "cpu")
    assert torch.equal(loader.batches(5), loader.indices(5))
    assert [array.shape for array in arrays_of(task, 0, 5)] == [(1, 3, 3), (1, 3)]
    assert task.loader(torch.arange(2), 0, "cpu").draws == NO_DRAWS


def test_an_audit_attacks_the_models_and_gradients_of_dropout():
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(N + 2, 40, 1, 6, 6, generator=draw).double(), torch.arange(40) % 2
    parts = [(own, y) for own in x[:N]]
    task = tacit.Task(network(), parts, batch_size=8, test=(x[N], y))
    keep = tacit.Keep(insides=(1,), theta0=True)
    run = tacit.run(task, tacit.DSGT(lr=0.1), GRAPH, steps=2, transcript=keep)
    effort = AttackOptions(restarts=1, seconds=0.5)
    found = tacit.audit(run, "curious(1)", heat_map=False, attacks=effort)
    assert any("membership by gradients is not tried" in note for note in found.notes)
    (result,) = found.results
    tried = [one for one in result.reconstructions if one.kind == "gradient"]
    assert any("masks of dropout known" in text for one in tried for text in one.assumptions)
    assert {"loss", "gradient norm", "likelihood ratio"} <= {
        one.score for one in result.memberships
    }
    assert result.leakage[0].of("gradient").indices("exact")
    assert not reuses_batches(random_task(N, None))


def test_canaries_among_the_samples_of_a_model_with_dropout():
    x, y = torch.randn(40, 1, 6, 6).double(), torch.arange(40) % 2
    task = tacit.Task(network(), [(x, y)] * N, batch_size=8, test=(x, y))
    setting = Setting(tacit.DSGT(lr=0.1), task, GRAPH)
    found = sample_canaries(setting, "curious(1)", count=20, iterations=2)
    assert found.lower.coins == 20


def test_an_audit_compares_with_the_images_that_gradients_saw():
    parts = [(torch.rand(8, 1, 6, 6), torch.arange(8) % 2) for _ in range(N)]
    module = nn.Sequential(nn.Flatten(), nn.Linear(36, 2))
    test = torch.rand(20, 1, 6, 6), torch.arange(20) % 2
    augment = tacit.Augment(crop=2, flip=True)
    options = {"batch_size": 1, "test": test, "augment": augment}
    task = tacit.Task(module, parts, **options)
    truth = Truth(task, 0)
    seen = torch.cat([truth.batch(0, number)[0] for number in range(8)])
    assert not any((seen[0] == own).all() for own in parts[0][0])
    others, labels = truth.non_members_as_seen(0)
    assert float((others == 0).double().mean()) > 0.1
    assert torch.equal(labels, test[1])
    # One sample and a linear layer with a bias: the gradient gives away the image exactly.
    keep = tacit.Keep(insides=(1,), theta0=True)
    run = tacit.run(task, tacit.DSGT(lr=0.1), GRAPH, steps=2, transcript=keep)
    found = tacit.audit(run, "curious(1)", heat_map=False, iterations=2)
    (score,) = [r.score for r in found.results[0].reconstructions if r.kind == "gradient"][:1]
    assert float(score.attack.mse.mean()) < 1e-9


def test_dropout_of_nothing_needs_no_keys():
    module = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.0), nn.Linear(4, 2))
    parts = [(torch.randn(8, 3), torch.arange(8) % 2) for _ in range(N)]
    task = tacit.Task(module, parts, batch_size=4)
    assert not task.draws.needed
    theta = advanced(tacit.DSGT(lr=0.1), task, 2, "looped").state.theta
    torch.testing.assert_close(theta, advanced(tacit.DSGT(lr=0.1), task, 2).state.theta)


def test_dropout_for_selu_is_that_of_a_loop():
    module = nn.Sequential(nn.Linear(3, 4), nn.AlphaDropout(0.5), nn.Linear(4, 2)).double()
    parts = [(torch.randn(8, 3).double(), torch.arange(8) % 2) for _ in range(N)]
    task = tacit.Task(module, parts, batch_size=4)
    together = advanced(tacit.DSGT(lr=0.1), task, 2).state
    assert_same(together, advanced(tacit.DSGT(lr=0.1), task, 2, "looped").state)
