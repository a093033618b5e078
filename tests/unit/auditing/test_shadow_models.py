"""Shadow models: federations that repeat a run with other data, and plain descent.

The run overfits: 40 pictures for each of three clients.
"""

import time

import pytest
import torch
from torch import nn
from torch.nn import functional

import tacit
from tacit import data, models
from tacit.auditing.attacks import shadow_models
from tacit.auditing.attacks.candidates import Candidates
from tacit.auditing.attacks.confidence_scores import confidence, likelihood_ratio_score
from tacit.auditing.attacks.shadow_models import ShadowModels, part_sizes, train_plain_models
from tacit.auditing.options import AttackOptions
from tacit.auditing.scoring.roc import Roc
from tacit.auditing.scoring.truth import Truth
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.tasks.flat import FlatModule, ModuleLoss

DIGITS = data.load("mnist-mini", limit_train=200, limit_test=400)
X, XT = (functional.avg_pool2d(split.x, 2) for split in (DIGITS.train, DIGITS.test))
GRAPH = tacit.Topology.ring(3).mixing("metropolis", lazy=True)
STEPS, SEED = 100, 1


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(shadow_models, "FEDERATIONS", 4)
    monkeypatch.setattr(shadow_models, "PLAIN_MODELS", 4)


def setting(batch_size=10, sizes=(40, 40, 30), init="same", lr=0.5):
    splits = (torch.split(array[: sum(sizes)], sizes) for array in (X, DIGITS.train.y))
    parts = list(zip(*splits, strict=True))
    module = models.build("mlp", (1, 14, 14), 10, hidden=[16])
    task = tacit.Task(module, parts, batch_size=batch_size, test=(XT, DIGITS.test.y), init=init)
    return Setting(tacit.DSG(lr=lr), task, GRAPH, SEED, gradients="stacked")


def candidates_of(run):
    truth = Truth(run.task, SEED)
    return Candidates.of(truth.members(0), truth.non_members(0), 0)


def shadows_of(run, record, **options):
    options = AttackOptions(**{"seed": 3, "seconds": 600, **options})
    return ShadowModels(run, 0, candidates_of(run), record, options, lambda *_: None)


# --- Federations ---


def test_candidates_and_public_data_are_disjoint():
    candidates = candidates_of(setting())
    samples = {tuple(row.flatten().tolist()) for row in candidates.x}
    assert not any(tuple(row.flatten().tolist()) in samples for row in candidates.public[0])
    outside = int((~candidates.members).sum())
    assert len(candidates.public[0]) == len(XT) - outside


@pytest.mark.parametrize("batch_size", [10, None])
def test_a_federation_has_the_sizes_and_the_start_of_the_run(monkeypatch, batch_size):
    run, made = setting(batch_size), []

    class Watched(Simulation):
        def __init__(self, given):
            made.append(given)
            super().__init__(given)

    monkeypatch.setattr(shadow_models, "Simulation", Watched)
    shadows = shadows_of(run, [(0, 0), (1, 2), (0, 2)])
    start, end = shadows.of([(0, 0)]), shadows.of([(0, 2)])
    assert len(made) == 4
    for one in made:
        assert part_sizes(one.task) == part_sizes(run.task)
        assert one.algorithm is run.algorithm
        assert one.task.batch_size == batch_size
        assert torch.equal(one.task.initial(one.seed, [0]), run.task.initial(SEED, [0]))
    assert len({one.seed for one in made}) == 4
    assert start.phi.shape == (4, len(shadows.candidates.x))
    assert start.population.shape == (4, len(shadows.population[0]))
    # The model before the first iteration is the same in all, later ones are not.
    assert torch.equal(start.phi[0], start.phi[1])
    assert not torch.equal(end.phi[0], end.phi[1])
    first, second = (samples_of(one) for one in made[:2])
    x = shadows.candidates.x
    held = [[tuple(v.flatten().tolist()) in part for v in x] for part in (first, second)]
    assert torch.equal(torch.tensor(held), end.held[:2])
    assert (end.held[0] ^ end.held[1]).all()
    # Models that are attacked together.
    both = shadows.of([(1, 2), (0, 2)])
    torch.testing.assert_close(both.phi, (shadows.of([(1, 2)]).phi + end.phi) / 2)


def samples_of(one):
    part = Truth(one.task, 0).members(0)[0]
    return {tuple(row.flatten().tolist()) for row in part}


def test_models_that_start_apart_start_anew():
    phi = shadows_of(setting(init="independent"), [(0, 0)]).of([(0, 0)]).phi
    assert not torch.equal(phi[0], phi[1])


@pytest.mark.slow
def test_federations_separate_members_better_than_plain_descent(monkeypatch):
    """With as many models, of as many steps of the same size."""
    monkeypatch.setattr(shadow_models, "FEDERATIONS", 8)
    run = setting()
    simulation = Simulation(run)
    simulation.start()
    for _ in range(STEPS):
        simulation.step()
    candidates, loss = candidates_of(run), run.task.loss
    x, y, inside = candidates.x, candidates.y, candidates.members
    phi = confidence(loss, simulation.state.theta[0], x, y)
    options = {"steps": STEPS, "lr": 0.5, "batch_size": 10}
    theta, held, _ = train_plain_models(loss, x, y, seed=0, models=8, **options)
    found = shadows_of(run, [(0, STEPS)]).of([(0, STEPS)])
    areas = []
    for others, members in ((confidence(loss, theta, x, y), held), (found.phi, found.held)):
        scores = likelihood_ratio_score(phi, others, members)
        areas.append(Roc.from_scores(scores[inside], scores[~inside]).auc)
    assert areas[1] > areas[0] + 0.03


@pytest.mark.parametrize(
    ("lr", "seconds", "record", "words"),
    [
        (0.5, 600, [(0, 2)], "shadow federations, trained as the run was"),
        (1e30, 600, [(0, STEPS)], "plain descent, not trained as the run was: a repetition div"),
        (0.5, 1e-3, [(0, STEPS)], "in the time budget; stopped by the time budget"),
        (0.5, 600, [], "the number of iterations of the run is not known"),
    ],
)
def test_plain_descent_if_the_run_cannot_be_repeated(lr, seconds, record, words):
    shadows = shadows_of(setting(lr=lr), record, seconds=seconds)
    found = shadows.of(record)
    assert words in found.description
    assert found.cut_short == (seconds == 1e-3)
    assert found.population.shape[1] == len(shadows.population[0])


# --- Plain descent ---


def small(count=10):
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    loss = ModuleLoss(FlatModule(module), functional.cross_entropy)
    x = torch.randn(count, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return loss, x, torch.arange(count) % 3


@pytest.mark.parametrize("count", [10, 11])
def test_each_candidate_is_in_half_of_the_models(count):
    _, held, _ = train_plain_models(*small(count), seed=0, models=6, steps=1)
    assert held.sum(0).tolist() == [3] * count
    assert (held[0::2] ^ held[1::2]).all()  # the two halves of one split
    assert set(held.sum(1).tolist()) <= {count // 2, count - count // 2}
    assert len({tuple(row.tolist()) for row in held}) > 2


def counts(count, **options):
    """How often each of four models was trained on each candidate, and which it holds."""
    # A loss whose gradient counts how often each candidate was in a batch.
    module = nn.Linear(count, 1, bias=False).double()
    loss = ModuleLoss(FlatModule(module), lambda out, target: out.sum())
    x, y = torch.eye(count, dtype=torch.float64), torch.zeros(count, dtype=torch.int64)
    start = torch.stack([loss.flat.random_weights(0, "shadow", s) for s in range(4)])
    theta, held, _ = train_plain_models(loss, x, y, seed=0, models=4, lr=1.0, **options)
    torch.testing.assert_close(start - theta, (start - theta).round())
    return (start - theta).round(), held.double()


@pytest.mark.parametrize("batch_size", [4, 8, 100])
def test_an_epoch_takes_what_is_held_once(batch_size):
    steps = 2 if batch_size == 4 else 1
    once, held = counts(16, steps=steps, batch_size=batch_size)
    assert torch.equal(once, held)
    often, held = counts(16, steps=3 * steps, batch_size=batch_size)
    assert torch.equal(often, 3 * held)


def test_orders_differ_between_models_and_epochs():
    after = [counts(40, steps=steps, batch_size=5)[0] for steps in (1, 4, 5)]
    first, again = after[0], after[2] - after[1]  # the first batches of two epochs
    assert (first.sum(1) == 5).all()
    assert (first != again).any(1).all()


def test_training_is_that_of_torch_model_by_model():
    loss, x, y = small(12)
    trained, held, _ = train_plain_models(
        loss, x, y, seed=4, models=4, steps=7, lr=0.3, batch_size=12
    )
    for s in range(4):
        theta = loss.flat.random_weights(4, "shadow", s).requires_grad_()
        optimiser = torch.optim.SGD([theta], lr=0.3)
        for _ in range(7):
            optimiser.zero_grad()
            loss(theta, x[held[s]], y[held[s]]).backward()
            optimiser.step()
        assert torch.allclose(trained[s], theta.detach(), rtol=1e-10)


def test_training_is_keyed_and_leaves_the_global_stream_alone():
    candidates, before = small(), torch.get_rng_state()
    (one, held, _), (again, _, _), (_, other, _) = (
        train_plain_models(*candidates, seed=seed, models=4, steps=3, batch_size=2)
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, again)
    assert not torch.equal(held, other)
    assert len({tuple(row.tolist()) for row in one}) == 4
    assert torch.equal(before, torch.get_rng_state())


def test_progress_and_budget():
    calls = []
    options = {"seed": 1, "models": 2, "steps": 3}
    whole = train_plain_models(*small(), **options, progress=lambda *at: calls.append(at))
    assert calls == [(1, 3), (2, 3), (3, 3)]
    assert whole[2] == 3
    cut = train_plain_models(
        *small(), **options, progress=lambda *_: time.sleep(0.02), budget_seconds=0.01
    )
    assert cut[2] == 1
    once = train_plain_models(*small(), seed=1, models=2, steps=1)
    assert torch.equal(cut[0], once[0])
