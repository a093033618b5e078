"""Folders that version 0.1 wrote are continued and audited, or refused with what to do."""

import signal

import pytest
import torch

from support.misuse import assert_mentions, misuse_message
from tacit.core.errors import Interrupted
from tacit.experiment.auditing import load_subject
from tacit.experiment.folder import RunFolder, fingerprint
from tacit.experiment.run import ProgressListener
from tacit.record import checkpoint as checkpoints

# By version 0.1, of the small experiment with a key as it spelled it.
NO_CLIP = "d549e151991dab5c5a4414e6089dac9b22d9a47fe6addd4a268c746a1d8aac28"
EXPONENTIAL = "775ab61c61c7470565aadbca907834a47f92f04759176774697a81d97902fec0"
MULTI_STEP = "1d4b52906d23c6a8fee9d477282fe98cc8304fd2201302f87149b96b4235806a"
WARMUP = "3a29362dca0dedf08dc040c06297e6db56bc7ff35fc7bee933e5b462bd4cb2e5"
VALIDATION = "af5f5d5c8048672846d8f07236ba40d86b3a5cca8b20c0bf3f590c26f7011cbb"
EARLIER_RATES = {
    'algorithm.lr={ schedule = "exponential", start = 0.1, decay = 0.9, steps = 10 }': EXPONENTIAL,
    'algorithm.lr={ schedule = "multi-step", start = 0.1, epochs = [1, 2] }': MULTI_STEP,
    'algorithm.lr={ schedule = "warmup", steps = 4, then = 0.1 }': WARMUP,
}
EARLIER_CLIPS = {
    "run.seed=0": NO_CLIP,
    "privacy.clip=1.0": "7989e8f7bf5cf0a8f60a591619422742e2457e7c1160b281f570f7c5513c7086",
    "privacy.clip=2": "8cb53c99235f8037c4cf2df5d011a537656f7f7f7a50e2438f7f5c4278b54d5f",
    "privacy.clip=0.5": "d2f2837a17e1d50e4b1605c50cd6d0f4176ab67aba2e40bac5433ca8b1edef0b",
}


def relabelled(folder, **facts):
    """Write the facts of a folder's newest checkpoint anew."""
    files = checkpoints.files_in(folder.checkpoints)
    path = files.newest_first()[0]
    tensors, known = files.read(path)
    files.write(path.name, tensors, known | facts)


def write_checkpoint(folder, mark):
    files = checkpoints.files_in(folder.checkpoints)
    facts = dict.fromkeys(checkpoints.FACTS) | {"step": 1, "fingerprint": mark}
    files.write(checkpoints.name_of(1), {"theta": torch.zeros(3, 2)}, facts)


@pytest.mark.filterwarnings("ignore::tacit.core.errors.Caution")
def test_a_stopped_run_whose_gradients_had_another_way_goes_on(run_tiny, tmp_path):
    """Version 0.1 wrote that way into the configuration and checkpoints of every run."""
    recorded = "transcript.last=3"
    stop = ProgressListener(
        on_step=lambda simulation: simulation.t == 7 and signal.raise_signal(signal.SIGINT)
    )
    with pytest.raises(Interrupted):
        run_tiny(recorded, listener=stop)
    folder = RunFolder(tmp_path / "out")
    relabelled(folder, gradients="layered")
    text = folder.config.read_text()
    assert 'gradients = "stacked"' in text
    folder.config.write_text(text.replace('gradients = "stacked"', 'gradients = "layered"'))
    assert load_subject(folder.path).transcript is not None
    resumed = run_tiny(recorded, "run.gradients=layered", resume=True)
    whole = run_tiny(recorded, out="whole")
    assert torch.equal(resumed.simulation.state.theta, whole.simulation.state.theta)


@pytest.mark.parametrize("override", EARLIER_RATES | EARLIER_CLIPS)
def test_runs_keep_their_fingerprint_when_a_key_gets_its_new_spelling(
    tiny, tiny_private, tmp_path, override
):
    make, saved = (
        (tiny, EARLIER_RATES) if override in EARLIER_RATES else (tiny_private, EARLIER_CLIPS)
    )
    folder, config = RunFolder(tmp_path), make(override)
    folder.create(config)
    write_checkpoint(folder, saved[override])
    assert folder.fingerprint_of(config) == saved[override]
    folder.require_same_run(config, "")
    other = make(override, "run.seed=5")
    assert folder.fingerprint_of(other) == fingerprint(other) != saved


def test_a_run_that_held_out_other_rows_is_not_continued(tiny, tmp_path):
    folder, config = RunFolder(tmp_path), tiny("data.validation=0.2")
    folder.create(config)
    write_checkpoint(folder, VALIDATION)
    for use in (lambda: folder.require_same_run(config, ""), lambda: load_subject(tmp_path)):
        assert_mentions(misuse_message(use), "held out other rows", "Run it again", "tacit report")
