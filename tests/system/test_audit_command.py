"""`tacit audit` of a configuration and of a run: output, files and errors."""

import json
import re
from pathlib import Path

import pytest

SECTIONS = ("verdict", "what is proved", "what is bounded", "what is measured", "assumptions")
QUICK = ("--no-attacks", "-n", "3")
RECORDED = "\n[transcript]\nlast = 6\ninsides = [1]\n"
STOPPING = """
import os, signal
from dataclasses import dataclass
from tacit.algorithms.lppa import LPPA
from tacit.algorithms.tracking import Tracking

@dataclass(frozen=True)
class Stopping(LPPA):
    name = "stopping"

    def start(self, here) -> Tracking:
        return super().start(here)

    def step(self, s: Tracking, here) -> Tracking:
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
        assert not list((tmp_path / folder).glob("*.part"))
        plain = json.loads(
            (tmp_path / folder / "audit.json").read_text(), parse_constant=pytest.fail
        )
        return plain, (tmp_path / folder / "report.html").read_text()

    return reading


@pytest.fixture
def refused(tacit_here, contents):
    """Run a command that must fail and write nothing; returns its message."""

    def running(*arguments):
        before = contents()
        answer = tacit_here(*arguments)
        assert (answer.code, answer.out) == (2, "")
        assert "Traceback" not in answer.err
        assert {
            name: text for name, text in contents().items() if "__pycache__" not in name
        } == before
        return answer.err

    return running


def check_page(page, pictures):
    for section in SECTIONS:
        assert f"Audit: {section}" in page
    assert page.count("<svg") >= pictures
    assert not re.search(r"\bnan\b", page, re.IGNORECASE)
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)
    assert "A failed attack proves nothing" in page


def test_a_configuration_is_audited_with_attacks(tacit_here, config, written, tmp_path):
    options = ["-n", "2", "--seconds", "1", "--restarts", "1", "--set", "run.batch_size=1"]
    answer = tacit_here("audit", config, "--adversary", "curious(1,2)", *options)
    assert answer.code == 0, answer.err
    plain, page = written("runs/audit")
    assert "Numbers: runs/audit/audit.json" in answer.out
    assert "Report: runs/audit/report.html" in answer.out
    assert "EXPOSED: curious(1,2) computes 2 of 3 gradients of client 0 exactly" in answer.out
    for word in (
        "proved",
        "bounded",
        "measured",
        "no differential-privacy guarantee",
        "exact shortcut",
    ):
        assert word in answer.out
    assert re.search(r"membership by loss: AUC 0\.\d+", answer.out)
    assert "A failed attack proves nothing" in answer.out

    assert (plain["algorithm"], plain["iterations"], plain["victims"]) == ("lppa", 2, [0])
    (view,) = plain["adversaries"]
    assert view["verdict"][0]["headline"] == "exposed"
    gradient = view["measured"]["inversion"][0]
    assert (gradient["evidence"], gradient["method"]) == ("gradient", "exact shortcut")
    assert gradient["score"]["reading"] == "recovered"
    assert gradient["score"]["attack"]["ssim"] > 0.99 > gradient["score"]["prior_mean"]["ssim"]
    assert {one["score"] for one in view["measured"]["membership"]} >= {"loss", "likelihood ratio"}
    check_page(page, pictures=4)  # who learns what, what is known when, the digit, the curves
    assert "Audit of lppa on mnist-mini" in page
    assert "recovered" in page

    again = tacit_here(
        "audit", config, *QUICK, "--adversary", "eavesdropper"
    )  # nothing is overwritten
    assert "Numbers: runs/audit-2/audit.json" in again.out
    assert written("runs/audit")[0] == plain


def test_default_adversaries_and_only_proofs(tacit_here, config, written):
    answer = tacit_here("audit", config, *QUICK, "--out", "here")
    assert answer.code == 0, answer.err
    plain, page = written("here")
    assert [view["adversary"] for view in plain["adversaries"]] == [
        "curious(1)", "curious(1,2)", "eavesdropper",
    ]  # fmt: skip
    assert [view["verdict"][0]["headline"] for view in plain["adversaries"]] == [
        "partly exposed", "exposed", "partly exposed",
    ]  # fmt: skip
    for view in plain["adversaries"]:
        assert view["measured"] == {"inversion": [], "membership": []}
        assert view["bounded"][0]["epsilon"] is None
        assert view["bounded"][0]["one_message_alone"] is None  # nothing is clipped
    assert plain["notes"] == []
    assert plain["exposure"]["learns"][1][0] == "difference"
    check_page(page, pictures=4)
    for word in ("PARTLY EXPOSED", "gradient differences of client 0 exactly", "none"):
        assert word in answer.out
    assert "membership" not in answer.out


def test_json_output(tacit_here, config, written):
    named = [
        "--adversary",
        "curious(1)",
        "--adversary",
        "curious(2)+eavesdropper",
        "--victim",
        "0",
        "--victim",
        "2",
    ]
    answer = tacit_here("audit", config, *QUICK, *named, "--json", "--out", "here")
    assert answer.code == 0, answer.err
    plain = json.loads(answer.out, parse_constant=pytest.fail)
    assert plain == written("here")[0]
    assert [view["adversary"] for view in plain["adversaries"]] == [
        "curious(1)",
        "curious(2)+eavesdropper",
    ]
    assert [[words["victim"] for words in view["verdict"]] for view in plain["adversaries"]] == [
        [0, 2],
        [0],
    ]


def test_overrides_change_what_is_audited(tacit_here, config):
    answer = tacit_here(
        "audit", config, *QUICK, "--json", "--out", "a", "--set", "algorithm.fresh=true"
    )
    views = json.loads(answer.out)["adversaries"]
    assert views[0]["proved"][0]["difference"]["status"][0] == "noisy"


def test_a_note_explains_why_a_task_is_not_attacked(tacit_here, config, tmp_path):
    text = (tmp_path / config).read_text()
    text = (
        text[text.index("[graph]") :]
        .replace("batch_size = 16\n", "")
        .replace("clients = 3", "clients = 4")
    )
    (tmp_path / config).write_text('[task]\nname = "localization"\n\n' + text)
    answer = tacit_here("audit", config, "-n", "2")
    assert answer.code == 0, answer.err
    assert "Not measured: inversion needs a model that classifies inputs" in answer.out


def test_a_run_is_audited_from_its_transcript_or_by_repeating_it(
    tacit_here, config, written, tmp_path
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
    for source, out in (("with", "with"), ("without", "without"), (config, "of")):
        options = ["--adversary", "curious(1,2)", "-n", "3", "--seconds", "1", "--restarts", "1"]
        answer = tacit_here(
            "audit", source, *options, *(["--out", out] if source == config else [])
        )
        assert answer.code == 0, answer.err
        found[source], page = written(out)
        check_page(page, pictures=4)
        assert ("Accuracy" in page) == (source != config)  # a run's report keeps its own sections
    (first,) = found["with"]["adversaries"]
    assert [one["method"] for one in first["measured"]["inversion"]] == [
        "exact shortcut",
        "exact shortcut",
    ]
    for source in ("without", config):
        assert found[source]["adversaries"] == [first]
        assert found[source]["exposure"] == found["with"]["exposure"]


def test_default_adversaries_are_those_that_were_recorded(tacit_here, recorded):
    tacit_here("run", recorded, "--out", "out")
    answer = tacit_here("audit", "out", *QUICK, "--json")
    assert answer.code == 0, answer.err
    plain = json.loads(answer.out)
    assert [view["adversary"] for view in plain["adversaries"]] == ["curious(1)", "eavesdropper"]
    assert any(note.startswith("what curious(1,2) learns") for note in plain["notes"])


# --- Errors ---


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--adversary", "nosy"], ["'nosy'", "eavesdropper", "curious(0)"]),
        (["--adversary", "curious(1)+"], ["not understood at ''"]),
        (["--adversary", "curious(-1)"], ["curious(-1)"]),
        (["--adversary", "curious(0)"], ["are corrupt", "honest client"]),
        (["--adversary", "curious(3)"], ["client 3", "0 to 2"]),
        (["--adversary", "curious(0,1,2)"], ["every client"]),
        (["--adversary", "server"], ["server sees no message", "neighbour"]),
        (["--victim", "3"], ["no client 3", "0 to 2"]),
        (["--delta", "0"], ["delta is 0.0", "above 0 and below 1"]),
        (["--set", "algorithm.lr=-1"], ["[algorithm]", "positive"]),
    ],
)
def test_misuse_is_refused_and_leaves_nothing(refused, config, options, words):
    message = refused("audit", config, *QUICK, *options)
    assert message.startswith("Error: ")
    for word in words:
        assert word in message


def test_numbers_out_of_range_are_refused_with_the_usage(refused, config):
    for options in (["-n", "0"], ["--seconds", "0"], ["--restarts", "0"], ["--victim", "x"]):
        assert "Usage: tacit audit" in refused("audit", config, *options)


def test_the_source_must_be_a_configuration_or_a_run(refused, tmp_path):
    assert "no configuration file" in refused("audit", "absent.toml")
    (tmp_path / "empty").mkdir()
    assert "not a run folder" in refused("audit", "empty")


@pytest.fixture
def finished(tacit_here, recorded, tmp_path):
    assert tacit_here("run", recorded, "--out", "out").code == 0
    return tmp_path / "out"


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip(path):
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def rewrite(path):
    path.write_text(path.read_text().replace('"tag": "gamma"', '"tag": "theta"', 1))


def other_rate(path):
    path.write_text(path.read_text().replace("lr = 0.1", "lr = 0.2"))


def test_a_damaged_transcript_is_refused(refused, finished):
    for file, damage, words in (
        ("transcript.safetensors", cut, "transcript.safetensors was cut short or altered"),
        ("transcript.safetensors", flip, "transcript.safetensors was cut short or altered"),
        ("transcript.safetensors", Path.unlink, "transcript in out cannot be read"),
        ("transcript.json", cut, "transcript in out cannot be read"),
        ("transcript.json", rewrite, "transcript.json was altered"),
        ("config.toml", other_rate, "another configuration"),
    ):
        before = (finished / file).read_bytes()
        damage(finished / file)
        message = refused("audit", "out", *QUICK)
        assert words in message
        assert "Record the run again" in message
        (finished / file).write_bytes(before)


def test_missing_recordings_are_refused(refused, tacit_here, finished):
    message = refused("audit", "out", "-n", "7", "--no-attacks", "--adversary", "curious(1)")
    assert "7 iterations" in message
    assert "the transcript has 6" in message
    message = refused(
        "audit", "out", *QUICK, "--adversary", "curious(1)", "--adversary", "curious(1,2)"
    )
    assert "curious(1,2) needs what clients 2 hold, which was not recorded" in message
    assert "insides = [2]" in message
    assert "are corrupt" in refused(
        "audit", "out", *QUICK, "--adversary", "curious(1)", "--victim", "1"
    )
    message = refused("audit", "out", *QUICK, "--set", "algorithm.lr=0.2")
    assert "--set does not go with a run folder" in message
    assert "tacit audit out/config.toml" in message
    answer = tacit_here(
        "audit", "out", "-n", "6", "--no-attacks", "--adversary", "curious(1)", "--json"
    )
    assert json.loads(answer.out)["iterations"] == 6


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("[transcript]\nfirst = -1", ["transcript.first = -1"]),
        ("[transcript]\nfirst = 5\nlast = 2", ["(5, 2)"]),
        ("[transcript]\ninsides = [3]", ["client 3", "0 to 2"]),
        ("[transcript]\nclients = [9]", ["client 9", "0 to 2"]),
        ("[transcript]\ninside = [1]", ["'transcript.inside'", "Did you mean 'insides'?"]),
        ("[run.clip]\nbound = 0.0", ["clipping bound is 0.0", "above 0"]),
        ("[run.clip]\nbound = -1.0", ["clipping bound is -1.0"]),
        ("[run.clip]\nbound = inf", ["clipping bound is inf"]),
        ('[run.clip]\nbound = "x"', ["run.clip.bound = 'x'"]),
        ('[run.clip]\nbound = 1.0\nnorm = "l3"', ["run.clip.norm = 'l3'", "'l1' or 'l2'"]),
        ('[run.clip]\nnorm = "l1"', ["run.clip.bound is not set"]),
        ("[run.clip]\nbound = 1.0\nnorms = 1", ["'run.clip.norms'", "Did you mean 'norm'?"]),
    ],
)
def test_bad_values_in_a_configuration(refused, config, tmp_path, section, words):
    (tmp_path / config).write_text(f"{(tmp_path / config).read_text()}\n{section}\n")
    message = refused("run", config, "--out", "out")
    assert message.startswith("Error: ")
    for word in words:
        assert word in message


# --- Clipping ---


def test_clipped_gradients_with_noise_in_every_iteration_have_a_guarantee(
    tacit_here, config, tmp_path, history
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
        answer = tacit_here(
            "audit", source, *QUICK, "--adversary", "eavesdropper", "--out", "found"
        )
        assert answer.code == 0, answer.err
        assert (
            "NOISY: eavesdropper computes no gradient, difference or sum of client 0 exactly"
            in answer.out
        )
        printed = " ".join(answer.out.split())
        assert (
            "bounded ε = 2.5 for everything that eavesdropper+theta0 sees in the first 3 iterations"
            in printed
        )
        bounded = json.loads((tmp_path / "found" / "audit.json").read_text())["adversaries"][0][
            "bounded"
        ][0]
        assert (bounded["epsilon"], bounded["delta"]) == (
            pytest.approx((2 * 3 - 1) * 2 * 0.5 / 2.0),
            0,
        )
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
    return {
        file: (folder / file).read_bytes() for file in ("transcript.json", "transcript.safetensors")
    }


def test_a_resumed_run_has_the_same_transcript(tacit_here, stopping, tmp_path, monkeypatch):
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
    answer = tacit_here("audit", "stopped", *QUICK, "--adversary", "curious(1)", "--json")
    assert answer.code == 0, answer.err


def test_resuming_from_before_the_end_of_the_transcript(tacit_here, stopping, tmp_path):
    tacit_here("run", stopping, "--out", "out")
    whole = transcript(tmp_path / "out")
    max((tmp_path / "out" / "checkpoints").iterdir()).unlink()
    answer = tacit_here("run", stopping, "--out", "out", "--resume")
    assert "resumed after iteration 5" in answer.err
    assert transcript(tmp_path / "out") == whole


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
            if (
                max(calls.values()) == save and sum(calls.values()) == 2 * save
            ):  # the second of a pair
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


def test_help(tacit_here):
    answer = tacit_here("audit", "--help")
    assert answer.code == 0
    for word in ("--adversary", "--victim", "--no-attacks", "--delta", "curious(1,4)+eavesdropper"):
        assert word in answer.out


def test_more_iterations_than_the_run_has_are_refused(config, refused):
    message = refused("audit", config, "-n", "100000")
    assert "The audit needs 100000 iterations, but the run has" in message
