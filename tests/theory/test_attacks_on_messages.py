"""Inversion of the messages of a run with the combinations that the symbolic audit found.

Five clients on a ring hold one digit each. The attacker gets a transcript, its own state and the
combination. The digits are used for scores only.
"""

from functools import cache

import pytest
import torch

import tacit
from tacit import data, models
from tacit.auditing.adversary import Adversary
from tacit.auditing.attacks.closed_forms import read_inputs
from tacit.auditing.attacks.data_spec import DataSpec
from tacit.auditing.attacks.evidence import evidence
from tacit.auditing.attacks.inversion import invert
from tacit.auditing.attacks.lbfgs import LBFGS
from tacit.auditing.attacks.observation import Observation
from tacit.auditing.scoring.reconstruction import score_reconstruction
from tacit.auditing.symbolic.knowledge import Knowledge
from tacit.auditing.symbolic.leakage import Leakage
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.record.transcript import Keep

RING = tacit.Topology.ring(5).mixing("metropolis", lazy=True)
DIGITS = data.load("mnist-mini", limit_train=40, limit_test=200)
X, Y = DIGITS.train.x[:5], DIGITS.train.y[:5]
SHAPE = tuple(X.shape[1:])
PUBLISHED = tacit.Laplace(0.025)
DSGT, LPPA = tacit.DSGT(lr=0.1), tacit.LPPA(lr=0.1, noise=PUBLISHED)
FRESH = tacit.LPPA(lr=0.1, noise=PUBLISHED, fresh=True)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Many small operations: a second thread on a busy machine costs more than it gives."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def task(model, **options):
    module = models.build(model, SHAPE, DIGITS.classes, **options)
    return tacit.Task(module, [(X[i : i + 1], Y[i : i + 1]) for i in range(5)], init="independent")


# PyTorch's default weights, and those of the paper that introduced the attack.
LENET = task("sigmoid-cnn3")
LARGE = task("sigmoid-cnn3", uniform=0.5)
WEIGHTS = [
    pytest.param(LENET, id="usual weights"),
    pytest.param(LARGE, id="large weights", marks=pytest.mark.slow),
]
PERCEPTRON = task("mlp", hidden=(16,))


def held(algorithm, training, adversary, question="gradient", place=0, victim=0, steps=1):
    """What an adversary computes from a run that was recorded for it, and whether that is exact."""
    listener = Adversary.parse(adversary)
    keep = Keep(insides=tuple(listener.corrupt))
    transcript = tacit.run(
        training, algorithm, RING, steps=steps, seed=7, transcript=keep
    ).transcript
    found = Leakage(Knowledge(run_on_symbols(algorithm, RING, steps), listener), victim)
    return found, evidence(found, question, place, transcript)


def observation(*parts):
    """Evidence of one kind, to be searched as one batch, in float32 as models are."""
    points = torch.stack([part.points for part in parts]).float()
    values = torch.stack([part.values for part in parts]).float()
    return Observation.single(points, torch.tensor(parts[0].coefficients), values, same_data=True)


@cache
def inverted(training):
    """The first message of client 0, inverted without masks, with two unknown masks, and none."""
    seen = {
        "dsgt": held(DSGT, training, "curious(1)")[1],
        "neighbour": held(LPPA, training, "curious(1)")[1],
        "collusion": held(LPPA, training, "curious(1,4)")[1],
    }
    found = invert(
        training.loss,
        observation(*seen.values()),
        DataSpec(SHAPE, classes=DIGITS.classes),
        restarts=2,
        optimiser=LBFGS(iterations=200),
    )
    truth, labels = X[:1].expand(len(seen), 1, *SHAPE), Y[:1].expand(len(seen), 1)
    scores = score_reconstruction(
        found.inputs, truth, labels, DIGITS.test.x, DIGITS.test.y, 0, guess_labels=found.labels
    )
    prior = float(scores.prior_mean.ssim[0])
    ssim = dict(zip(seen, scores.attack.ssim.tolist(), strict=True))
    return seen, ssim, prior, dict(zip(seen, scores.levels, strict=True))


@pytest.mark.parametrize("training", WEIGHTS)
def test_the_first_message_of_gradient_tracking_shows_the_digit(training):
    """DLG (Zhu et al. 2019): labels from the last layer, inputs by L-BFGS from random starts."""
    seen, ssim, prior, levels = inverted(training)
    assert (seen["dsgt"].kind, seen["dsgt"].deviation) == ("gradient", 0)
    assert ssim["dsgt"] > 0.9 > prior + 0.1
    assert levels["dsgt"] == "recovered"


def test_masks_hide_it_from_one_neighbour():
    """What the same attack finds is no more like the digit than the mean of all digits is."""
    seen, ssim, prior, levels = inverted(LENET)
    assert seen["neighbour"].kind == "noisy gradient"
    assert seen["neighbour"].deviation == pytest.approx((2 * PUBLISHED.variance) ** 0.5)
    assert ssim["neighbour"] <= prior + 0.05
    assert levels["neighbour"] == "no better than the prior mean"


@pytest.mark.slow
def test_the_same_masks_only_blur_it_where_gradients_are_larger():
    """Weights uniform in ±½ double the gradients: the digit is legible, but not recovered."""
    seen, ssim, prior, levels = inverted(LARGE)
    assert float(seen["dsgt"].values.std()) > 2 * seen["neighbour"].deviation
    assert prior + 0.1 < ssim["neighbour"] < 0.9 * ssim["dsgt"]
    assert levels["neighbour"] != "recovered"


@pytest.mark.parametrize("training", WEIGHTS)
def test_both_neighbours_together_see_it_again(training):
    """They know all masks between them."""
    seen, ssim, _, levels = inverted(training)
    assert (seen["collusion"].kind, seen["collusion"].deviation) == ("gradient", 0)
    torch.testing.assert_close(seen["collusion"].values, seen["dsgt"].values, rtol=0, atol=1e-5)
    assert ssim["collusion"] > 0.9
    assert levels["collusion"] == "recovered"


def far(shortcut, victim=0):
    return float((shortcut.inputs[0, 0] - X[victim]).square().mean())


@pytest.mark.parametrize(("adversary", "victim"), [("curious(1)", 0), ("eavesdropper", 3)])
def test_kept_masks_leave_differences_and_those_give_the_input_itself(adversary, victim):
    """Input = ΔG_W[k] / ΔG_b[k] without masks of any scale, collusion or search."""
    for scale in (0.025, 25.0):
        algorithm = tacit.LPPA(lr=0.1, noise=tacit.Laplace(scale))
        found, change = held(algorithm, PERCEPTRON, adversary, "difference", 0, victim, steps=3)
        assert found.of("gradient").indices("exact") == []
        assert (change.kind, change.deviation) == ("difference", 0)
        shortcut = read_inputs(PERCEPTRON.loss.flat, observation(change), DataSpec(SHAPE))
        assert bool(shortcut.exact().all())
        assert far(shortcut, victim) < 1e-8


def test_fresh_masks_leave_no_difference():
    for adversary in ("curious(1)", "eavesdropper"):
        found, change = held(FRESH, PERCEPTRON, adversary, "difference", 0, steps=3)
        assert found.of("difference").indices("exact") == []
        assert found.of("gradient").indices("exact") == []
        assert change.deviation > 0
        shortcut = read_inputs(PERCEPTRON.loss.flat, observation(change), DataSpec(SHAPE))
        assert not bool(shortcut.exact().any())
        assert far(shortcut) > 1e-2
    # Unless both neighbours collude.
    found, change = held(FRESH, PERCEPTRON, "curious(1,4)", "difference", 0, steps=3)
    assert change.deviation == 0
    assert far(read_inputs(PERCEPTRON.loss.flat, observation(change), DataSpec(SHAPE))) < 1e-8
