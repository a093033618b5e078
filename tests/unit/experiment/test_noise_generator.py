"""`run.prg`: noise from keystreams in a run folder, and old folders as they were."""

import signal

import pytest
import torch

from tacit.config.loading import make_config
from tacit.core.errors import Interrupted, Misuse
from tacit.experiment.auditing import load_subject
from tacit.experiment.folder import fingerprint
from tacit.experiment.run import ProgressListener

# Of the small experiment, by the version that had no choice yet.
BEFORE = "b56e0e471fa6aa8f3f6f84ebcc1fe1b1791a996489627397bf83c3fd056f326b"


def test_the_default_generator_keeps_the_fingerprint_of_older_runs(tiny):
    assert fingerprint(tiny()) == fingerprint(tiny("run.prg=philox")) == BEFORE
    assert fingerprint(tiny("run.prg=chacha20")) != BEFORE


def test_a_file_without_the_key_means_philox(tiny):
    plain = tiny().as_dict()
    del plain["run"]["prg"]
    assert make_config(plain) == tiny()
    assert tiny().run.prg == "philox"


@pytest.mark.parametrize("value", ["chacha", "true", "8"])
def test_another_generator_is_refused_with_the_choices(tiny, value):
    with pytest.raises(Misuse, match=r"run\.prg") as caught:
        tiny(f"run.prg={value}")
    assert "'philox' or 'chacha20'" in str(caught.value)


def test_keystreams_are_used_and_kept_when_a_run_is_resumed(run_tiny):
    whole = run_tiny("run.prg=chacha20", out="whole")
    assert 'prg = "chacha20"' in whole.folder.config.read_text()
    stop = ProgressListener(
        on_step=lambda simulation: simulation.t == 7 and signal.raise_signal(signal.SIGINT)
    )
    with pytest.raises(Interrupted):
        run_tiny("run.prg=chacha20", listener=stop)
    with pytest.raises(Misuse, match="another configuration"):
        run_tiny(resume=True)
    again = run_tiny("run.prg=chacha20", resume=True)
    philox = run_tiny(out="philox")
    for name in ("theta", "gamma", "grad"):
        first = getattr(whole.simulation.state, name)
        assert torch.equal(first, getattr(again.simulation.state, name))
        assert not torch.equal(first, getattr(philox.simulation.state, name))
    assert whole.summary["bytes_sent"] == philox.summary["bytes_sent"]


@pytest.mark.parametrize("prg", ["philox", "chacha20"])
def test_an_audit_runs_a_configuration_with_its_own_generator(tiny, prg):
    assert load_subject(tiny(f"run.prg={prg}")).experiment.setting.prg == prg
