"""`run.secret_noise`: who reads the key, how long it lives, and that none is used twice."""

import json
import signal
import stat

import pytest
import torch

from support.misuse import assert_mentions, misuse_message
from tacit.core.errors import Interrupted
from tacit.experiment.noise_key import FILE, NoiseKey
from tacit.experiment.run import ProgressListener, run
from tacit.privacy.keystreams import Keystreams
from tacit.report.spending import Spending

SECRET = ("run.secret_noise=true", "run.checkpoint_every=1")
# A round of the small experiment has five iterations, and it has three rounds.
ROUND, STEPS = 5, 15


class Crash(Exception):
    """What no run expects."""


@pytest.fixture
def run_secretly(tiny_private, dataset, tmp_path):
    """Run the small experiment with a guarantee and secret noise."""

    def running(*overrides, out="out", on_step=lambda simulation: None, **options):
        listener = ProgressListener(on_step=on_step)
        config = tiny_private(*SECRET, *overrides)
        return run(config, tmp_path / out, dataset=dataset, listener=listener, **options)

    return running


def stored(folder):
    return json.loads((folder / FILE).read_text())


def at(step, act):
    """Call `act` after iteration `step`."""
    return lambda simulation: act(simulation) if simulation.t == step else None


def interrupt(simulation):
    signal.raise_signal(signal.SIGINT)


def crash(simulation):
    raise Crash


def sentences(outcome):
    privacy, steps = outcome.summary["privacy"], outcome.summary["steps"]
    return " ".join(Spending.of(privacy, steps, outcome.summary["clients"]).sentences())


def test_noise_and_samples_are_from_a_key_that_only_its_owner_reads(run_secretly, tmp_path):
    """It is there from the first iteration to the last, and then gone."""
    seen = []

    def look(simulation):
        path = tmp_path / "out" / FILE
        randomness = simulation.here.randomness
        seen.append((stat.S_IMODE(path.stat().st_mode), type(randomness)))

    first = run_secretly(on_step=look)
    assert seen == [(0o600, Keystreams)] * STEPS
    assert not list((tmp_path / "out").rglob(f"{FILE}*"))
    # The seed is the same, and nothing else follows from it.
    second = run_secretly(out="second")
    assert not torch.equal(first.simulation.state.theta, second.simulation.state.theta)


def test_only_a_run_from_its_seed_is_a_simulation(run_secretly, tiny_private, dataset, tmp_path):
    secret = run_secretly()
    assert secret.summary["privacy"]["simulated"] is False
    assert "simulation" not in sentences(secret)
    seeded = run(tiny_private(), tmp_path / "seeded", dataset=dataset)
    assert seeded.summary["privacy"]["simulated"] is True
    assert_mentions(sentences(seeded), "a simulation of the guarantee", "--secret-noise")


def test_a_run_that_was_stopped_continues_with_another_key(run_secretly, tmp_path):
    with pytest.raises(Interrupted):
        run_secretly(on_step=at(7, interrupt))
    before = stored(tmp_path / "out")
    assert (before["begun"], before["repeated"]) == (7, 0)
    after = []
    again = run_secretly(
        resume=True, on_step=at(8, lambda _: after.append(stored(tmp_path / "out")))
    )
    assert after[0]["secret"] != before["secret"]
    assert after[0]["begun"] == 2 * ROUND
    assert again.summary["steps"] == STEPS
    assert again.summary["privacy"]["repeated"] == 0
    assert not (tmp_path / "out" / FILE).exists()


def test_after_a_crash_iterations_have_other_noise_and_are_paid_for_twice(run_secretly, tmp_path):
    """The same model and the same iteration: with the same noise the two sums would be equal."""
    seen = []
    note = at(6, lambda simulation: seen.append(simulation.state.theta.clone()))

    def crashing(simulation):
        note(simulation)
        at(7, crash)(simulation)

    with pytest.raises(Crash):
        run_secretly(on_step=crashing)
    # Before they began, and whether or not they were reached.
    assert stored(tmp_path / "out")["begun"] == 2 * ROUND
    again = run_secretly(resume=True, on_step=note)
    assert not torch.equal(*seen)
    privacy = again.summary["privacy"]
    assert privacy["repeated"] == ROUND
    assert again.summary["steps"] == STEPS - ROUND
    assert 2.99 < privacy["spent"] <= 3.0
    assert_mentions(sentences(again), "5 iterations were repeated", "the run stopped there")


def test_what_several_crashes_repeated_adds_up(run_secretly, tmp_path):
    with pytest.raises(Crash):
        run_secretly(on_step=at(2, crash))
    with pytest.raises(Crash):
        run_secretly(resume=True, on_step=at(1, crash))
    again = run_secretly(resume=True)
    assert again.summary["privacy"]["repeated"] == 2 * ROUND
    assert again.summary["steps"] == STEPS - 2 * ROUND


def test_without_its_key_a_run_is_not_continued(run_secretly, tmp_path):
    with pytest.raises(Interrupted):
        run_secretly(on_step=at(7, interrupt))
    key = tmp_path / "out" / FILE
    key.chmod(0o644)
    assert_mentions(misuse_message(run_secretly, resume=True), "Others than you", "chmod 600")
    key.chmod(0o600)
    content = key.read_bytes()
    key.write_bytes(content[:-3])
    assert_mentions(misuse_message(run_secretly, resume=True), "is damaged", "another folder")
    key.unlink()
    assert_mentions(misuse_message(run_secretly, resume=True), "is not there", "another folder")


def test_a_run_that_has_ended_is_not_continued(run_secretly):
    run_secretly()
    assert_mentions(misuse_message(run_secretly, resume=True), "the run has ended")


def test_what_may_have_been_begun_counts(tmp_path):
    first = NoiseKey(tmp_path)
    first.allow(20)
    second = NoiseKey.continued(tmp_path, 12)
    assert (second.begun, second.repeated) == (12, 8)
    # It has drawn nothing yet: another attempt finds the same.
    assert NoiseKey.continued(tmp_path, 12).repeated == 8
    second.allow(16)
    assert NoiseKey.continued(tmp_path, 12).repeated == 12
    assert len({first.secret, second.secret, NoiseKey(tmp_path).secret}) == 3
