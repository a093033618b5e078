"""`tacit audit` of malicious clients: the table, and requests that are refused."""

import json

import pytest

CONFIG = """
[data]
name = "mnist-mini"
limit_train = 150
limit_test = 100

[model]
name = "mlp"
hidden = [32]

[graph]
kind = "ring"
clients = 5

[algorithm]
name = "dsg"
lr = 0.1

[run]
rounds = 2
batch_size = 16
"""


@pytest.fixture
def audit(tacit_here, tmp_path):
    (tmp_path / "active.toml").write_text(CONFIG)

    def running(adversary, *arguments):
        return tacit_here("audit", "active.toml", "--adversary", adversary, "-n", 2, *arguments)

    return running


def test_passive_and_active_in_one_table(audit, tmp_path):
    options = ("--seconds", 1, "--restarts", 1, "--algorithms", "dsg,fedavg", "--out", "one")
    answer = audit("malicious(1):imprint", *options)
    assert answer.code == 0, answer.err
    assert "Passive and active" in answer.out
    for label in ("dsg", "fedavg"):
        plain = json.loads((tmp_path / "one" / label / "audit.json").read_text())
        (gain,) = plain["active"]
        assert gain["adversary"] == "malicious(1):imprint"
        assert "passive and active" in (tmp_path / "one" / label / "report.html").read_text()


def test_the_bound_names_what_it_is_against(audit):
    answer = audit("malicious(1):echo", "--no-attacks", "--out", "two")
    assert answer.code == 0, answer.err
    assert "whatever malicious clients send" in " ".join(answer.out.split())


def test_bad_requests_exit_with_two(audit, tmp_path):
    answer = audit("malicious(1):ecco", "--no-attacks", "--out", "three")
    assert answer.code == 2
    assert "Did you mean 'echo'?" in answer.err
    assert not (tmp_path / "three").exists()
