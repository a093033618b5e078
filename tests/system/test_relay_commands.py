"""Relays on the command line: members without a port, `add-relay`, `relay`, `remove-relay`."""

import json

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

    def invoke(line, *more):
        result = CliRunner().invoke(app, [*line.split(), *more])
        error = result.exception
        if error is not None and not isinstance(error, (TacitError, SystemExit)):
            raise error
        code = error.exit_code if isinstance(error, TacitError) else result.exit_code
        return code, result.output + (str(error) if isinstance(error, TacitError) else "")

    return invoke


def test_the_way_of_a_relay(run, tmp_path):
    for name in "abc":
        assert run(f"member init {name} --name {name} --outgoing")[0] == 0
    requests = " ".join(f"--request {name}/{name}.request" for name in "abc")
    code, text = run(f"federation create clinic {requests}", *PLAN)
    assert code == 0
    assert "No one can connect to a, b, c without a relay" in text
    assert "reached by no one" in run("federation show clinic")[1]
    code, text = run("federation add-relay clinic hub 127.0.0.1:17400 --later")
    assert code == 0
    assert "tacit relay RELAY-FOLDER" in text
    shown = json.loads(run("federation show clinic --json")[1])
    assert {one["reach"] for one in shown["members"]} == {"outgoing"}
    [relay] = shown["relays"]
    assert (relay["name"], relay["address"]) == ("hub", "127.0.0.1:17400")
    assert relay["certificate"]["name"] == "hub"
    assert "a, b, c: reached through hub" in run("federation show clinic")[1]
    assert "relay hub: 127.0.0.1:17400" in run("federation log clinic")[1]
    # The bundles, which were made before, name the relay too.
    fingerprint = shown["authority"]["fingerprint"]
    assert run("member join a clinic/bundles/a.bundle --authority", fingerprint)[0] == 0
    assert "reached through hub" in run("federation show a")[1]
    assert run("federation renew clinic hub --later")[0] == 0
    assert run("federation address clinic hub 127.0.0.1:17401 --later")[0] == 0
    assert run("federation address clinic b 127.0.0.1:17402 --later")[0] == 0
    shown = json.loads(run("federation show clinic --json")[1])
    assert [one["reach"] for one in shown["members"]] == ["outgoing", "direct", "outgoing"]
    assert shown["relays"][0]["address"] == "127.0.0.1:17401"
    code, text = run("federation remove-relay clinic hub --later")
    assert "No one can connect to a, c without a relay" in text
    assert json.loads(run("federation show clinic --json")[1])["relays"] == []
    # Its folder is of no use any more.
    code, text = run("relay clinic/relays/hub")
    assert code == 2
    assert "not a relay of" in text


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("member init x --name x", "No address is given"),
        ("member init x --name x --outgoing --address h:1", "Both --address and --outgoing"),
        ("federation add-relay clinic a h:1", "a is or was the name of a member or relay"),
        ("federation add-relay clinic hub outgoing", "'outgoing' is not an address"),
        ("federation remove-relay clinic hub", "There is no relay hub"),
        ("relay clinic/nodes/a", "relay.json"),
        ("relay nothing", "is not the folder of a node"),
    ],
)
def test_mistakes(run, line, why):
    code, _ = run("federation create clinic --nodes a=outgoing,b=h:1,c=outgoing", *PLAN)
    assert code == 0
    code, text = run(line)
    assert code == 2
    assert why in text


def test_members_without_a_port_share_no_address(run):
    assert run("federation create clinic --nodes a=outgoing,b=outgoing,c=outgoing", *PLAN)[0] == 0
    code, text = run("federation add clinic d=outgoing --later")
    assert code == 0
    assert "without a relay" in text
