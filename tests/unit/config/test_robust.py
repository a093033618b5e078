"""[robust] in a configuration, of a simulation and of a federation."""

import pytest

import tacit
from support.misuse import assert_mentions, misuse_message
from tacit.config.build import build
from tacit.config.loading import make_config
from tacit.peer.federation.agreed_settings import check_runnable

BASE = {
    "data": {"limit_train": 40, "limit_test": 10},
    "graph": {"kind": "random-regular", "clients": 8, "degree": 4},
    "algorithm": {"name": "dsg", "lr": 0.1},
    "run": {"rounds": 2, "iterations_per_round": 1, "batch_size": 5, "checkpoint_every": 1},
}


def configured(robust, **changes):
    return make_config(BASE | changes | {"robust": robust})


def test_the_algorithm_mixes_robustly():
    algorithm = build(configured({"rule": "trimmed-mean", "liars": 2})).algorithm
    assert isinstance(algorithm, tacit.Robust)
    assert (algorithm.rule, algorithm.liars, algorithm.name) == ("trimmed-mean", 2, "dsg")
    assert isinstance(build(configured({})).algorithm, tacit.Robust)


def test_without_the_section_it_does_not():
    assert isinstance(build(make_config(BASE)).algorithm, tacit.DSG)


@pytest.mark.parametrize(
    "check", [build, lambda one: check_runnable(one, build(make_config(BASE)).graph)]
)
def test_what_is_not_possible_is_refused(check):
    lppa = {"algorithm": {"name": "lppa", "lr": 0.1}}
    assert_mentions(misuse_message(check, configured({}, **lppa)), "[robust]", "lppa", "mask")
    message = misuse_message(check, configured({"rule": "trimmed-mean", "liars": 3}))
    assert_mentions(message, "[graph]", "needs 6")
    private = {"algorithm": {"name": "private-sgd", "lr": 0.1}}
    private |= {"privacy": {"epsilon": 8.0, "delta": 1e-3, "samples": 40}}
    assert_mentions(misuse_message(check, configured({}, **private)), "masked rows")


def test_bad_values_name_the_key():
    assert_mentions(misuse_message(configured, {"rule": "median"}), "robust.rule", "trimmed-mean")
    assert_mentions(misuse_message(configured, {"liars": 0}), "robust.liars")


def test_allow_inexact_gives_a_caution():
    config = configured({"allow_inexact": True}, algorithm={"name": "lppa", "lr": 0.1})
    graph = build(config).graph
    assert_mentions(" ".join(check_runnable(config, graph)), "robust mixing", "mask")
