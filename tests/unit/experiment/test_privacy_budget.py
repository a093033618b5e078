"""What a run spends of its privacy budget: in checkpoints, in the summary, and when it stops."""

import json
import signal
from dataclasses import fields

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from support.misuse import assert_mentions, misuse_message
from tacit.core.errors import Interrupted
from tacit.experiment.auditing import audit, load_subject
from tacit.experiment.run import ProgressListener, run
from tacit.privacy.guarantee import Budget

# Noise for fewer than the 15 iterations of the small experiment.
SHORT = ("algorithm.momentum=0.5", "privacy.noise_multiplier=1.3")
# No loss is as much better as that.
STOPPING = ("stop.patience=1", "stop.min_change=1000.0")


@pytest.fixture
def run_private(tiny_private, dataset, tmp_path):
    """Run the small experiment with a guarantee into a folder below the test's own."""

    def running(*overrides, out="out", **options):
        return run(tiny_private(*overrides), tmp_path / out, dataset=dataset, **options)

    return running


def saved(outcome):
    """The newest checkpoint: what it says of privacy, and its tensors."""
    path = max(outcome.folder.checkpoints.iterdir())
    with safe_open(path, framework="pt") as file:
        facts = json.loads(file.metadata()["tacit"])
    return facts["step"], facts["privacy"], load_file(path)


def stop_at(step):
    return ProgressListener(
        on_step=lambda simulation: simulation.t == step and signal.raise_signal(signal.SIGINT)
    )


def budget_of(privacy):
    names = {field.name for field in fields(Budget)}
    return Budget.from_dict({key: value for key, value in privacy.items() if key in names})


def test_a_run_keeps_its_promise_and_says_so(run_private):
    outcome = run_private()
    privacy = outcome.summary["privacy"]
    assert outcome.summary["steps"] == 15
    assert (privacy["epsilon"], privacy["unit"], privacy["steps"]) == (3.0, "sample", 15)
    assert 2.99 < privacy["spent"] <= 3.0
    assert privacy["spent"] == budget_of(privacy).spent(15)
    assert saved(outcome)[:2] == (15, privacy)
    assert json.loads(outcome.folder.summary.read_text())["privacy"] == privacy


def test_other_runs_have_no_budget(run_tiny):
    outcome = run_tiny("run.rounds=1")
    assert outcome.summary["privacy"] is None
    assert saved(outcome)[1] is None


def test_sums_without_noise_have_no_guarantee(run_private):
    privacy = run_private("privacy.epsilon=inf", "run.rounds=1").summary["privacy"]
    assert privacy["epsilon"] is privacy["spent"] is None


@pytest.fixture
def stopped(run_private):
    return run_private(*SHORT)


def test_a_run_stops_at_its_budget_with_the_model_it_has(stopped):
    steps = stopped.summary["steps"]
    budget = budget_of(stopped.summary["privacy"])
    assert 3 < steps == budget.allowed_steps < 15 == budget.steps
    assert stopped.summary["privacy"]["spent"] <= 3.0 < budget.spent(steps + 1)
    step, privacy, tensors = saved(stopped)
    assert (step, privacy["spent"]) == (steps, stopped.summary["privacy"]["spent"])
    assert torch.equal(tensors["theta"], stopped.simulation.state.theta)
    assert stopped.history[-1].step == steps
    assert any(f"allows {steps} of 15 iterations" in note for note in stopped.summary["notes"])


def test_resuming_does_not_reset_the_budget(run_private, stopped):
    with pytest.raises(Interrupted):
        run_private(*SHORT, out="again", listener=stop_at(3))
    again = run_private(*SHORT, out="again", resume=True)
    assert again.summary["steps"] == stopped.summary["steps"]
    assert again.summary["privacy"] == stopped.summary["privacy"]
    for name, rows in saved(stopped)[2].items():
        assert torch.equal(saved(again)[2][name], rows)
    assert again.summary["bytes_sent"] == stopped.summary["bytes_sent"]


def test_a_spent_budget_stays_spent(run_private, stopped):
    before = saved(stopped)
    again = run_private(*SHORT, resume=True)
    assert again.summary["steps"] == stopped.summary["steps"]
    assert torch.equal(saved(again)[2]["theta"], before[2]["theta"])
    assert_mentions(misuse_message(again.simulation.step), "budget is spent")


def test_a_budget_cannot_be_raised_by_resuming(run_private, stopped):
    message = misuse_message(run_private, *SHORT, "privacy.epsilon=30.0", resume=True)
    assert_mentions(message, "another configuration")


def test_clients_that_start_from_different_models_are_refused(run_private, tmp_path):
    message = misuse_message(run_private, "model.init=independent")
    assert_mentions(message, "trains one model", 'init="same"')
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("overrides", "ended", "covered"), [(STOPPING, 5, 15), (SHORT, 8, 8)], ids=["stop", "budget"]
)
def test_audits_bound_all_iterations_that_a_run_could_have_had(
    run_private, dataset, overrides, ended, covered
):
    """Results that end a run early depend on the data; a spent budget does not."""
    outcome = run_private(*overrides)
    assert outcome.summary["steps"] == ended
    subject = load_subject(outcome.folder.path, dataset=dataset)
    options = {"iterations": 2, "attacks": False, "heat_map": False}
    (ledger,) = audit(subject, "curious(1)", 0, **options).results[0].ledgers
    assert ledger.run_steps == covered
    spent = budget_of(outcome.summary["privacy"]).spent(covered)
    assert ledger.best.epsilon == pytest.approx(spent, rel=0.01)
