"""`tacit privacy`: plans, tables, JSON, plots, and one message for each mistake."""

import json
import subprocess
import sys

import pytest

from support.misuse import assert_mentions

MNIST = ("--samples", 60_000, "--batch", 2_048, "--rounds", 40)
CLIENTS = ("--unit", "client", "--clients", 50, "--rounds", 10, "--delta", "1e-3")


def plan_of(answer):
    assert (answer.code, answer.err) == (0, "")
    return json.loads(answer.out)


def test_the_noise_that_epsilon_needs(tacit_here):
    plan = plan_of(tacit_here("privacy", "--epsilon", 3, *MNIST, "--clients", 10, "--json"))
    assert plan["noise_multiplier"] == pytest.approx(1.80, rel=5e-3)
    assert plan["iterations"] == 1160
    assert plan["sampling_rate"] == pytest.approx(2048 / 60000)
    assert plan["relative_noise"] == pytest.approx(plan["noise_multiplier"] / 2048)
    assert plan["noise_per_client"] == pytest.approx(plan["noise_multiplier"] / 3)
    last = plan["epsilon_by_round"][-1]
    assert last["round"] == 40
    assert 2.99 < last["epsilon"] <= 3
    assert {row["change"] for row in plan["alternatives"]} >= {"half the rounds", "twice the batch"}
    against = {row["colluding"]: row["epsilon"] for row in plan["epsilon_by_coalition"]}
    assert against[0] < against[1] <= 3 < against[9]


def test_the_epsilon_that_noise_gives(tacit_here):
    noise = ("--noise-multiplier", 1.93)
    plan = plan_of(tacit_here("privacy", *noise, *MNIST, "--check", "--json"))
    assert 2.6 < plan["epsilon"] < 3
    assert plan["dp_accounting"]["pld"] == pytest.approx(plan["epsilon"], rel=2e-3)
    assert plan["dp_accounting"]["rdp"] == pytest.approx(3, rel=0.02)
    assert plan["clients"] is plan["honest"] is plan["noise_per_client"] is None
    assert plan["epsilon_by_coalition"] == []


def test_clients_are_not_sampled(tacit_here):
    plan = plan_of(tacit_here("privacy", "--epsilon", 5, *CLIENTS, "--honest", 25, "--json"))
    assert (plan["iterations"], plan["sampling_rate"], plan["honest"]) == (10, 1, 25)
    assert plan["relative_noise"] == pytest.approx(plan["noise_multiplier"] / 50)
    held = [row["colluding"] for row in plan["epsilon_by_coalition"] if row["epsilon"] <= 5]
    assert max(held) == 25


def test_tables(tacit_here):
    answer = tacit_here("privacy", "--epsilon", 3, *MNIST, "--clients", 10, "--check")
    assert answer.code == 0
    assert_mentions(
        *(answer.out, "ε = 3.00, δ = 1e-05 for one training sample", "1.802", "40 rounds × 29"),
        *("3.41 %", "σ / √9: each of 10 clients", "twice the batch", "colluding clients"),
        *("dp-accounting: ε = 3.00 by loss distributions", "by Rényi divergences"),
    )
    answer = tacit_here("privacy", "--noise-multiplier", 30, *CLIENTS)
    assert_mentions(answer.out, "all data of one client", "σ / 50 clients")
    assert "sampling rate" not in answer.out


def test_a_check_says_if_the_other_accountant_is_not_installed(tacit_here, monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    answer = tacit_here("privacy", "--epsilon", 3, *MNIST, "--check")
    assert answer.code == 2
    assert_mentions(
        answer.err, "dp-accounting", "not installed", "pip install", "leave out --check"
    )
    assert tacit_here("privacy", "--epsilon", 3, *MNIST).code == 0


def test_a_plot(tacit_here, tmp_path):
    answer = tacit_here("privacy", "--epsilon", 3, *MNIST, "--plot", "plan.png")
    assert (answer.code, answer.out.splitlines()[-1]) == (0, "Plot: plan.png")
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--epsilon", "-2", *MNIST), ["epsilon is -2.0", "above 0"]),
        (("--epsilon", 3, *MNIST, "--delta", "2e-5"), ["delta is 2e-05", "60,000 samples"]),
        (("--epsilon", 3, *MNIST, "--honest", 6), ["honest is 6", "Give clients"]),
        (("--epsilon", 3, "--rounds", 4), ["samples and batch"]),
        (("--epsilon", 3, "--rounds", 4, "--unit", "client"), ["depends on clients"]),
        (MNIST, ["Neither of --epsilon and --noise-multiplier", "Give one"]),
        (("--epsilon", 3, "--noise-multiplier", 2, *MNIST), ["Both of --epsilon", "Give one"]),
        (("--epsilon", 3, *MNIST, "--plot", "plan.gif"), ["'plan.gif'", ".png"]),
    ],
)
def test_a_mistake_gives_one_message(tacit_here, tmp_path, arguments, words):
    answer = tacit_here("privacy", *arguments)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.startswith("Error: ")
    assert answer.err.count("\n") == 1
    assert_mentions(answer.err, *words)
    assert list(tmp_path.iterdir()) == []


def test_a_plan_loads_neither_torch_nor_the_library():
    code = """
import sys
sys.argv = "tacit privacy --epsilon 3 --samples 1000 --batch 50 --rounds 3 --delta 1e-4".split()
from tacit.cli import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
for heavy in ("torch", "dp_accounting", "matplotlib", "scipy.stats", "scipy.signal"):
    assert heavy not in sys.modules, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
