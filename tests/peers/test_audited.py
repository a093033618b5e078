"""The audit of a federation, from the folder of its operator or of a node."""

import json
import re

import pytest
from chaos import run_in_threads
from federations import PRIVATE, create, federation, plan
from typer.testing import CliRunner

import tacit
from tacit.cli.app import app
from tacit.config.loading import make_config, with_keys
from tacit.core.errors import Misuse
from tacit.peer.federation.audited import AuditedFederation, stand_in_task

RULE = {"name": "lppa", "lr": 0.05}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return federation(tmp_path_factory.mktemp("audited") / "home", plan(RULE, hidden=3))


def run(*arguments):
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


def test_a_members_folder_audits_what_its_neighbours_learn(home):
    before, name, after, *_ = home.manifest().names
    result = run(home.node(name).path, "-n", 3)
    assert result.exit_code == 0, result.output
    stored = json.loads((home.node(name).path / "audit" / "audit.json").read_text())
    assert stored["victims"] == [1]
    assert [one["adversary"] for one in stored["adversaries"]][-1] == f"curious({before},{after})"
    assert f"of client {name}" in result.output
    assert "--share-scores" not in " ".join(stored["answer"]["limits"])


def test_members_are_named(home):
    audited = AuditedFederation.load(home.path)
    b = audited.manifest.names[1]
    assert audited.victims([b, "0"]) == [1, 0]
    assert audited.victims([]) == [0]
    assert AuditedFederation.load(home.node(b).path).victims([]) == [1]
    with pytest.raises(Misuse, match="is not a client"):
        audited.victims(["99"])


def test_names_that_are_numbers_are_not_mistaken_for_positions(tmp_path):
    nodes = {name: f"127.0.0.1:{1024 + at}" for at, name in enumerate(["2", "3", "1", "0"])}
    config = with_keys(plan(RULE, hidden=3, clients=4), "federation", share_metrics=True)
    home = create(tmp_path / "home", "clinics", nodes, config)
    options = ["-n", 2, "--out", tmp_path / "audit"]
    assert run(home.node("3").path, *options).exit_code == 0
    stored = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert stored["victims"] == [1]
    assert stored["adversaries"][-1]["adversary"] == "curious(2,1)"
    # Scores have no noise, and the manifest allows to share them.
    assert "--share-scores" in stored["answer"]["limits"][-1]
    result = run(home.path, *options, "--victim", "0", "--adversary", "curious(2)")
    assert result.exit_code == 0, result.output
    stored = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert (stored["victims"], stored["adversaries"][0]["adversary"]) == ([3], "curious(2)")
    assert "curious(2) " in result.output
    assert "of client 0" in result.output
    assert run(home.path, "--victim", "4").exit_code != 0


@pytest.mark.parametrize("rule", [RULE, PRIVATE], ids=lambda rule: rule["name"])
def test_the_verdicts_are_those_on_real_data(tmp_path, rule):
    config = plan(rule, hidden=3)
    audited = AuditedFederation.load(federation(tmp_path / "home", config).path)
    assert stand_in_task(audited.manifest).clients == 5
    options = {"iterations": 3, "attacks": False, "heat_map": False}
    adversaries = audited.adversaries(1)
    found = tacit.audit(audited.subject(), adversaries, 1, **options)
    expected = tacit.audit(config, adversaries, 1, **options)
    summaries = [
        [verdict.summary for result in one.results for verdict in result.verdicts]
        for one in (found, expected)
    ]
    # The simulator's clients have numbers, the members names: n0, n1 and so on.
    assert [re.sub(r"\bn(\d)", r"\1", text) for text in summaries[0]] == summaries[1]
    headlines = [result.verdicts[0].headline for result in found.results]
    surrounded = {"lppa": ["partly exposed", "exposed"], "private-sgd": ["noisy sum", "noisy"]}
    assert headlines == surrounded[rule["name"]]


@pytest.mark.parametrize("option", [["--attacks"], ["--canaries"], ["--set", "algorithm.lr=1"]])
def test_what_needs_data_or_another_manifest_is_refused(home, option):
    result = run(home.path, *option)
    assert isinstance(result.exception, Misuse)
    assert "do not go with a federation" in str(result.exception)


def test_code_of_the_manifest_needs_permission(tmp_path):
    config = plan(RULE, hidden=3).as_dict()
    config["model"] = {"name": "subprocess:Popen"}
    home = federation(tmp_path / "home", make_config(config))
    result = run(home.path)
    assert isinstance(result.exception, Misuse)
    assert "--allow-code" in str(result.exception)


@pytest.mark.parametrize("rule", [RULE, PRIVATE], ids=lambda rule: rule["name"])
def test_the_report_of_a_node(tmp_path, rule):
    home = federation(tmp_path / "home", plan(rule, rounds=2, hidden=3, clients=3), clients=3)
    early = run_report(home.node("n1").path)
    assert early.exit_code == 0, early.output
    page = (home.node("n1").path / "report.html").read_text()
    assert "not finished" in page
    run_in_threads(home)
    result = run_report(home.node("n1").path)
    assert result.exit_code == 0, result.output
    page = (home.node("n1").path / "report.html").read_text()
    assert "<dd>finished</dd>" in page
    assert "Accuracy on own data" in page
    assert "Audit: verdict" in page
    assert ("of 8 at" in page) == (rule is PRIVATE)
    damaged = home.node("n1").run / "history.jsonl"
    damaged.write_text("{}\n")
    assert isinstance(run_report(home.node("n1").path).exception, Misuse)


def run_report(folder):
    return CliRunner().invoke(app, ["report", str(folder)])
