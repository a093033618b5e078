"""`--transcript` of nodes, and what `tacit audit` and `tacit report` make of it."""

import json

import numpy as np
import pytest

NAMES = ("north", "south", "west")
CONFIG = """
[data]
name = "own"
shape = [6]
classes = 2

[model]
name = "mlp"
hidden = [8]

[algorithm]
name = "d-psgd"
lr = 0.05

[run]
rounds = 2
iterations_per_round = 5
batch_size = 10
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A file of samples for each node."""
    folder, rng = tmp_path_factory.mktemp("parts"), np.random.default_rng(0)
    for name in NAMES:
        x = rng.standard_normal((40, 6), dtype=np.float32)
        np.savez(folder / f"{name}.npz", x=x, y=(x[:, 0] > 0).astype(np.int64))
    return folder


@pytest.fixture
def clinic(tacit_here, tmp_path):
    """A federation whose members bring their own data."""
    (tmp_path / "plan.toml").write_text(CONFIG)
    nodes = ",".join(f"{name}=192.0.2.{at}:7400" for at, name in enumerate(NAMES, 1))
    answer = tacit_here(
        *("federation", "create", "clinic"),
        *("--nodes", nodes, "--config", "plan.toml"),
    )
    assert answer.code == 0, answer.err
    return tmp_path / "clinic"


def test_a_trial_with_transcripts_is_audited(tacit, tacit_here, data, clinic):
    each = ("--data", f"{data}/{{name}}.npz", "--transcript", "10MB")
    answer = tacit("federation", "up", clinic, *each)
    assert answer.code == 0, answer.err
    node, own = clinic / "trial-1" / "nodes" / "north", data / "north.npz"
    # Without the data, what is computed cannot be compared with the truth.
    answer = tacit_here("audit", node, "-n", 3)
    assert "north has iterations 1 to 10 of 10 (all of what was sent" in answer.out
    assert "Not measured: errors, which need the node's data: give --data." in answer.out
    answer = tacit_here("audit", node, "-n", 3, "--data", own, "--json")
    (*_, both) = json.loads(answer.out)["sent"]["coalitions"]
    assert both["members"] == ["south", "west"]
    assert both["exact"]["gradient"] == [3, 3]
    assert both["recovered"][0]["error"] < 1e-4
    assert tacit_here("report", node, "--data", own).code == 0
    assert "What was really sent" in (node / "report.html").read_text()
    # The last bit of a message is changed.
    segment = node / "run" / "transcript" / "segment-000001.log"
    content = bytearray(segment.read_bytes())
    content[-1] ^= 1
    segment.write_bytes(content)
    answer = tacit_here("audit", node)
    assert answer.code == 2
    assert "is damaged at byte" in answer.err


@pytest.mark.parametrize("size", ["2", "2GiB", "1kB"])
def test_sizes_are_checked(tacit_here, clinic, size):
    for command in (("federation", "up", clinic), ("node", clinic / "nodes" / "north")):
        answer = tacit_here(*command, "--transcript", size)
        assert answer.code == 2
        assert "e.g. --transcript 2GB" in answer.err
