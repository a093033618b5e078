"""`tacit member` and the commands of the operator that answer it: keys that never travel."""

import json
import re

import pytest
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.core.errors import TacitError

PLAN = ("--set", "algorithm.lr=0.1", "--set", "run.iterations_per_round=5")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run `tacit` in the test's folder; returns the exit code and all output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")

    def invoke(line, *more, answer=None):
        result = CliRunner().invoke(app, [*line.split(), *more], input=answer)
        error = result.exception
        if error is not None and not isinstance(error, (TacitError, SystemExit)):
            raise error
        code = error.exit_code if isinstance(error, TacitError) else result.exit_code
        text = result.output + (str(error) if isinstance(error, TacitError) else "")
        return code, text

    return invoke


@pytest.fixture
def clinic(run):
    """The requests of a, b and c, and the federation made from them; returns what was printed."""
    printed = {}
    for number, name in enumerate("abc"):
        code, printed[name] = run(
            f"member init {name} --name {name} --address 127.0.0.1:740{number}"
        )
        assert code == 0
    requests = " ".join(f"--request {name}/{name}.request" for name in "abc")
    code, printed["create"] = run(f"federation create clinic {requests}", *PLAN)
    assert code == 0, printed["create"]
    return printed


def fingerprint(text, digits):
    return re.search(rf"([0-9a-f]{{2}}:){{{digits - 1}}}[0-9a-f]{{2}}", text)[0]


def test_the_way_of_a_member(run, clinic, tmp_path):
    authority = fingerprint(clinic["create"], 32)
    assert "clinic/bundles/a.bundle" in clinic["create"]
    assert "private keys of the nodes were made on this machine" not in clinic["create"]
    assert not list((tmp_path / "clinic" / "nodes").rglob("*.key"))
    # The fingerprint of the authority has to be confirmed.
    code, text = run("member join a clinic/bundles/a.bundle", answer="n\n")
    assert code == 2
    assert authority in text
    assert not (tmp_path / "a" / "ca.pem").exists()
    code, text = run(f"member join a clinic/bundles/a.bundle --authority {'00:' * 31}00")
    assert (code, "The authority in the bundle has the fingerprint" in text) == (2, True)
    code, text = run("member join a clinic/bundles/a.bundle", answer="y\n")
    assert code == 0, text
    code, text = run(f"member join b clinic/bundles/b.bundle --authority {authority.upper()}")
    assert code == 0, text
    code, text = run("member join b clinic/bundles/a.bundle")
    assert (code, "It is for 'a'" in text) == (2, True)
    # A renewal needs no confirmation.
    assert run("member renew a")[0] == 0
    code, text = run("federation renew clinic --request a/a.request --days 9 --later")
    assert code == 0, text
    assert "clinic/bundles/a.bundle" in text
    code, text = run("member join a clinic/bundles/a.bundle")
    assert code == 0, text
    assert run("federation show a")[0] == 0


def test_the_operator_sees_the_fingerprint_of_each_request(clinic):
    for name in "abc":
        assert f"{name}: request {fingerprint(clinic[name], 16)}" in clinic["create"]


def test_the_log_of_changes(run, clinic):
    assert run("federation address clinic b moved.example.org:7400 --later")[0] == 0
    code, text = run("federation revoke clinic c --reason stolen --later")
    assert code == 0, text
    stays = "certificates of c are revoked. It stays in the roster: the others cannot train without"
    assert stays in text
    assert "a, b would have fewer than 2 neighbours" in text
    assert run("federation set clinic --min-neighbours 1 --later")[0] == 0
    assert run("federation remove clinic c --later")[0] == 0
    code, text = run("federation log clinic")
    assert code == 0
    described = [line.split("  ")[-1] for line in text.splitlines()[:-1]]
    assert described[0] == "roster of generation 1: a, b, c"
    assert described[4:] == [
        "address of b: moved.example.org:7400",
        "all earlier certificates of c revoked: stolen",
        "roster of generation 2: a, b, c",
        "roster of generation 3: a, b",
    ]
    entries = json.loads(run("federation log clinic --json")[1])
    assert [entry["number"] for entry in entries] == list(range(1, 9))
    assert entries[-1]["digest"] in text


def test_one_way_to_add_a_node(run, clinic):
    assert run("member init d --name d --address 127.0.0.1:7409")[0] == 0
    code, text = run("federation add clinic d=h:1 --request d/d.request --later")
    assert (code, "Both a node and a request" in text) == (2, True)
    code, text = run("federation add clinic")
    assert (code, "No node is given" in text) == (2, True)
    code, text = run("federation add clinic --request d/d.request --later")
    assert code == 0, text
    assert fingerprint(text, 32) == fingerprint(clinic["create"], 32)
    assert run("member join d clinic/bundles/d.bundle", answer="y\n")[0] == 0


def test_without_a_federation(run, tmp_path):
    assert run("federation log nothing")[0] == 2
    assert run("member renew nothing")[0] == 2
    code, text = run("federation create clinic", *PLAN)
    assert (code, "needs two or more nodes" in text) == (2, True)
    assert not (tmp_path / "clinic").exists()
