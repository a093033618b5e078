"""`tacit audit` of a configuration and of a run: output, files and errors."""

import json
import re
from pathlib import Path

import pytest

SECTIONS = ("verdict", "what is proved", "what is bounded", "what is measured", "assumptions")
QUICK = "--no-attacks -n 3"
RECORDED = "\n[transcript]\nlast = 6\ninsides = [1]\n"
STOPPING = """
import os, signal
from dataclasses import dataclass
from tacit.algorithms.lppa import LPPA
from tacit.algorithms.tracking import TrackingState

@dataclass(frozen=True)
class Stopping(LPPA):
    name = "stopping"

    def start(self, here) -> TrackingState:
        return super().start(here)

    def step(self, s: TrackingState, here) -> TrackingState:
        if os.environ.get("STOP_AT") == str(here.t):
            os.kill(os.getpid(), signal.SIGINT)
        return super().step(s, here)
"""


@pytest.fixture
def recorded(config, tmp_path):
    """The same experiment, with the messages of its first six iterations recorded."""
    (tmp_path / config).write_text((tmp_path / config).read_text() + RECORDED)
    return config


@pytest.fixture
def written(tmp_path):
    """The numbers and the page that an audit wrote into a folder."""

    def reading(folder):
        folder = tmp_path / folder
        assert not list(folder.glob("*.part"))
        plain = json.loads((folder / "audit.json").read_text(), parse_constant=pytest.fail)
        return plain, (folder / "report.html").read_text()

    return reading


@pytest.fixture
def audit(tacit_here):
    """Run `tacit audit` with a line of arguments; returns what it prints."""

    def running(line):
        answer = tacit_here("audit", *line.split())
        assert answer.code == 0, answer.err
        return answer.out

    return running


@pytest.fixture
def refused(tacit_here, contents):
    """Run a command that must fail and write nothing; returns its message."""

    def running(line):
        before = contents()
        answer = tacit_here(*line.split())
        assert (answer.code, answer.out) == (2, "")
        assert "Traceback" not in answer.err
        after = {name: text for name, text in contents().items() if "__pycache__" not in name}
        assert after == before
        return answer.err

    return running


def check_page(page, pictures):
    for section in SECTIONS:
        assert f"Audit: {section}" in page
    assert page.count("<svg") >= pictures
    assert not re.search(r"\bnan\b", page, re.IGNORECASE)
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)
    assert "A failed attack proves nothing" in page


def names(plain):
    return [result["adversary"] for result in plain["adversaries"]]


def test_a_configuration_is_audited_with_attacks(audit, config, written):
    options = "-n 2 --seconds 1 --restarts 1 --set run.batch_size=1"
    printed = audit(f"{config} --adversary curious(1,2) {options}")
    plain, page = written("runs/audit")
    assert "Numbers: runs/audit/audit.json" in printed
    assert "Report: runs/audit/report.html" in printed
    assert "EXPOSED: curious(1,2) computes 2 of 3 gradients of client 0 exactly" in printed
    for word in ("proved", "bounded", "measured", "no differential-privacy guarantee"):
        assert word in printed
    assert "exact shortcut" in printed
    assert re.search(r"membership by loss: AUC 0\.\d+", printed)
    assert "A failed attack proves nothing" in printed

    assert (plain["algorithm"], plain["iterations"], plain["victims"]) == ("lppa", 2, [0])
    (result,) = plain["adversaries"]
    assert result["verdict"][0]["headline"] == "exposed"
    gradient = result["measured"]["inversion"][0]
    assert (gradient["evidence"], gradient["method"]) == ("gradient", "exact shortcut")
    assert gradient["score"]["reading"] == "recovered"
    assert gradient["score"]["attack"]["ssim"] > 0.99 > gradient["score"]["prior_mean"]["ssim"]
    scores = {one["score"] for one in result["measured"]["membership"]}
    assert scores >= {"loss", "likelihood ratio"}
    check_page(page, pictures=4)  # exposure, what is known when, the digit, the curves
    assert "Audit of lppa on mnist-mini" in page
    assert "recovered" in page

    # A second audit overwrites nothing.
    assert "Numbers: runs/audit-2/audit.json" in audit(f"{config} {QUICK} --adversary eavesdropper")
    assert written("runs/audit")[0] == plain


def test_default_adversaries_and_only_proofs(audit, config, written):
    printed = audit(f"{config} {QUICK} --out here")
    plain, page = written("here")
    assert names(plain) == ["curious(1)", "curious(1,2)", "eavesdropper"]
    headlines = [result["verdict"][0]["headline"] for result in plain["adversaries"]]
    assert headlines == ["partly exposed", "exposed", "partly exposed"]
    for result in plain["adversaries"]:
        assert not any(result["measured"].values())
        assert {"inversion", "membership", "client_canaries"} < result["measured"].keys()
        assert result["bounded"][0]["epsilon"] is None
        assert result["bounded"][0]["one_message_alone"] is None  # nothing is clipped
    assert plain["notes"] == []
    assert plain["exposure"]["learns"][1][0] == "difference"
    check_page(page, pictures=4)
    for word in ("PARTLY EXPOSED", "gradient differences of client 0 exactly", "none"):
        assert word in printed
    assert "membership" not in printed


def test_sample_canaries_are_measured_without_attacks(audit, config, written):
    audit(f"{config} {QUICK} --out a --adversary eavesdropper --sample-canaries 20")
    measured = written("a")[0]["adversaries"][0]["measured"]
    assert [one["coins"] for one in measured.pop("sample_canaries")] == [20]
    assert not any(measured.values())


def test_json_output(audit, config, written):
    named = "--adversary curious(1) --adversary curious(2)+eavesdropper --victim 0 --victim 2"
    plain = json.loads(audit(f"{config} {QUICK} {named} --json --out here"))
    assert plain == written("here")[0]
    assert names(plain) == ["curious(1)", "curious(2)+eavesdropper"]
    victims = [[one["victim"] for one in result["verdict"]] for result in plain["adversaries"]]
    assert victims == [[0, 2], [0]]


def test_overrides_change_what_is_audited(audit, config):
    printed = audit(f"{config} {QUICK} --json --out a --set algorithm.fresh=true")
    results = json.loads(printed)["adversaries"]
    assert results[0]["proved"][0]["difference"]["status"][0] == "noisy"


def test_a_note_explains_why_a_task_is_not_attacked(audit, config, tmp_path):
    text = (tmp_path / config).read_text()
    text = text[text.index("[graph]") :].replace("batch_size = 16\n", "")
    text = text.replace("clients = 3", "clients = 4")
    (tmp_path / config).write_text('[task]\nname = "localization"\n\n' + text)
    printed = audit(f"{config} -n 2")
    assert "Not measured: inversion needs a model that classifies inputs" in printed


def test_a_run_is_audited_from_its_transcript_or_by_repeating_it(
    tacit_here, audit, config, written, tmp_path
):
    """One digit each: both neighbours compute it from a gradient and from a difference."""
    text = (tmp_path / config).read_text().replace("limit_train = 240", "limit_train = 3")
    text = text.replace("batch_size = 16", "batch_size = 1\niterations_per_round = 2")
    (tmp_path / config).write_text(text)
    (tmp_path / "recorded.toml").write_text(text + RECORDED.replace("[1]", "[1, 2]"))
    assert tacit_here("run", "recorded.toml", "--out", "with").code == 0
    assert tacit_here("run", config, "--out", "without").code == 0
    assert (tmp_path / "with" / "transcript.safetensors").exists()
    assert not (tmp_path / "without" / "transcript.json").exists()
    found = {}
    for source, out in (("with", ""), ("without", ""), (config, "--out of")):
        audit(f"{source} {out} --adversary curious(1,2) -n 3 --seconds 1 --restarts 1")
        found[source], page = written("of" if out else source)
        check_page(page, pictures=4)
        assert ("Accuracy" in page) == (source != config)  # a run's report keeps its own sections
    (first,) = found["with"]["adversaries"]
    methods = [one["method"] for one in first["measured"]["inversion"]]
    assert methods == ["exact shortcut", "exact shortcut"]
    for source in ("without", config):
        assert found[source]["adversaries"] == [first]
        assert found[source]["exposure"] == found["with"]["exposure"]


def test_default_adversaries_are_those_that_were_recorded(tacit_here, audit, recorded):
    tacit_here("run", recorded, "--out", "out")
    plain = json.loads(audit(f"out {QUICK} --json"))
    assert names(plain) == ["curious(1)", "eavesdropper"]
    assert any(note.startswith("what curious(1,2) learns") for note in plain["notes"])


# --- Errors ---


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--adversary nosy", ["'nosy'", "eavesdropper", "curious(0)"]),
        ("--adversary curious(0)", ["are corrupt", "honest client"]),
        ("--adversary worst(9)", ["There is no coalition of 9 neighbours", "from 1 to 2"]),
        ("--victim 3", ["no client 3", "0 to 2"]),
        ("--set algorithm.lr=-1", ["[algorithm]", "positive"]),
    ],
)
def test_misuse_is_refused_and_leaves_nothing(refused, config, options, words):
    message = refused(f"audit {config} {QUICK} {options}")
    assert message.startswith("Error: ")
    for word in words:
        assert word in message


def test_numbers_out_of_range_are_refused_with_the_usage(refused, config):
    for options in ("-n 0", "--seconds 0", "--restarts 0"):
        assert "Usage: tacit audit" in refused(f"audit {config} {options}")
    assert "--victim x is not the number of a client" in refused(f"audit {config} --victim x")
    message = refused(f"audit {config} -n 100000")
    assert "The audit needs 100000 iterations, but the run has" in message


def test_the_source_must_be_a_configuration_or_a_run(refused, tmp_path):
    assert "no configuration file" in refused("audit absent.toml")
    (tmp_path / "empty").mkdir()
    assert "not a run folder" in refused("audit empty")


@pytest.fixture
def finished(tacit_here, recorded, tmp_path):
    assert tacit_here("run", recorded, "--out", "out").code == 0
    return tmp_path / "out"


def flip(path):
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def other_rate(path):
    path.write_text(path.read_text().replace("lr = 0.1", "lr = 0.2"))


def test_a_damaged_transcript_is_refused(refused, finished):
    for file, damage, words in (
        ("transcript.safetensors", flip, "transcript.safetensors was cut short or altered"),
        ("transcript.safetensors", Path.unlink, "transcript in out cannot be read"),
        ("config.toml", other_rate, "another configuration"),
    ):
        before = (finished / file).read_bytes()
        damage(finished / file)
        message = refused(f"audit out {QUICK}")
        assert words in message
        assert "Record the run again" in message
        (finished / file).write_bytes(before)


def test_missing_recordings_are_refused(refused, audit, finished):
    message = refused("audit out -n 7 --no-attacks --adversary curious(1)")
    assert "7 iterations" in message
    assert "the transcript has 6" in message
    message = refused("audit out -n 3 --adversary curious(1) --adversary curious(1,2)")
    assert "curious(1,2) needs what clients 2 hold, which was not recorded" in message
    assert "insides = [2]" in message
    assert "are corrupt" in refused(f"audit out {QUICK} --adversary curious(1) --victim 1")
    message = refused(f"audit out {QUICK} --set algorithm.lr=0.2")
    assert "--set does not go with a run folder" in message
    assert "tacit audit out/config.toml" in message
    # Without --iterations, what was recorded.
    printed = audit("out --no-attacks --adversary curious(1) --json")
    assert json.loads(printed)["iterations"] == 6


@pytest.mark.parametrize("early", [False, True])
def test_short_runs_are_audited_whole(tacit_here, audit, config, early):
    options = ["run.iterations_per_round=2", f"run.rounds={50 if early else 2}"]
    # Time only grows, so the first record stays the best one.
    options += ["stop.metric=wall_seconds", "stop.patience=2"] if early else []
    sets = [word for option in options for word in ("--set", option)]
    assert tacit_here("run", config, "--out", "short", *sets).code == 0
    printed = audit("short --no-attacks --adversary curious(1) --json")
    assert json.loads(printed)["iterations"] == 4


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("[transcript]\nfirst = 5\nlast = 2", ["(5, 2)"]),
        ("[transcript]\ninsides = [3]", ["client 3", "0 to 2"]),
        ("[transcript]\nclients = [9]", ["client 9", "0 to 2"]),
        ("[run.clip]\nbound = 0.0", ["clipping bound is 0.0", "above 0"]),
        ("[run.clip]\nbound = 1.0\nnorms = 1", ["'run.clip.norms'", "Did you mean 'norm'?"]),
    ],
)
def test_bad_values_in_a_configuration(refused, config, tmp_path, section, words):
    (tmp_path / config).write_text(f"{(tmp_path / config).read_text()}\n{section}\n")
    message = refused(f"run {config} --out out")
    assert message.startswith("Error: ")
    for word in words:
        assert word in message


# --- Clipping ---


def test_clipped_gradients_with_noise_in_every_iteration_have_a_guarantee(
    tacit_here, audit, config, tmp_path, history
):
    text = (tmp_path / config).read_text()
    (tmp_path / config).write_text(
        text.replace('name = "lppa"', 'name = "dp-dsgt"\ninject = "every"').replace("0.01", "2.0")
        + '\n[run.clip]\nbound = 0.5\nnorm = "l1"\n'
    )
    answer = tacit_here("run", config, "--out", "out", "--set", "run.allow_divergence=true")
    assert answer.code == 0, answer.err
    assert 'norm = "l1"' in (tmp_path / "out" / "config.toml").read_text()
    for source in ("out", config):
        printed = audit(f"{source} {QUICK} --adversary eavesdropper --out found")
        assert "NOISY: eavesdropper computes no gradient, difference or sum of client 0" in printed
        scope = "everything that eavesdropper+theta0 sees in the first 3 iterations"
        lines = " ".join(printed.split())
        assert f"for ideal real-valued noise, ε = 2.5 for {scope}" in lines
        assert "for the whole run of" in lines
        plain = json.loads((tmp_path / "found" / "audit.json").read_text())
        bounded = plain["adversaries"][0]["bounded"][0]
        assert bounded["epsilon"] == pytest.approx((2 * 3 - 1) * 2 * 0.5 / 2.0)
        assert bounded["delta"] == 0
    unclipped = tacit_here("run", config, "--out", "other", "--set", "run.clip.bound=1e9")
    assert unclipped.code == 0
    assert history("other") != history("out")  # clipping changes the run


# --- Resuming ---


@pytest.fixture
def stopping(recorded, tmp_path, monkeypatch):
    (tmp_path / "stopping_rule.py").write_text(STOPPING)
    monkeypatch.syspath_prepend(tmp_path)
    text = (tmp_path / recorded).read_text().replace('"lppa"', '"stopping_rule:Stopping"')
    (tmp_path / recorded).write_text(text.replace("last = 6", "last = 9"))
    return recorded


def transcript(folder):
    files = ("transcript.json", "transcript.safetensors")
    return {file: (folder / file).read_bytes() for file in files}


def test_a_resumed_run_has_the_same_transcript(tacit_here, audit, stopping, tmp_path, monkeypatch):
    assert tacit_here("run", stopping, "--out", "whole").code == 0
    whole = transcript(tmp_path / "whole")
    assert json.loads(whole["transcript.json"])["messages"][-1]["tick"] == 9
    monkeypatch.setenv("STOP_AT", "6")
    answer = tacit_here("run", stopping, "--out", "stopped")
    assert answer.code == 130
    assert "Stopped after iteration 7 of 10" in answer.err
    assert transcript(tmp_path / "stopped") != whole
    monkeypatch.delenv("STOP_AT")
    assert tacit_here("run", stopping, "--out", "stopped", "--resume").code == 0
    assert transcript(tmp_path / "stopped") == whole
    audit(f"stopped {QUICK} --adversary curious(1) --json")


@pytest.mark.parametrize("save", [1, 2])
def test_a_run_that_is_killed_while_saving_can_be_resumed(
    tacit_here, stopping, tmp_path, monkeypatch, save
):
    """Killed between saving the transcript and the checkpoint, in either order."""
    from tacit.record import checkpoint, transcript_files

    tacit_here("run", stopping, "--out", "whole")
    calls = {"checkpoint": 0, "transcript": 0}

    def killed(name, saving):
        def running(*arguments):
            calls[name] += 1
            # The second of a pair.
            if max(calls.values()) == save and sum(calls.values()) == 2 * save:
                raise SystemExit(9)
            return saving(*arguments)

        return running

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", killed("checkpoint", checkpoint.save))
        patch.setattr(transcript_files, "save", killed("transcript", transcript_files.save))
        assert tacit_here("run", stopping, "--out", "out").code == 9
    answer = tacit_here("run", stopping, "--out", "out", "--resume")
    assert answer.code == 0, answer.err
    assert transcript(tmp_path / "out") == transcript(tmp_path / "whole")


def test_help(audit):
    printed = audit("--help")
    for word in ("--adversary", "--victim", "--no-attacks", "--delta", "curious(1,4)+eavesdropper"):
        assert word in printed


# --- several algorithms ---------------------------------------------------------------------------


def test_several_algorithms_in_one_table(config, audit, written):
    line = f"{config} {QUICK} --adversary eavesdropper --algorithms dsgt,lppa,lppa+fresh=true"
    printed = " ".join(audit(f"{line} --out found").split())
    for label, headline in (("dsgt", "exposed"), ("lppa", "partly exposed")):
        assert f"│ {label} │ eavesdropper │ {headline} │" in printed
        plain, page = written(f"found/{label}")
        assert plain["algorithm"] == label
        assert page.lower().startswith("<!doctype html>")
    assert written("found/lppa+fresh=true")[0]["options"].count("fresh=True") == 1
    plain = json.loads(audit(f"{line} --json --out again"))
    assert list(plain) == ["dsgt", "lppa", "lppa+fresh=true"]
    assert plain["dsgt"]["summary"].startswith("An eavesdropper can compute gradients")


@pytest.mark.parametrize(
    ("algorithms", "words"),
    [("dsgt,nothing", "nothing"), ("lppa+speed=2", "speed"), (",", "names none")],
)
def test_algorithms_that_cannot_be_audited(config, refused, algorithms, words):
    assert words in refused(f"audit {config} {QUICK} --algorithms {algorithms} --out found")


def test_a_run_has_one_algorithm(config, tacit_here, refused):
    assert tacit_here("run", config, "--out", "r").code == 0
    message = refused(f"audit r {QUICK} --algorithms dsgt")
    assert "does not go with a run folder" in message
    assert "config.toml" in message
