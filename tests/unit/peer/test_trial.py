"""A trial has the roster and the graph of a federation, and other keys and addresses."""

import pytest

from tacit.config.loading import make_config, with_keys
from tacit.peer.federation.operator import create, remove
from tacit.peer.federation.trial import open_trial

NODES = {name: f"{name}.example.org:7400" for name in "abcd"}


@pytest.fixture
def home(tmp_path):
    config = make_config(
        {
            "graph": {"kind": "ring"},
            "algorithm": {"name": "lppa", "lr": 0.05},
            "run": {"iterations_per_round": 5},
        }
    )
    return create(tmp_path / "f", "clinics", NODES, config)


def test_a_roster_of_remote_nodes_is_tried_on_this_machine(home):
    trial = open_trial(home)
    ours, theirs = home.manifest(), trial.manifest()
    assert theirs.names == ours.names
    assert theirs.sections["graph"] == ours.sections["graph"]
    assert theirs.config == with_keys(ours.config, "federation", share_metrics=True)
    assert all(member.address.startswith("127.0.0.1:") for member in theirs.members)
    assert theirs.federation.rpartition("-")[0] == "clinics"
    assert theirs.federation != ours.federation
    for name in NODES:
        assert trial.node(name).mask_secret() != home.node(name).mask_secret()
        assert trial.node(name).credentials().key != home.node(name).credentials().key


def test_a_trial_is_continued_until_the_roster_changes(home):
    first = open_trial(home)
    assert open_trial(home).manifest().text == first.manifest().text
    remove(home.path, "b")
    second = open_trial(home)
    assert (first.path.name, second.path.name) == ("trial-1", "trial-2")
    tried = second.manifest()
    assert (tried.generation, tried.names) == (1, ["a", "c", "d"])
    assert [member.number for member in tried.members] == [0, 2, 3]


def test_what_a_crash_has_left_is_replaced(home):
    part = home.path / ".trial-1.new"
    part.mkdir()
    (part / "federation.toml").write_text("half")
    assert open_trial(home).manifest().names == list(NODES)
    assert not part.exists()
