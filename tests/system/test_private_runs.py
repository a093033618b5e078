"""`tacit run` with a promise: what it prints about the budget."""

import pytest

from support.misuse import assert_mentions

PRIVATE = """
data = { name = "mnist-mini", limit_train = 300, limit_test = 50 }
model = { name = "linear" }
graph = { kind = "ring", clients = 5 }
algorithm = { name = "private-sgd", lr = 0.5 }
privacy = { epsilon = 8.0, delta = 1e-4 }
run = { rounds = 2, batch_size = 20, iterations_per_round = 3 }
"""


@pytest.fixture
def privacy_lines(tacit_here, tmp_path):
    """The lines about privacy that a run with these overrides prints."""
    (tmp_path / "private.toml").write_text(PRIVATE)

    def running(*overrides, out="run", words=()):
        sets = [word for override in overrides for word in ("--set", override)]
        answer = tacit_here("run", "private.toml", "--out", out, *sets, *words)
        assert answer.code == 0, answer.err
        return [line for line in answer.out.splitlines() if line.startswith("privacy: ")]

    return running


def test_the_budget_is_printed_with_its_assumption(privacy_lines):
    line, simulated = privacy_lines()
    assert line == (
        "privacy: ε = 8 of 8 spent at δ = 0.0001 per training sample, "
        "if 4 of 5 clients are honest and connected"
    )
    assert_mentions(simulated, "a simulation of the guarantee", "--secret-noise")
    assert privacy_lines(out="secret", words=["--secret-noise"]) == [line]


def test_a_run_that_its_budget_stops_says_so(privacy_lines):
    spent, _, stopped = privacy_lines("privacy.noise_multiplier=1.0", "run.rounds=20")
    used = float(spent.split()[3])
    assert 7 < used <= 8
    assert "of 60 iterations, so the run stopped there" in stopped


def test_without_noise_no_guarantee_is_claimed(privacy_lines):
    assert privacy_lines("privacy.epsilon=inf") == [
        "privacy: no guarantee: epsilon is inf, so the sums are masked but have no noise"
    ]


def test_a_client_as_unit(privacy_lines):
    line, _ = privacy_lines('privacy.unit="client"', "privacy.honest=3")
    assert "per client (all of its data), if 3 of 5 clients are honest and connected" in line


def test_noise_for_no_iteration_is_a_failure(tacit_here, tmp_path):
    (tmp_path / "private.toml").write_text(PRIVATE)
    words = ("--out", "run", "--set", "privacy.noise_multiplier=0.2")
    answer = tacit_here("run", "private.toml", *words)
    assert answer.code == 1
    assert_mentions(answer.err, "noise_multiplier = 0.2 allows no iteration", "Give more noise")
    assert not (tmp_path / "run").exists()
