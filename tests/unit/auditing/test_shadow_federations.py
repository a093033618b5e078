"""Shadow federations repeat a run with other data, and separate members better than plain descent.

The run overfits: 40 pictures for each of three clients.
"""

import pytest
import torch

import tacit
from tacit import data, models
from tacit.auditing.attacks import reference_models
from tacit.auditing.attacks.candidates import Candidates
from tacit.auditing.attacks.likelihood_ratio import confidence, likelihood_ratio_score
from tacit.auditing.attacks.reference_models import ReferenceModels
from tacit.auditing.attacks.shadow import train_shadow_models
from tacit.auditing.attacks.shadow_federations import part_sizes, train_shadow_federations
from tacit.auditing.options import AttackOptions
from tacit.auditing.scoring.roc import Roc
from tacit.auditing.scoring.truth import Truth
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation

DIGITS = data.load("mnist-mini", limit_train=200, limit_test=400)
X, XT = (torch.nn.functional.avg_pool2d(split.x, 2) for split in (DIGITS.train, DIGITS.test))
GRAPH = tacit.Topology.ring(3).mixing("metropolis", lazy=True)
STEPS, SEED = 100, 1


def setting(batch_size=10, sizes=(40, 40, 30), init="same", lr=0.5):
    parts = [
        (part, label)
        for part, label in zip(
            torch.split(X[: sum(sizes)], sizes),
            torch.split(DIGITS.train.y[: sum(sizes)], sizes),
            strict=True,
        )
    ]
    module = models.build("mlp", (1, 14, 14), 10, hidden=[16])
    task = tacit.Task(module, parts, batch_size=batch_size, test=(XT, DIGITS.test.y), init=init)
    return Setting(tacit.DSG(lr=lr), task, GRAPH, SEED, gradients="stacked")


def candidates_of(run):
    truth = Truth(run.task, SEED)
    return Candidates.of(truth.members(0), truth.non_members(0), 0)


def trained(run, record, federations=4, **options):
    options = {"seed": 3, "federations": federations, **options}
    return train_shadow_federations(run, 0, candidates_of(run), record, **options)


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

    monkeypatch.setattr("tacit.auditing.attacks.shadow_federations.Simulation", Watched)
    record = [(0, 0), (1, 2), (0, 2)]
    found = trained(run, record)
    candidates = candidates_of(run)
    count, others = len(candidates.x), len(candidates.split_public(3)[1][0])
    assert len(made) == 4
    for one in made:
        assert part_sizes(one.task) == part_sizes(run.task)
        assert one.algorithm is run.algorithm
        assert one.task.batch_size == batch_size
        assert torch.equal(one.task.initial(one.seed, [0]), run.task.initial(SEED, [0]))
    assert len({one.seed for one in made}) == 4
    assert {tuple(kind.shape) for kind in found.phi.values()} == {(4, count)}
    assert {tuple(kind.shape) for kind in found.population.values()} == {(4, others)}
    # The model before the first iteration is the same in all, later ones are not.
    assert torch.equal(found.phi[0, 0][0], found.phi[0, 0][1])
    assert not torch.equal(found.phi[0, 2][0], found.phi[0, 2][1])
    first, second = (truth_of(one) for one in made[:2])
    x = candidates_of(run).x
    held = [[tuple(v.flatten().tolist()) in part for v in x] for part in (first, second)]
    assert torch.equal(torch.tensor(held), found.held[:2])
    assert (found.held[0] ^ found.held[1]).all()


def truth_of(one):
    part = Truth(one.task, 0).members(0)[0]
    return {tuple(row.flatten().tolist()) for row in part}


def test_models_that_start_apart_start_anew():
    found = trained(setting(init="independent"), [(0, 0)])
    assert not torch.equal(found.phi[0, 0][0], found.phi[0, 0][1])


def test_the_mean_over_models():
    found = trained(setting(), [(0, 1), (0, 3)])
    phi, population = found.mean([(0, 1), (0, 3)])
    torch.testing.assert_close(phi, (found.phi[0, 1] + found.phi[0, 3]) / 2)
    assert len(population) == 4


def test_a_budget_stops_federations_and_says_so():
    assert trained(setting(), [(0, 10**6)], budget_seconds=0.05) is None


@pytest.mark.slow
def test_federations_separate_members_better_than_plain_descent():
    """With as many models, of as many steps of the same size."""
    run = setting()
    simulation = Simulation(run)
    simulation.start()
    for _ in range(STEPS):
        simulation.step()
    candidates, loss = candidates_of(run), run.task.loss
    x, y, inside = candidates.x, candidates.y, candidates.members
    phi = confidence(loss, simulation.state.theta[0], x, y)
    plain = train_shadow_models(loss, x, y, seed=0, models=8, steps=STEPS, lr=0.5, batch_size=10)
    found = trained(run, [(0, STEPS)], federations=8)
    areas = []
    for others, held in (
        (confidence(loss, plain.theta, x, y), plain.held),
        (found.phi[0, STEPS], found.held),
    ):
        scores = likelihood_ratio_score(phi, others, held)
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
def test_plain_descent_if_the_run_cannot_be_repeated(monkeypatch, lr, seconds, record, words):
    monkeypatch.setattr(reference_models, "PLAIN_MODELS", 4)
    run = setting(lr=lr)
    options = AttackOptions(seconds=seconds)
    references = ReferenceModels(run, 0, candidates_of(run), record, options, lambda *_: None)
    shadows = references.of(record)
    assert words in shadows.description
    assert shadows.cut_short == (seconds == 1e-3)
    assert shadows.population.shape[1] == len(references.population[0])
