"""`tacit federation create`, `up`, `status` and Ctrl-C, as a user would."""

import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from chaos import LONG, Forked, ForkedFederation
from federations import free_ports
from typer.testing import CliRunner

from tacit.cli import main
from tacit.cli.app import app
from tacit.peer.federation import local_processes as local
from tacit.peer.federation.client import FederationClient
from tacit.peer.federation.operator import FederationFolder

NAMES = ("north", "south", "west")
STEPS = 800
CONFIG = f"""
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
rounds = {STEPS // 10}
iterations_per_round = 10
batch_size = 10
evaluate_every = 20
"""


def tacit(*words):
    return [sys.executable, "-m", "tacit", *map(str, words)]


def run(log, *words):
    """The same in a process that is forked from one that has imported everything; what it said is in a file."""
    process = Forked([str(word) for word in words], log)
    return SimpleNamespace(returncode=process.wait(LONG), said=log.read_text())


def here(*words):
    """The same in this process, which has imported everything already."""
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def up(monkeypatch, capsys):
    """`tacit federation up` in this process, with nodes that are forked."""
    monkeypatch.setattr(local, "LocalFederation", ForkedFederation)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}

    def going(folder, data):
        monkeypatch.setattr(
            sys, "argv", ["tacit", "federation", "up", str(folder), "--data", str(data)]
        )
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        said = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=said.out, stderr=said.err)

    yield going
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A federation of three, each with data of its own."""
    base = tmp_path_factory.mktemp("up")
    (base / "plan.toml").write_text(CONFIG)
    rng = np.random.default_rng(0)
    for name in NAMES:
        x = rng.normal(size=(40, 6)).astype(np.float32)
        np.savez(base / f"{name}.npz", x=x, y=(x[:, 0] > 0).astype(np.int64))
    nodes = ",".join(
        f"{name}=127.0.0.1:{port}" for name, port in zip(NAMES, free_ports(3), strict=True)
    )
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


def test_stopped_and_brought_up_again(place, up):
    data = f"{place}/{{name}}.npz"
    command = tacit("federation", "up", place / "f", "--data", data)
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for_training(place / "f")
        told = json.loads(here("federation", "status", place / "f", "--json").stdout)
        assert {one["name"] for one in told} == set(NAMES)
        assert all(
            one["steps"] == STEPS and one["loss"] > 0 and one["generation"] == 1 for one in told
        )
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

    second = up(place / "f", data)
    assert second.returncode == 0, second.stderr
    assert str(STEPS) in second.stdout
    for name in NAMES:
        node = place / "f" / "nodes" / name / "run"
        assert json.loads((node / "summary.json").read_text())["steps"] == STEPS
        events = [
            json.loads(line)["event"] for line in (node / "log.jsonl").read_text().splitlines()
        ]
        assert events.count("resumed") == 1
        assert events.count("stopped") == 1
        assert events[-1] == "ended"
        steps = [
            json.loads(line)["step"] for line in (node / "history.jsonl").read_text().splitlines()
        ]
        assert steps == sorted(set(steps))


def test_brought_up_after_the_end_nothing_changes(place, up):
    summaries = {name: place / "f" / "nodes" / name / "run" / "summary.json" for name in NAMES}
    before = {name: path.read_text() for name, path in summaries.items()}
    again = up(place / "f", f"{place}/{{name}}.npz")
    assert again.returncode == 0, again.stderr
    assert {name: path.read_text() for name, path in summaries.items()} == before


def test_other_data_than_those_it_began_with_are_refused(place, tmp_path):
    other = run(tmp_path / "log", "node", place / "f/nodes/west", "--data", place / "north.npz")
    assert other.returncode == 2
    assert "The data are not those" in other.said


def test_a_node_runs_once_and_ends_when_it_is_told_to(place, tmp_path):
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
        second = run(tmp_path / "log", "node", folder, *command)
        assert second.returncode == 2
        assert "is running already" in second.said
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


def test_a_node_without_data_ends_all_with_the_reason(place, up):
    failed = up(place / "f", f"{place}/nothing-{{name}}.npz")
    assert failed.returncode == 1
    assert "A node failed" in failed.stderr
    assert "nothing-" in failed.stderr


def test_a_node_says_what_is_wrong_with_its_folder(place, tmp_path):
    lost = run(tmp_path / "lost", "node", tmp_path)
    assert lost.returncode == 2
    assert "Traceback" not in lost.said
    os.chmod(place / "f/nodes/west/node.key", 0o644)
    try:
        loose = run(
            tmp_path / "loose", "node", place / "f/nodes/west", "--data", place / "west.npz"
        )
    finally:
        os.chmod(place / "f/nodes/west/node.key", 0o600)
    assert loose.returncode == 2
    assert "chmod 600" in loose.said


def wait_for_training(folder):
    home = FederationFolder(folder)
    enquiry = FederationClient(home.manifest(), home.operator(), home.ca())
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
