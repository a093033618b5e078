"""Findings about DeFL-VP: budgets against the binomial, and what a neighbour has of a gradient."""

import math

import pytest
import torch
from filled_results import FULL, QUICK, fill, fill_grades
from matplotlib.figure import Figure
from scipy import stats

from tacit.config.loading import make_config
from tacit.models import build
from tacit.privacy.randomized_response import RandomizedResponse
from tacit_papers.findings.epsilon import QUICK_PARAMETERS, RUN, STATED, VECTOR, ResponseBudget
from tacit_papers.findings.own_signs import PLAIN, REDUCED
from tacit_papers.findings.zero_signs import COIN, PLUS
from tacit_papers.framework.cells import MeasureContext
from tacit_papers.framework.registry import ARTIFACTS
from tacit_papers.framework.stored_values import packed
from tacit_papers.measures.training import DeadCoordinates
from tacit_papers.measures.variate_leak import ControlVariateLeak


def test_budgets_are_those_of_the_binomial():
    pure = ResponseBudget(0.5, 20, 3, 0.0)(0, MeasureContext())
    assert (pure["epsilon"], pure["times"]) == (30.0, 60.0)
    epsilon = ResponseBudget(0.5, 20, 3, 1e-3)(0, MeasureContext())["epsilon"]
    assert epsilon < 30
    lies = stats.binom(60, 1 / (1 + math.exp(0.5)))
    losses = [(j, 0.5 * (60 - 2 * j)) for j in range(61)]
    delta = sum(lies.pmf(j) * -math.expm1(epsilon - loss) for j, loss in losses if loss > epsilon)
    assert delta == pytest.approx(1e-3, rel=1e-6)


def test_the_stated_epsilon_holds_for_a_coordinate_and_nothing_larger():
    measures = {cell.key: cell.measure for cell in ARTIFACTS["findings/epsilon"].cells(FULL)}

    def values(key):
        measured = key[0] in (STATED, VECTOR)
        return measures[key](0, MeasureContext()) if measured else {"epsilon": 1.0}

    assert fill_grades("findings/epsilon", values) == ["reproduced", "not reproduced", "reproduced"]
    artifact, result = fill("findings/epsilon", values)
    assert result.mean((STATED, "4")) == 4.0
    assert {key[0] for key in measures} >= {STATED, VECTOR, RUN}
    assert isinstance(artifact.draw(result), Figure)


def test_the_width_of_the_models_is_as_the_budget_has_it():
    def width(filters):
        return sum(p.numel() for p in build("cnn2", (1, 28, 28), 10, filters=filters).parameters())

    assert width([8, 16]) == QUICK_PARAMETERS
    budgets = {cell.key[0]: cell.measure for cell in ARTIFACTS["findings/epsilon"].cells(FULL)}
    assert budgets["one vector"].coordinates == width([16, 32])
    for scale, parameters in ((FULL, width([16, 32])), (QUICK, QUICK_PARAMETERS)):
        cells = ARTIFACTS["findings/epsilon-vector"].cells(scale)
        options = [cell.measure.config.algorithm.options for cell in cells]
        shares = [one["epsilon"] * parameters for one in options]
        assert shares == pytest.approx([float(cell.key[0]) for cell in cells])
        steps = [one["lr"] * RandomizedResponse(one["epsilon"]).scale for one in options]
        assert steps[1::2] == pytest.approx([0.01] * len(steps[1::2]), rel=1e-3)
        assert min(steps[::2]) > 1


@pytest.mark.parametrize(("accuracy", "word"), [(11.0, "reproduced"), (60.0, "not reproduced")])
def test_whether_anything_is_learnt_is_judged(accuracy, word):
    assert fill_grades("findings/epsilon-vector", lambda key: {"accuracy": accuracy})[0] == word


def leak(**algorithm):
    config = make_config(
        {
            "data": {"name": "mnist-mini", "limit_train": 60, "limit_test": 60},
            "model": {"name": "mlp", "hidden": [6]},
            "graph": {"clients": 4},
            "algorithm": {"name": "defl-vp", "lr": 0.05, "alpha": 0.25, **algorithm},
            "run": {"rounds": 1, "iterations_per_round": 3, "batch_size": 1},
        }
    )
    measure = ControlVariateLeak(config, config, victims=2, restarts=1, iterations=3)
    return measure.leak(1, MeasureContext())


def test_variates_in_clear_reveal_the_gradient_and_private_ones_do_not():
    clear, private, without = leak(), leak(private_variates=True), leak(variance_reduction=False)
    assert clear["exact"] == 1.0
    assert clear["relative_error"] < 1e-5
    assert "no differential-privacy guarantee" in clear["guarantee"]
    for hidden in (private, without):
        assert hidden["exact"] == 0.0
        assert hidden["cosine"] < 0.95
        assert hidden["guarantee"].startswith("ε = ")
    # 40 % of the signs are sent; variates reveal the others.
    assert private["cosine"] > without["cosine"] > 0
    assert clear["class_mse"] == private["class_mse"] > 0
    assert len(clear["pictures"]["truth"]) == 2


def leaks(published, private):
    """Values of findings/control-variates: exact share, SSIM, MSE, accuracy."""
    picture = packed(torch.zeros(1, 28, 28))
    common = {
        "guarantee": "g",
        "why": "w",
        "relative_error": 0.0,
        "cosine": 1.0,
        "class_ssim": 0.3,
        "class_mse": 0.05,
        "pictures": {"truth": picture * 2, "guess": picture * 2},
    }

    def values(key):
        numbers = published if key == ("as published",) else private
        return common | dict(zip(("exact", "ssim", "mse", "accuracy"), numbers, strict=True))

    return "findings/control-variates", values


def test_the_leak_is_judged_both_ways_and_drawn():
    expected = leaks((1.0, 0.8, 0.01, 88.0), (0.0, 0.2, 0.1, 80.0))
    assert fill_grades(*expected) == ["reproduced"] * 7
    opposite = leaks((0.0, 0.1, 0.2, 80.0), (1.0, 0.2, 0.1, 88.0))
    assert fill_grades(*opposite) == ["not reproduced"] * 7
    artifact, result = fill(*expected)
    assert isinstance(artifact.draw(result), Figure)


@pytest.mark.parametrize(
    ("reduced", "plain", "expected"),
    [
        (86.0, 20.0, ["reproduced", "reproduced", "not reproduced"]),
        (86.0, 84.0, ["not reproduced", "not reproduced", "reproduced"]),
    ],
)
def test_the_cost_of_leaving_variance_reduction_out_is_judged(reduced, plain, expected):
    def values(key):
        return {"accuracy": plain if key[1] == PLAIN else reduced}

    assert fill_grades("findings/own-signs", values) == expected


def test_zeros_are_judged_both_ways_and_drawn():
    def values(*best):
        def of(key):
            rank = best.index(key[0])
            ends = {"accuracy": 80.0 - 10 * rank, "dead": 10.0 + 20 * rank, "size": 1.0 + rank}
            columns = {name: [end, end] for name, end in ends.items()}
            return ends | {"curve": {"round": [0, 10]} | columns}

        return "findings/zero-signs", of

    assert fill_grades(*values(REDUCED, COIN, PLUS)) == ["reproduced"] * 4
    assert fill_grades(*values(PLUS, COIN, REDUCED)) == ["not reproduced"] * 4
    artifact, result = fill(*values(REDUCED, COIN, PLUS))
    assert isinstance(artifact.draw(result), Figure)


def test_dead_coordinates_are_counted():
    config = {
        "data": {"name": "mnist-mini", "limit_train": 80, "limit_test": 60},
        "model": {"name": "mlp", "hidden": [6]},
        "graph": {"clients": 4},
        "algorithm": {"name": "defl-vp", "lr": 0.05, "variance_reduction": False},
        "run": {"rounds": 4, "batch_size": 5, "evaluate_every": 2},
    }
    found = DeadCoordinates(make_config(config))(1, MeasureContext())
    assert found["curve"]["round"] == [0, 2, 4]
    # Pixels at the border of digits are always black: their weights have gradients of zero.
    first, *_, last = found["curve"]["dead"]
    assert 5 < first < 95
    # Signs of zeros move these weights by the step in nearly every iteration, and units die.
    assert last > first
    assert found["size"] > 3 * found["curve"]["size"][0]
    assert found["accuracy"] == found["curve"]["accuracy"][-1] > 0
