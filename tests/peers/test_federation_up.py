"""`tacit federation create`, `up`, `status` and Ctrl-C, as a user runs them."""

import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest
from chaos import LONG, ForkedCommand, ForkedFederation
from federations import free_ports
from typer.testing import CliRunner

from tacit.cli import main
from tacit.cli.app import app
from tacit.peer.federation import local_processes
from tacit.peer.federation.federation_client import FederationClient
from tacit.peer.federation.federation_folder import FederationFolder

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


def command_line(*arguments):
    return [sys.executable, "-m", "tacit", *map(str, arguments)]


def run_forked(log, *arguments):
    """Run `tacit` in a process forked from one with all imports done; its output goes to `log`."""
    process = ForkedCommand([str(argument) for argument in arguments], log)
    return SimpleNamespace(returncode=process.wait(LONG), output=log.read_text())


def node_addresses():
    ports = zip(NAMES, free_ports(3), strict=True)
    return ",".join(f"{name}=127.0.0.1:{port}" for name, port in ports)


def run_here(*arguments):
    """Run `tacit` in this process."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def up(monkeypatch, capsys):
    """`tacit federation up` in this process, with forked nodes."""
    monkeypatch.setattr(local_processes, "LocalFederation", ForkedFederation)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}

    def invoke(folder, data):
        monkeypatch.setattr(
            sys, "argv", ["tacit", "federation", "up", str(folder), "--data", str(data)]
        )
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code or 0
        captured = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=captured.out, stderr=captured.err)

    yield invoke
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A federation of three nodes, each with its own data."""
    base = tmp_path_factory.mktemp("up")
    (base / "plan.toml").write_text(CONFIG)
    rng = np.random.default_rng(0)
    for name in NAMES:
        x = rng.normal(size=(40, 6)).astype(np.float32)
        np.savez(base / f"{name}.npz", x=x, y=(x[:, 0] > 0).astype(np.int64))
    made = run_here(
        "federation",
        "create",
        base / "f",
        "--config",
        base / "plan.toml",
        "--nodes",
        node_addresses(),
        "--graph",
        "ring",
    )
    assert made.exit_code == 0, made.output
    return base


def test_stopped_and_restarted(place, up):
    data = f"{place}/{{name}}.npz"
    command = command_line("federation", "up", place / "f", "--data", data)
    first = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for_training(place / "f")
        reports = json.loads(run_here("federation", "status", place / "f", "--json").stdout)
        assert {report["name"] for report in reports} == set(NAMES)
        assert all(
            report["steps"] == STEPS and report["loss"] > 0 and report["generation"] == 1
            for report in reports
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
    assert "continue with" in stderr
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
        assert events[-1] == "finished"
        steps = [
            json.loads(line)["step"] for line in (node / "history.jsonl").read_text().splitlines()
        ]
        assert steps == sorted(set(steps))


def test_a_restart_after_the_end_changes_nothing(place, up):
    summaries = {name: place / "f" / "nodes" / name / "run" / "summary.json" for name in NAMES}
    before = {name: path.read_text() for name, path in summaries.items()}
    again = up(place / "f", f"{place}/{{name}}.npz")
    assert again.returncode == 0, again.stderr
    assert {name: path.read_text() for name, path in summaries.items()} == before


def test_a_node_refuses_to_continue_with_other_data(place, tmp_path):
    other = run_forked(
        tmp_path / "log", "node", place / "f/nodes/west", "--data", place / "north.npz"
    )
    assert other.returncode == 2
    assert "The data are not those" in other.output


def test_a_node_runs_once_and_stops_on_a_signal(place, tmp_path):
    """With several threads, as by default, a signal may reach any of them."""
    made = run_here(
        "federation", "create", place / "alone", "--config", place / "plan.toml", "--nodes",
        node_addresses(),
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    folder, command = place / "alone/nodes/west", ["--data", place / "west.npz"]
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    first = subprocess.Popen(
        command_line("node", folder, *command), stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        while json.loads(first.stderr.readline())["event"] != "neighbour not reached":
            pass
        second = run_forked(tmp_path / "log", "node", folder, *command)
        assert second.returncode == 2
        assert "is running already" in second.output
        assert (folder / "run").stat().st_mode & 0o077 == 0
        first.send_signal(signal.SIGTERM)
        _, rest = first.communicate(timeout=60)
    finally:
        if first.poll() is None:
            first.kill()
            first.wait()
    assert first.returncode == 0
    assert json.loads(rest.splitlines()[-1])["event"] == "stopped"


def test_status_without_running_nodes(place):
    status = run_here("federation", "status", place / "f", "--timeout", "1")
    assert status.exit_code == 1
    assert "not reached" in status.stdout


def test_a_failed_node_stops_all_with_the_reason(place, up):
    failed = up(place / "f", f"{place}/nothing-{{name}}.npz")
    assert failed.returncode == 1
    assert "A node failed" in failed.stderr
    assert "nothing-" in failed.stderr


def test_a_node_reports_what_is_wrong_with_its_folder(place, tmp_path):
    lost = run_forked(tmp_path / "lost", "node", tmp_path)
    assert lost.returncode == 2
    assert "Traceback" not in lost.output
    os.chmod(place / "f/nodes/west/node.key", 0o644)
    try:
        loose = run_forked(
            tmp_path / "loose", "node", place / "f/nodes/west", "--data", place / "west.npz"
        )
    finally:
        os.chmod(place / "f/nodes/west/node.key", 0o600)
    assert loose.returncode == 2
    assert "chmod 600" in loose.output


def wait_for_training(folder):
    home = FederationFolder(folder)
    client = FederationClient(home.manifest(), home.operator_credentials(), home.ca())
    limit = time.monotonic() + 90
    while time.monotonic() < limit:
        reports = client.status(1.0)
        if all(report.status is not None and report.status.step > 0 for report in reports):
            client.close()
            return
        time.sleep(0.1)
    raise AssertionError([report.problem for report in reports])


def fetch(url):
    from urllib.request import urlopen

    with urlopen(url, timeout=10) as answer:
        return answer.read().decode()
