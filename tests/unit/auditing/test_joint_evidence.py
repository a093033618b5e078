"""Everything known about a victim, inverted together."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.func import grad
from torch.nn import functional

import tacit
from tacit import data
from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.data_spec import DataSpec
from tacit.auditing.attacks.gradient_matching import L2
from tacit.auditing.attacks.input_search import Guess, best_guess
from tacit.auditing.attacks.inversion import invert
from tacit.auditing.attacks.known_evidence import joint_evidence
from tacit.auditing.attacks.observation import Observation
from tacit.auditing.audit import run_audit
from tacit.auditing.options import AttackOptions, AuditOptions
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.engines.setting import Setting
from tacit.record.transcript import Keep
from tacit.tasks.flat import FlatModule, ModuleLoss

DIGITS = data.load("mnist-mini", limit_train=60, limit_test=200)
X, XT = (functional.avg_pool2d(split.x.double(), 4) for split in (DIGITS.train, DIGITS.test))
LPPA = tacit.LPPA(lr=1.0, noise=tacit.Laplace(0.5))


def network(hidden=3):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(49, hidden), nn.Sigmoid(), nn.Linear(hidden, 10)
    ).double()


def setting(clients=5, batch=2, algorithm=LPPA):
    parts = [
        (X[batch * i : batch * (i + 1)], DIGITS.train.y[batch * i : batch * (i + 1)])
        for i in range(clients)
    ]
    task = tacit.Task(network(), parts, test=(XT, DIGITS.test.y), init="same")
    graph = tacit.Topology.ring(clients).mixing("metropolis", lazy=True)
    return Setting(algorithm, task, graph, 3)


def found(run, adversary, steps):
    transcript = tacit.run(
        run.task,
        run.algorithm,
        run.graph,
        steps=steps,
        seed=3,
        transcript=Keep(insides=tuple(Adversary.parse(adversary).corrupt)),
    ).transcript
    symbols = run_on_symbols(run.algorithm, run.graph, steps, common_start=True)
    leakage = Leakage(Knowledge(symbols, Adversary.parse(adversary)), 0)
    return joint_evidence(leakage, transcript)


@pytest.mark.parametrize(
    ("steps", "clients", "kinds"),
    [
        (5, {0}, {"difference"}),  # several differences of the victim are enough
        (3, {0, 2, 3, 4}, {"difference", "group", "sum"}),
    ],
)
def test_everything_known_as_one_observation(steps, clients, kinds):
    run = setting()
    joint = found(run, "curious(1)", steps)
    assert {part.kind for part in joint.parts} <= kinds
    assert {term.client for term in joint.terms} == clients
    assert joint.terms[0].client == 0
    # The values are those of the clients' true data.
    parts = [run.task.parts[term.client] for term in joint.terms]
    gradients = [
        grad(run.task.loss)(weights, *part)
        for weights, part in zip(joint.points, parts, strict=True)
    ]
    expected = torch.tensor(joint.matrix, dtype=torch.float64) @ torch.stack(gradients)
    torch.testing.assert_close(joint.values, expected, rtol=1e-6, atol=1e-8)


def test_one_value_is_not_joint():
    """With a common start, the neighbour of a `dsg` client knows its first gradient only."""
    run = setting(algorithm=tacit.DSG(lr=0.1))
    run = replace(run, graph=tacit.Topology.complete(5).mixing("metropolis"))
    assert found(run, "curious(1,2,3,4)", 1) is None


@pytest.mark.slow
def test_two_differences_recover_what_one_does_not():
    """A difference has 29 numbers; three pictures of nine pixels and their labels have 33."""
    victims, batch, classes = 4, 3, 3
    module = nn.Sequential(nn.Flatten(), nn.Linear(9, 2), nn.Sigmoid(), nn.Linear(2, classes))
    loss = ModuleLoss(FlatModule(module.double()), functional.cross_entropy)
    draw = torch.Generator().manual_seed(0)
    x = torch.rand(victims, batch, 1, 3, 3, generator=draw, dtype=torch.float64)
    y = torch.randint(classes, (victims, batch), generator=draw)

    def models(*name):
        return 2 * torch.stack([loss.flat.random_weights(*name, v) for v in range(victims)])

    first = models("first")
    weights = torch.stack([first, first + models("move", 0), first + models("move", 1)], 1)
    gradients = [[grad(loss)(w, x[v], y[v]) for w in weights[v]] for v in range(victims)]
    values = torch.stack([torch.stack(each) for each in gradients]).diff(dim=1)
    spec = DataSpec((1, 3, 3), batch, classes)

    def recovered(observation):
        found = invert(loss, observation, spec, matching_loss=L2(relative=True)).inputs
        distances = (found[:, :, None] - x[:, None]).square().flatten(3).mean(3)
        return int((distances.amin(1).amax(1) < 1e-3).sum())

    pair = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    for k in range(2):
        assert recovered(Observation.single(weights[:, k : k + 2], pair, values[:, k], True)) == 0
    rows = torch.tensor([[-1.0, 1.0, 0.0], [0.0, -1.0, 1.0]], dtype=torch.float64)
    assert recovered(Observation(weights, rows, values, (0, 0, 0))) >= 3


def test_the_best_guess_is_that_which_explains_everything():
    loss = ModuleLoss(FlatModule(network()), functional.cross_entropy)
    x, y = X[:1], DIGITS.train.y[:1]
    weights = torch.stack([loss.flat.random_weights("model", k) for k in range(2)])
    values = torch.stack([grad(loss)(one, x, y) for one in weights])
    eye = torch.eye(2, dtype=torch.float64)
    observation = Observation(weights[None], eye, values[None], (0, 0))
    spec = DataSpec((1, 7, 7), 1, 10, (0.0, 1.0))
    wrong = Guess(1 - x[None], (y[None] + 1) % 10, "L2, L-BFGS", [], 1.0, True)
    others = [("difference", 0.5 * x, y), ("gradient", x, None)]
    best = best_guess(loss, observation, spec, wrong, others, clipped=False)
    assert best.method == "as from the gradient"
    assert torch.equal(best.inputs[0], x)
    assert torch.equal(best.labels[0], y)  # found among all classes
    right = replace(wrong, inputs=x[None], labels=y[None])
    best = best_guess(loss, observation, spec, right, others[:1], clipped=False)
    assert best.method == "L2, L-BFGS"
    # A guess of another number of samples cannot be compared.
    assert best_guess(loss, observation, spec, right, [("sum", X[:2], None)], clipped=False)


def test_an_audit_reports_everything_known():
    options = AttackOptions(restarts=2, seconds=0.5)
    audit = run_audit(
        setting(), ["curious(1)"], AuditOptions(iterations=5, attacks=options, heat_map=False)
    )
    (result,) = audit.results
    attack = result.reconstructions[-1]
    assert attack.kind == "everything known"
    assert attack.guess.shape == attack.truth.shape == (1, 2, 1, 7, 7)
    torch.testing.assert_close(attack.truth[0], X[:2])
    assert "best of" in attack.assumptions[-1]
    plain = attack.as_dict()
    assert plain["cut_short"] is attack.cut_short
    (line,) = [one for one in result.verdicts[0].measured if "everything known" in one]
    assert line.startswith("inversion of everything known")
    assert line.endswith("(stopped by the time budget)") == attack.cut_short
    assert any("stopped by the time budget" in one for one in result.verdicts[0].measured) == any(
        one.cut_short for one in [*result.reconstructions, *result.memberships]
    )
