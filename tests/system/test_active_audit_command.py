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


@pytest.mark.parametrize(
    ("adversary", "changes", "words"),
    [
        ("malicious(0)", (), "Client 0 is corrupt"),
        ("malicious(1):ecco", (), "Did you mean 'echo'?"),
        ("malicious(2):isolate", (), "Name a neighbour of the victim: 1, 4."),
        ("malicious(1):imprint", ("model.name=cnn2",), "does not begin with a linear layer"),
        ("malicious(1):echo", ("algorithm.name=fedavg",), "no message in which echo is possible"),
    ],
)
def test_bad_requests_exit_with_two(audit, tmp_path, adversary, changes, words):
    (tmp_path / "active.toml").write_text(
        CONFIG.replace("hidden = [32]", "") if "model.name=cnn2" in changes else CONFIG
    )
    sets = [word for change in changes for word in ("--set", change)]
    answer = audit(adversary, "--no-attacks", *sets, "--out", "three")
    assert answer.code == 2
    assert words in " ".join(answer.err.split())
    assert not (tmp_path / "three").exists()
