"""`tacit member` and the commands of the operator that answer it: keys that never travel."""

import json
import re

import pytest

PLAN = ("--set", "algorithm.lr=0.1", "--set", "run.iterations_per_round=5")


@pytest.fixture
def clinic(type_line):
    """The requests of a, b and c, and the federation made from them; returns what was printed."""
    printed = {}
    for number, name in enumerate("abc"):
        code, printed[name] = type_line(
            f"member init {name} --name {name} --address 127.0.0.1:740{number}"
        )
        assert code == 0
    requests = " ".join(f"--request {name}/{name}.request" for name in "abc")
    code, printed["create"] = type_line(f"federation create clinic {requests}", *PLAN)
    assert code == 0, printed["create"]
    return printed


def fingerprint(text, digits):
    return re.search(rf"([0-9a-f]{{2}}:){{{digits - 1}}}[0-9a-f]{{2}}", text)[0]


def test_the_way_of_a_member(type_line, clinic, tmp_path):
    authority = fingerprint(clinic["create"], 32)
    assert "clinic/bundles/a.bundle" in clinic["create"]
    assert "private keys of the nodes were made on this machine" not in clinic["create"]
    assert not list((tmp_path / "clinic" / "nodes").rglob("*.key"))
    # The fingerprint of the authority has to be confirmed.
    code, text = type_line("member join a clinic/bundles/a.bundle", answer="n\n")
    assert code == 2
    assert authority in text
    assert not (tmp_path / "a" / "ca.pem").exists()
    code, text = type_line(f"member join a clinic/bundles/a.bundle --authority {'00:' * 31}00")
    assert (code, "The authority in the bundle has the fingerprint" in text) == (2, True)
    code, text = type_line("member join a clinic/bundles/a.bundle", answer="y\n")
    assert code == 0, text
    code, text = type_line(f"member join b clinic/bundles/b.bundle --authority {authority.upper()}")
    assert code == 0, text
    code, text = type_line("member join b clinic/bundles/a.bundle")
    assert (code, "It is for 'a'" in text) == (2, True)
    # A renewal needs no confirmation.
    assert type_line("member renew a")[0] == 0
    code, text = type_line("federation renew clinic --request a/a.request --days 9 --later")
    assert code == 0, text
    assert "clinic/bundles/a.bundle" in text
    code, text = type_line("member join a clinic/bundles/a.bundle")
    assert code == 0, text
    assert type_line("federation show a")[0] == 0


def test_the_operator_sees_the_fingerprint_of_each_request(clinic):
    for name in "abc":
        assert f"{name}: request {fingerprint(clinic[name], 16)}" in clinic["create"]


def test_the_log_of_changes(type_line, clinic):
    assert type_line("federation address clinic b moved.example.org:7400 --later")[0] == 0
    code, text = type_line("federation revoke clinic c --reason stolen --later")
    assert code == 0, text
    stays = "certificates of c are revoked. It stays in the roster: the others cannot train without"
    assert stays in text
    assert "a, b would have fewer than 2 neighbours" in text
    assert type_line("federation set clinic --min-neighbours 1 --later")[0] == 0
    assert type_line("federation remove clinic c --later")[0] == 0
    code, text = type_line("federation log clinic")
    assert code == 0
    described = [line.split("  ")[-1] for line in text.splitlines()[:-1]]
    assert described[0] == "roster of generation 1: a, b, c"
    assert described[4:] == [
        "address of b: moved.example.org:7400",
        "all earlier certificates of c revoked: stolen",
        "roster of generation 2: a, b, c",
        "roster of generation 3: a, b",
    ]
    entries = json.loads(type_line("federation log clinic --json")[1])
    assert [entry["number"] for entry in entries] == list(range(1, 9))
    assert entries[-1]["digest"] in text


def test_one_way_to_add_a_node(type_line, clinic):
    assert type_line("member init d --name d --address 127.0.0.1:7409")[0] == 0
    code, text = type_line("federation add clinic d=h:1 --request d/d.request --later")
    assert (code, "Both a node and a request" in text) == (2, True)
    code, text = type_line("federation add clinic")
    assert (code, "No node is given" in text) == (2, True)
    code, text = type_line("federation add clinic --request d/d.request --later")
    assert code == 0, text
    assert fingerprint(text, 32) == fingerprint(clinic["create"], 32)
    assert type_line("member join d clinic/bundles/d.bundle", answer="y\n")[0] == 0


def test_without_a_federation(type_line, tmp_path):
    assert type_line("federation log nothing")[0] == 2
    assert type_line("member renew nothing")[0] == 2
    code, text = type_line("federation create clinic", *PLAN)
    assert (code, "needs two or more nodes" in text) == (2, True)
    assert not (tmp_path / "clinic").exists()
