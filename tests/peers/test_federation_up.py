"""`tacit federation create`, `up`, `status` and Ctrl-C, as a user would run them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from urllib.request import urlopen

import numpy as np
import pytest
from chaos import LONG, ForkedCommand, ForkedFederation, kill_tree, logged, until
from federations import free_ports
from typer.testing import CliRunner

from tacit.cli import federation_nodes, main
from tacit.cli.app import app
from tacit.peer.federation.federation_client import FederationClient
from tacit.peer.federation.folders import FederationFolder

NAMES = ("north", "south", "west")
STEPS = 800
TRIAL = "trial-1"
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


def start(*arguments, **options):
    """`tacit` in a new process."""
    command = [sys.executable, "-m", "tacit", *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)


def run(log, *arguments):
    """`tacit` in a forked process, which starts at once; its output is in a file."""
    process = ForkedCommand([str(argument) for argument in arguments], log)
    try:
        return SimpleNamespace(returncode=process.wait(LONG), output=log.read_text())
    finally:
        kill_tree(process)


def run_here(*arguments):
    """`tacit` in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def up(monkeypatch, capsys):
    """`tacit federation up` in this process, with forked nodes."""
    monkeypatch.setattr(federation_nodes, "LocalFederation", ForkedFederation)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}

    def run_up(folder, data):
        arguments = ["tacit", "federation", "up", str(folder), "--data", str(data)]
        monkeypatch.setattr(sys, "argv", arguments)
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        output = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=output.out, stderr=output.err)

    yield run_up
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A federation of three nodes in f, and data of each."""
    base = tmp_path_factory.mktemp("up")
    (base / "plan.toml").write_text(CONFIG)
    rng = np.random.default_rng(0)
    for name in NAMES:
        x = rng.normal(size=(40, 6)).astype(np.float32)
        np.savez(base / f"{name}.npz", x=x, y=(x[:, 0] > 0).astype(np.int64))
    create(base, "f", "--graph", "ring")
    return base


def create(base, name, *options):
    ports = zip(NAMES, free_ports(3), strict=True)
    nodes = ",".join(f"{name}=127.0.0.1:{port}" for name, port in ports)
    config = base / "plan.toml"
    created = run_here(
        "federation", "create", base / name, "--config", config, "--nodes", nodes, *options
    )
    assert created.exit_code == 0, created.output


def test_stopped_and_started_again(base, up):
    data = f"{base}/{{name}}.npz"
    first = start("federation", "up", base / "f", "--data", data, stdout=subprocess.PIPE)
    try:
        wait_for_training(base / "f" / TRIAL)
        status = json.loads(run_here("federation", "status", base / "f" / TRIAL, "--json").stdout)
        assert {one["name"] for one in status} == set(NAMES)
        for one in status:
            assert (one["steps"], one["generation"]) == (STEPS, 1)
            assert one["loss"] > 0
        port = json.loads((base / "f" / TRIAL / "nodes/north/run/ports.json").read_text())[
            "metrics"
        ]
        assert "tacit_step " in fetch(f"http://127.0.0.1:{port}/metrics")
        assert json.loads(fetch(f"http://127.0.0.1:{port}/health"))["healthy"] is True
        first.send_signal(signal.SIGINT)
        _, stderr = first.communicate(timeout=60)
    finally:
        kill_tree(first)
    assert first.returncode == 130, stderr
    assert "tacit federation up" in stderr
    assert not (base / "f" / TRIAL / "nodes/north/run/summary.json").exists()

    second = up(base / "f", data)
    assert second.returncode == 0, second.stderr
    assert str(STEPS) in second.stdout
    for name in NAMES:
        node = base / "f" / TRIAL / "nodes" / name / "run"
        assert json.loads((node / "summary.json").read_text())["steps"] == STEPS
        lines = (node / "log.jsonl").read_text().splitlines()
        events = [json.loads(line)["event"] for line in lines]
        assert events.count("resumed") == 1
        assert events.count("stopped") == 1
        # A neighbour that ends may leave a connection behind.
        assert [one for one in events if one != "connection refused"][-1] == "finished"
        records = (node / "history.jsonl").read_text().splitlines()
        steps = [json.loads(record)["step"] for record in records]
        assert steps == sorted(set(steps))


def test_nodes_end_with_the_process_that_started_them(base):
    """Even if it is killed, and so cannot stop them."""
    create(base, "killed", "--graph", "ring")
    folder = base / "killed" / TRIAL
    first = start("federation", "up", base / "killed", "--data", f"{base}/{{name}}.npz")
    children = []
    try:
        wait_for_training(folder)
        children += children_of(first.pid)
        assert len(children) == len(NAMES)
        first.kill()
        first.communicate(timeout=60)
        until(lambda: not any(map(is_running, children)), "all nodes have ended")
    finally:
        kill_tree(first)
        for child in filter(is_running, children):
            os.kill(child, signal.SIGKILL)
    for name in NAMES:
        assert logged(FederationFolder(folder), name, "stopped")


def test_started_again_after_the_end_nothing_changes(base, up):
    summaries = {
        name: base / "f" / TRIAL / "nodes" / name / "run" / "summary.json" for name in NAMES
    }
    before = {name: path.read_text() for name, path in summaries.items()}
    again = up(base / "f", f"{base}/{{name}}.npz")
    assert again.returncode == 0, again.stderr
    assert {name: path.read_text() for name, path in summaries.items()} == before


def test_other_data_than_before_are_an_error(base, tmp_path):
    other = run(
        tmp_path / "log", "node", base / "f" / TRIAL / "nodes/west", "--data", base / "north.npz"
    )
    assert other.returncode == 2
    assert "The data are not those" in other.output


def test_a_node_runs_once_and_stops_on_sigterm(base, tmp_path):
    """Alone it waits for its neighbours. Signals may reach any of its threads."""
    create(base, "alone")
    folder, data = base / "alone/nodes/west", ["--data", base / "west.npz"]
    first = start("node", folder, *data, env={**os.environ, "OMP_NUM_THREADS": "2"})
    try:
        line = json.loads(first.stderr.readline())
        while line["event"] != "neighbour not reached":
            line = json.loads(first.stderr.readline())
        second = run(tmp_path / "log", "node", folder, *data)
        assert second.returncode == 2
        assert "is running already" in second.output
        assert (folder / "run").stat().st_mode & 0o077 == 0
        first.send_signal(signal.SIGTERM)
        _, rest = first.communicate(timeout=60)
    finally:
        kill_tree(first)
    assert first.returncode == 0
    assert json.loads(rest.splitlines()[-1])["event"] == "stopped"


def test_the_status_of_nodes_that_do_not_run(base):
    status = run_here("federation", "status", base / "f", "--timeout", "1")
    assert status.exit_code == 1
    assert "not reached" in status.stdout
    # Those of the trial have finished.
    status = run_here("federation", "status", base / "f" / TRIAL, "--timeout", "1")
    assert status.exit_code == 0
    assert "finished" in status.stdout
    assert "not reached" not in status.stdout


def test_a_node_without_data_ends_the_federation_with_the_reason(base, up):
    failed = up(base / "f", f"{base}/nothing-{{name}}.npz")
    assert failed.returncode == 1
    assert "A node failed" in failed.stderr
    assert "nothing-" in failed.stderr


def test_a_node_says_what_is_wrong_with_its_folder(base, tmp_path):
    lost = run(tmp_path / "lost", "node", tmp_path)
    assert lost.returncode == 2
    assert "Traceback" not in lost.output
    folder = base / "f/nodes/west"
    os.chmod(folder / "node.key", 0o644)
    try:
        loose = run(tmp_path / "loose", "node", folder, "--data", base / "west.npz")
    finally:
        os.chmod(folder / "node.key", 0o600)
    assert loose.returncode == 2
    assert "chmod 600" in loose.output


def children_of(pid):
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def is_running(pid):
    """Whether a process exists that has not ended; its new parent may not have waited for it."""
    try:
        return "(zombie)" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def wait_for_training(folder):
    home = FederationFolder(folder)
    until(folder.exists, "the trial is created")
    client = FederationClient(home.manifest(), home.operator_credentials(), home.ca())
    deadline = time.monotonic() + 90
    try:
        while time.monotonic() < deadline:
            reports = client.status(1.0)
            if all(report.status is not None and report.status.step > 0 for report in reports):
                return
            time.sleep(0.1)
    finally:
        client.close()
    raise AssertionError([report.problem for report in reports])


def fetch(url):
    with urlopen(url, timeout=10) as answer:
        return answer.read().decode()
