"""With which code a node exits if it cannot start: 2 needs a correction, 75 may pass by itself."""

import os
import socket
from datetime import UTC, datetime

import pytest
from federations import federation, plan
from typer.testing import CliRunner

from tacit.cli import node as command
from tacit.cli.app import app
from tacit.peer.federation import certificates

NOT_READY, MISUSE = 75, 2
FUNCTIONS = """
def not_mounted():
    return open("/no/such/disk/records.csv")

def wrong():
    return 1 / 0
"""


@pytest.fixture
def home(tmp_path):
    config = plan({"name": "lppa", "lr": 0.05}, clients=2)
    return federation(tmp_path / "f", config, clients=2)


@pytest.fixture
def exit_code(home, monkeypatch):
    """Run a node in this process; returns its exit code."""
    monkeypatch.setattr(command, "stop_on_signals", lambda stop: None)
    umask = os.umask(0o022)

    def run(*options):
        arguments = ["node", home.node("n0").path, *options]
        return CliRunner().invoke(app, [str(argument) for argument in arguments]).exit_code

    yield run
    os.umask(umask)


def test_data_that_are_not_mounted_may_be_later(exit_code, tmp_path):
    assert exit_code("--data", tmp_path / "mount" / "records.npz") == NOT_READY
    (tmp_path / "records.npz").write_bytes(b"not arrays")
    assert exit_code("--data", tmp_path / "records.npz") == MISUSE
    (tmp_path / "records.csv").write_bytes(b"1,2,3\n")
    assert exit_code("--data", tmp_path / "records.csv") == MISUSE


@pytest.mark.parametrize(("name", "code"), [("not_mounted", NOT_READY), ("wrong", MISUSE)])
def test_a_function_that_cannot_read_may_do_so_later(exit_code, tmp_path, monkeypatch, name, code):
    (tmp_path / "exit_code_data.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    assert exit_code("--data", f"exit_code_data:{name}") == code


def test_a_port_that_is_taken_may_become_free(exit_code, home):
    host, port = home.manifest().member("n0").address.split(":")
    with socket.create_server((host, int(port))):
        assert exit_code() == NOT_READY


def test_a_monitoring_port_that_is_taken_may_become_free(exit_code):
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert exit_code("--metrics-port", other.getsockname()[1]) == NOT_READY


@pytest.mark.parametrize(("year", "code"), [(1970, NOT_READY), (2999, MISUSE)])
def test_a_clock_may_be_set_later_but_an_expired_certificate_stays_so(
    exit_code, monkeypatch, year, code
):
    class Clock:
        @staticmethod
        def now(zone):
            return datetime(year, 1, 1, tzinfo=UTC)

    monkeypatch.setattr(certificates, "datetime", Clock)
    assert exit_code() == code
