"""Nodes end when their privacy budget does, with the model that they have."""

import json

from chaos import LONG, NAMES, ForkedFederation
from federations import PRIVATE, federation, models, plan
from safetensors.torch import load_file

from tacit.config.algorithms import make_algorithm_for
from tacit.config.build import build
from tacit.peer.node.node import REPEATED_ITERATIONS

DECOR = {"name": "decor", "lr": 0.1}
STEPS = 60
# Noise that is given may be too little for the iterations that are planned.
PROMISE = {"epsilon": 2.0, "delta": 1e-4, "samples": 200, "noise_multiplier": 2.0}


def short_of_budget(folder, algorithm):
    """A federation, and how many of its iterations the budget allows."""
    config = plan(algorithm, rounds=STEPS // 10, iterations=10, hidden=4, privacy=PROMISE)
    home = federation(folder, config)
    manifest = home.manifest()
    task = build(manifest.config).task
    made, _ = make_algorithm_for(manifest.config, task, manifest.graph, REPEATED_ITERATIONS)
    assert REPEATED_ITERATIONS + 5 < made.budget.allowed_steps < STEPS
    return home, made.budget.allowed_steps


def test_a_run_ends_where_its_budget_does(tmp_path):
    home, allowed = short_of_budget(tmp_path / "f", PRIVATE)
    with ForkedFederation(home) as running:
        assert running.wait(LONG), [node.last_error() for node in running.failed()]
    assert len(models(home)) == len(NAMES)
    for name in NAMES:
        summary = json.loads((home.node(name).run / "summary.json").read_text())
        assert summary["steps"] == summary["privacy"]["sums"] == allowed - REPEATED_ITERATIONS
        assert 0 < summary["privacy"]["epsilon_spent"] <= summary["privacy"]["epsilon"] == 2.0


def test_a_node_that_has_spent_its_budget_sends_nothing_more_and_keeps_its_model(tmp_path):
    home, allowed = short_of_budget(tmp_path / "f", DECOR)
    run = home.node("n2").run
    (run / "checkpoints").mkdir(parents=True)
    # What it has sent under an earlier roster leaves it three sums.
    earlier = "".join(f"{tick}-0 digest\n" for tick in range(allowed - 3))
    (run / "checkpoints" / "masked-000000.log").write_text(earlier)
    with ForkedFederation(home, save_seconds=LONG) as running:
        assert not running.wait(LONG)
        (failed,) = running.failed()
        assert failed.name == "n2"
        assert "The privacy budget is spent" in failed.last_error()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["steps"] == 3
    assert summary["privacy"]["sums"] == allowed
    assert (run / "checkpoints" / "generation-000001-step-000000003.safetensors").exists()
    assert load_file(run / "model.safetensors")["theta"].isfinite().all()
