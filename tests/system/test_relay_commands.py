"""Relays on the command line: members without a port, `add-relay`, `relay`, `remove-relay`."""

import json

import pytest

PLAN = ("--set", "algorithm.lr=0.1", "--set", "run.iterations_per_round=5")


def test_the_way_of_a_relay(type_line, tmp_path):
    for name in "abc":
        assert type_line(f"member init {name} --name {name} --outgoing")[0] == 0
    requests = " ".join(f"--request {name}/{name}.request" for name in "abc")
    code, text = type_line(f"federation create clinic {requests}", *PLAN)
    assert code == 0
    assert "No one can connect to a, b, c without a relay" in text
    assert "reached by no one" in type_line("federation show clinic")[1]
    code, text = type_line("federation add-relay clinic hub 127.0.0.1:17400 --later")
    assert code == 0
    assert "tacit relay RELAY-FOLDER" in text
    shown = json.loads(type_line("federation show clinic --json")[1])
    assert {one["reach"] for one in shown["members"]} == {"outgoing"}
    [relay] = shown["relays"]
    assert (relay["name"], relay["address"]) == ("hub", "127.0.0.1:17400")
    assert relay["certificate"]["name"] == "hub"
    assert "a, b, c: reached through hub" in type_line("federation show clinic")[1]
    assert "relay hub: 127.0.0.1:17400" in type_line("federation log clinic")[1]
    # The bundles, which were made before, name the relay too.
    fingerprint = shown["authority"]["fingerprint"]
    assert type_line("member join a clinic/bundles/a.bundle --authority", fingerprint)[0] == 0
    assert "reached through hub" in type_line("federation show a")[1]
    assert type_line("federation renew clinic hub --later")[0] == 0
    assert type_line("federation address clinic hub 127.0.0.1:17401 --later")[0] == 0
    assert type_line("federation address clinic b 127.0.0.1:17402 --later")[0] == 0
    shown = json.loads(type_line("federation show clinic --json")[1])
    assert [one["reach"] for one in shown["members"]] == ["outgoing", "direct", "outgoing"]
    assert shown["relays"][0]["address"] == "127.0.0.1:17401"
    code, text = type_line("federation remove-relay clinic hub --later")
    assert "No one can connect to a, c without a relay" in text
    assert json.loads(type_line("federation show clinic --json")[1])["relays"] == []
    # Its folder is of no use any more.
    code, text = type_line("relay clinic/relays/hub")
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
def test_mistakes(type_line, line, why):
    code, _ = type_line("federation create clinic --nodes a=outgoing,b=h:1,c=outgoing", *PLAN)
    assert code == 0
    code, text = type_line(line)
    assert code == 2
    assert why in text


def test_members_without_a_port_share_no_address(type_line):
    nodes = "a=outgoing,b=outgoing,c=outgoing"
    assert type_line(f"federation create clinic --nodes {nodes}", *PLAN)[0] == 0
    code, text = type_line("federation add clinic d=outgoing --later")
    assert code == 0
    assert "without a relay" in text
