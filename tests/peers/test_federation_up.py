"""`tacit federation create`, `up`, `status` and Ctrl-C, as a user would."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from federations import free_ports
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.peer.asking import Enquiry
from tacit.peer.federation import FederationFolder

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
name = "lppa"
lr = 0.05

[run]
rounds = 150
iterations_per_round = 10
batch_size = 10
evaluate_every = 25
"""


def tacit(*words):
    return [sys.executable, "-m", "tacit", *map(str, words)]


def run(*words):
    return subprocess.run(tacit(*words), capture_output=True, text=True, timeout=120, check=False)


def here(*words):
    """The same in this process, which has imported everything already."""
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A federation of three, each with data of its own."""
    base = tmp_path_factory.mktemp("up")
    (base / "plan.toml").write_text(CONFIG)
    rng = np.random.default_rng(0)
    for name in NAMES:
        x = rng.normal(size=(40, 6)).astype(np.float32)
        np.savez(base / f"{name}.npz", x=x, y=(x[:, 0] > 0).astype(np.int64))
    nodes = ",".join(f"{name}=127.0.0.1:{port}" for name, port in zip(NAMES, free_ports(3), strict=True))
    made = here(
        "federation",
        "create",
        base / "f",
        "--config",
        base / "plan.toml",
        "--nodes",
        nodes,
        "--graph",
        "ring",
    )
    assert made.exit_code == 0, made.output
    return base


def test_stopped_and_brought_up_again(place):
    data = f"{place}/{{name}}.npz"
    command = tacit("federation", "up", place / "f", "--data", data)
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for_training(place / "f")
        told = json.loads(here("federation", "status", place / "f", "--json").stdout)
        assert {one["name"] for one in told} == set(NAMES)
        assert all(one["steps"] == 1500 and one["loss"] > 0 and one["epoch"] == 1 for one in told)
        metrics = json.loads((place / "f/nodes/north/run/ports.json").read_text())["metrics"]
        assert "tacit_step " in fetch(f"http://127.0.0.1:{metrics}/metrics")
        assert json.loads(fetch(f"http://127.0.0.1:{metrics}/health"))["healthy"] is True
        first.send_signal(signal.SIGINT)
        _, stderr = first.communicate(timeout=60)
    finally:
        if first.poll() is None:
            first.kill()
            first.wait()
    assert first.returncode == 130, stderr
    assert "Go on with" in stderr
    assert not (place / "f/nodes/north/run/summary.json").exists()

    second = run("federation", "up", place / "f", "--data", data)
    assert second.returncode == 0, second.stderr
    assert "1500" in second.stdout
    for name in NAMES:
        node = place / "f" / "nodes" / name / "run"
        assert json.loads((node / "summary.json").read_text())["steps"] == 1500
        events = [json.loads(line)["event"] for line in (node / "log.jsonl").read_text().splitlines()]
        assert events.count("resumed") == 1
        assert events.count("stopped") == 1
        assert events[-1] == "ended"
        steps = [json.loads(line)["step"] for line in (node / "history.jsonl").read_text().splitlines()]
        assert steps == sorted(set(steps))


def test_brought_up_after_the_end_nothing_changes(place):
    summaries = {name: place / "f" / "nodes" / name / "run" / "summary.json" for name in NAMES}
    before = {name: path.read_text() for name, path in summaries.items()}
    again = run("federation", "up", place / "f", "--data", f"{place}/{{name}}.npz")
    assert again.returncode == 0, again.stderr
    assert {name: path.read_text() for name, path in summaries.items()} == before


def test_other_data_than_those_it_began_with_are_refused(place):
    other = run("node", place / "f/nodes/west", "--data", place / "north.npz")
    assert other.returncode == 2
    assert "The data are not those" in other.stderr


def test_a_node_runs_once_and_ends_when_it_is_told_to(place):
    """Alone it waits for its neighbours. With several threads of numerics, as by default, signals reach any of them."""
    made = here(
        "federation", "create", place / "alone", "--config", place / "plan.toml", "--nodes",
        ",".join(f"{name}=127.0.0.1:{port}" for name, port in zip(NAMES, free_ports(3), strict=True)),
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    folder, command = place / "alone/nodes/west", ["--data", place / "west.npz"]
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    first = subprocess.Popen(
        tacit("node", folder, *command), stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        said = [json.loads(first.stderr.readline())]
        while said[-1]["event"] != "neighbour not reached":
            said.append(json.loads(first.stderr.readline()))
        second = run("node", folder, *command)
        assert second.returncode == 2
        assert "is running already" in second.stderr
        assert (folder / "run").stat().st_mode & 0o077 == 0
        first.send_signal(signal.SIGTERM)
        _, rest = first.communicate(timeout=60)
    finally:
        if first.poll() is None:
            first.kill()
            first.wait()
    assert first.returncode == 0
    assert json.loads(rest.splitlines()[-1])["event"] == "stopped"


def test_nobody_answers_when_nobody_runs(place):
    asked = here("federation", "status", place / "f", "--timeout", "1")
    assert asked.exit_code == 1
    assert "not reached" in asked.stdout


def test_a_node_without_data_ends_all_with_the_reason(place):
    failed = run("federation", "up", place / "f", "--data", f"{place}/nothing-{{name}}.npz")
    assert failed.returncode == 1
    assert "A node failed" in failed.stderr
    assert "nothing-" in failed.stderr


def test_a_node_says_what_is_wrong_with_its_folder(place, tmp_path):
    lost = run("node", tmp_path)
    assert lost.returncode == 2
    assert "Traceback" not in lost.stderr
    os.chmod(place / "f/nodes/west/node.key", 0o644)
    try:
        loose = run("node", place / "f/nodes/west", "--data", place / "west.npz")
    finally:
        os.chmod(place / "f/nodes/west/node.key", 0o600)
    assert loose.returncode == 2
    assert "chmod 600" in loose.stderr


def wait_for_training(folder):
    home = FederationFolder(folder)
    enquiry = Enquiry(home.manifest(), home.operator(), home.ca())
    limit = time.monotonic() + 90
    while time.monotonic() < limit:
        answers = enquiry.status(1.0)
        if all(answer.status is not None and answer.status.step > 0 for answer in answers):
            enquiry.close()
            return
        time.sleep(0.1)
    raise AssertionError([answer.problem for answer in answers])


def fetch(url):
    from urllib.request import urlopen

    with urlopen(url, timeout=10) as answer:
        return answer.read().decode()
