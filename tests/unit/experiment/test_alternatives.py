"""What would change the answer: every suggestion is audited again and keeps what it says."""

import re
from dataclasses import replace

import pytest

from tacit.auditing.judgement import answer_of
from tacit.config.build import build
from tacit.config.loading import make_config
from tacit.experiment import alternatives
from tacit.experiment.alternatives import with_alternatives
from tacit.experiment.auditing import AuditSubject, audit

FIVE = "graph.clients=5"


def changes_of(config, dataset, adversaries=("curious(1)", "curious(1,4)"), iterations=3):
    experiment = build(config, None, dataset)
    found = audited(experiment, adversaries, iterations)
    return experiment, with_alternatives(answer_of(found), found, experiment).changes


def audited(experiment, adversaries, iterations=3):
    return audit(
        AuditSubject(experiment), adversaries, 0, iterations=iterations, attacks=False,
        heat_map=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def masked(dataset):
    """The experiment with masks at the start on a ring of five, and what would change it."""
    keys = {
        "model": {"name": "mlp", "hidden": [8]},
        "graph": {"kind": "ring", "clients": 5},
        "algorithm": {"name": "lppa", "lr": 0.1, "noise": {"law": "laplace", "scale": 0.01}},
        "run": {"rounds": 3, "batch_size": 16},
    }
    return changes_of(make_config(keys), dataset)


def test_the_least_change_comes_first_and_is_true(masked, tiny, dataset):
    _, changes = masked
    fresh = next(text for text in changes if "`algorithm.fresh = true`" in text)
    assert "client 1 can compute the exact sum" in fresh
    assert "clients 1 and 4 together can learn as much as now" in fresh
    again = audited(build(tiny(FIVE, "algorithm.fresh=true"), None, dataset), ["curious(1)"])
    assert again.results[0].leakage[0].strongest == ("sum", "exact")
    again = audited(build(tiny(FIVE, "algorithm.fresh=true"), None, dataset), ["curious(1,4)"])
    assert again.results[0].leakage[0].strongest == ("gradient", "exact")


def test_more_neighbours_are_examined_on_their_graph(masked, tiny, dataset):
    _, changes = masked
    assert '`graph.kind = "complete"`' in changes[0]
    complete = build(tiny(FIVE, "graph.kind=complete"), None, dataset)
    assert audited(complete, ["curious(1,4)"]).results[0].leakage[0].strongest[0] != "gradient"
    assert "clients 1 and 4 together can compute exactly how" in changes[0]


def test_a_promised_epsilon_is_the_one_that_an_audit_proves(masked, dataset):
    experiment, changes = masked
    text = next(text for text in changes if "[privacy]" in text)
    name = re.search(r'algorithm.name = "([\w-]+)"', text)[1]
    plain = experiment.config.as_dict()
    variant = make_config(
        plain | {"algorithm": {"name": name, "lr": 0.1}, "privacy": {"epsilon": 3.0}}
    )
    found = audited(build(variant, None, dataset), ["curious(1)"])
    epsilon = found.results[0].ledgers[0].best.epsilon
    shown = float(re.search(r"client 1 can learn at most ε = ([\d.]+)", text)[1])
    assert epsilon == pytest.approx(shown, rel=0.01)
    assert epsilon <= shown


def test_a_guarantee_of_ideal_noise_is_told_as_one(tiny, dataset):
    """Noise of floating-point numbers gives no proof, but a promised ε is not "no guarantee"."""
    config = tiny(FIVE, "algorithm.name=dsgt", "algorithm.noise=")
    _, changes = changes_of(config, dataset, ["curious(1)"])
    text = next(text for text in changes if '"decor"' in text)
    assert "[privacy] epsilon = 3" in text
    assert "without a guarantee" not in text
    shown = re.search(r"client 1 can learn at most ε = ([\d.]+) .* if noise is ideal", text)
    assert 0 < float(shown[1]) <= 3


def test_vacuous_noise_says_how_much_would_do(tiny, dataset):
    noise = "algorithm.noise={law='gaussian',scale=0.5}"
    overrides = (FIVE, "algorithm.name=dp-dsgt", "algorithm.inject=every", noise)
    clip = "run.clip={bound=1.0}"
    _, changes = changes_of(tiny(*overrides, clip), dataset, ["curious(1)"])
    factor, scale, epsilon = re.match(
        r"([\d,]+) times the noise \(`algorithm.noise.scale = (\d+)`\) gives ε = ([\d.]+)",
        changes[0],
    ).groups()
    assert float(scale) == 0.5 * float(factor.replace(",", ""))
    louder = tiny(*overrides, clip, f"algorithm.noise.scale={scale}")
    bound = audited(build(louder, None, dataset), ["curious(1)"]).results[0].ledgers[0].best
    assert bound.epsilon == pytest.approx(float(epsilon), rel=0.01)
    assert bound.epsilon < 10
    _, changes = changes_of(tiny(*overrides), dataset, ["curious(1)"])
    assert "`[run.clip] bound` is needed" in changes[0]


def test_twice_the_noise_of_a_promise(tiny_private, dataset):
    experiment, changes = changes_of(tiny_private(), dataset, ["curious(1)"])
    budget = experiment.algorithm.budget
    spent = replace(budget, noise_multiplier=2 * budget.noise_multiplier).spent(experiment.steps)
    shown = float(re.search(r"gives ε = ([\d.]+) in place of 3", changes[0])[1])
    assert spent <= shown <= 1.01 * spent


def test_a_promise_against_all_others_is_suggested_with_its_price(tiny_private, dataset):
    experiment, changes = changes_of(tiny_private(), dataset, ["curious(1)"])
    text = next(text for text in changes if "`[privacy] honest = 1`" in text)
    now, times = map(float, re.search(r"place of ([\d.]+); .* adds ([\d.]+) times", text).groups())
    budget = experiment.algorithm.budget
    assert now == pytest.approx(budget.epsilon_against(1), rel=0.01)
    kept = build(make_config(experiment.config.as_dict(), ["privacy.honest=1"]), None, dataset)
    alone = kept.algorithm.budget
    assert alone.epsilon_against(1) <= 3
    # The noise of each client: that of `honest` clients together has deviation σC.
    each = budget.noise_multiplier / budget.honest**0.5
    assert alone.noise_multiplier / each == pytest.approx(times, rel=0.01)


def test_a_promise_that_counts_on_no_other_client_needs_no_other(tiny_private, dataset):
    config = make_config(tiny_private().as_dict(), ["privacy.honest=1"])
    _, changes = changes_of(config, dataset, ["curious(1)"])
    assert "even if only 1 of" in changes[0]
    assert not any("honest = 1" in text for text in changes)


def test_nothing_is_made_up_if_nothing_helps(tiny, dataset, monkeypatch):
    monkeypatch.setattr(alternatives, "_candidates", lambda experiment: iter(()))
    monkeypatch.setattr(alternatives, "_more_neighbours", lambda experiment: iter(()))
    _, changes = changes_of(tiny(FIVE), dataset)
    assert changes == [
        "None of 0 other algorithms and options leaks less to these adversaries (3 iterations "
        "examined)."
    ]


def test_no_suggestion_for_a_changing_world_rests_on_a_fixed_one(tiny, dataset):
    _, changes = changes_of(tiny(FIVE, "algorithm.name=dsgt", "participation.share=0.8"), dataset)
    assert changes == [
        "Changes are examined for a fixed graph, with all clients and no delay, only."
    ]


@pytest.fixture
def table(tmp_path):
    """A table of three clients with one numeric column."""
    rows = [f"{site},{age},{age % 2}" for site in "abc" for age in range(30, 50)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["site,age,ill", *rows]) + "\n")
    return path


def test_no_guarantee_is_suggested_that_would_be_refused(table):
    keys = {
        "data": {"file": str(table), "client": "site", "label": "ill"},
        "model": {"name": "mlp", "hidden": [4]},
        "graph": {"kind": "ring"},
        "algorithm": {"name": "dsgt", "lr": 0.1},
        "run": {"rounds": 2, "batch_size": 4},
    }
    _, changes = changes_of(make_config(keys), None, ["curious(1)"])
    assert changes[0].startswith("`[data.schema]` with public constants for numbers")
    assert not any("[privacy] epsilon" in text for text in changes)
    public = keys | {
        "data": keys["data"] | {"schema": {"age": {"mean": 40, "std": 5}}, "classes": 2}
    }
    _, changes = changes_of(make_config(public), None, ["curious(1)"])
    assert any("[privacy] epsilon" in text for text in changes)
