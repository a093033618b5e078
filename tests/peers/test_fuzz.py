"""Federations under thousands of mutated requests: nothing breaks or grows, no number changes."""

import contextlib
import json
import signal
import socket
import time
from types import SimpleNamespace

import pytest
from chaos import ForkedFederation
from federations import (
    federation,
    free_ports,
    log_of,
    models,
    plan,
    relative_distance,
    simulated,
)
from fuzzer import Fuzzer
from hostile import TIMEOUT, memory
from mitm import Corrupter, MitmProxy

from tacit.peer.federation.federation_client import FederationClient

REQUESTS, BURST = 5_000, 500
STEPS = 600
RESERVE = 350  # iterations at the end during which training pauses while a burst is sent
STALLED = 600  # seconds, after which a federation does not go on
MEGABYTE = 1 << 20


def files_of(home):
    return {path for path in home.path.rglob("*") if not path.is_dir()}


class Watch:
    """Queries the status of n0."""

    def __init__(self, home, local):
        self._local = local
        self._client = FederationClient(home.manifest(), home.operator_credentials(), home.ca())

    def wait_for(self, condition):
        """The status, as soon as a condition holds."""
        deadline = time.monotonic() + 2 * TIMEOUT
        while time.monotonic() < deadline:
            status = self._client.status(TIMEOUT)[0].status
            if status is not None and condition(status):
                return status
            assert not self._local.failed(), [node.last_error() for node in self._local.failed()]
            time.sleep(0.02)
        raise AssertionError(f"n0 makes no progress: {status}")

    def status(self):
        return self.wait_for(lambda status: True)

    def close(self):
        self._client.close()


@contextlib.contextmanager
def paused(process, really):
    """Stop a process for the time of the block, if `really`."""
    if really:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        if really:
            process.send_signal(signal.SIGCONT)


# --- mutated requests to n0 -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    """Three nodes that train while one of them is fuzzed, and what was observed."""
    rounds = STEPS // 20
    config = plan(
        {"name": "lppa", "lr": 0.02, "fresh": True},
        rounds, iterations=20, hidden=2, clients=3, evaluate_every=rounds,
    )  # fmt: skip
    home = federation(tmp_path_factory.mktemp("fuzz") / "f", config, clients=3)
    seen = SimpleNamespace(home=home, fuzzer=Fuzzer(home, "n0", "n1", STEPS, seed=5), advanced=0)
    before = files_of(home)
    with ForkedFederation(home, save_seconds=0.5) as local:
        watch = Watch(home, local)
        watch.wait_for(lambda status: status.step > 5)
        send_requests(seen, watch, local)
        seen.status = watch.status()
        watch.close()
        seen.fuzzer.close()
        seen.logs = "" if local.wait(STALLED) else local.ends_of_logs()
        seen.exits = {name: node.process.poll() for name, node in local.nodes.items()}
    seen.files = files_of(home) - before
    return seen


def send_requests(seen, watch, local):
    """Send all requests, in bursts between which n0 must make progress."""
    fuzzer, n2 = seen.fuzzer, local.nodes["n2"].process
    with socket.create_connection(("127.0.0.1", fuzzer.port), TIMEOUT) as silent:
        while fuzzer.sent < REQUESTS:
            step = watch.status().step
            with paused(n2, step > STEPS - RESERVE):
                fuzzer.burst(BURST, step)
            after = watch.wait_for(lambda status, step=step: status.step > step)
            seen.advanced += after.step - step
            if fuzzer.sent == REQUESTS // 5:  # everything has been used by now
                seen.memory = memory(local.nodes["n0"].process.pid)
        seen.growth = memory(local.nodes["n0"].process.pid) - seen.memory
        seen.answer_to_silence = silent.recv(100)


def test_all_requests_were_sent_while_n0_trained(fuzzed):
    assert fuzzed.fuzzer.sent == REQUESTS
    assert fuzzed.fuzzer.answers > REQUESTS / 1000
    assert fuzzed.advanced >= REQUESTS / BURST
    assert fuzzed.status.step < STEPS


def test_no_request_made_a_call_fail_or_hang(fuzzed):
    codes = fuzzed.fuzzer.codes
    # A connection may have 16 streams, and cancelled ones count for a moment.
    assert len(fuzzed.fuzzer.lost) < REQUESTS / 100, fuzzed.fuzzer.lost[:3]
    assert not [line for line in log_of(fuzzed.home, "n0") if line["level"] == "error"]
    assert not fuzzed.fuzzer.failures, codes
    answers = {"OK", "INVALID_ARGUMENT", "FAILED_PRECONDITION"}
    assert set(codes) >= answers | {"stream INVALID_ARGUMENT", "stream PERMISSION_DENIED"}


def test_rejections_were_counted_and_logged(fuzzed):
    rejected = [line for line in log_of(fuzzed.home, "n0") if line["event"] == "rejected"]
    assert fuzzed.status.rejected > REQUESTS / 10
    assert {line["sender"] for line in rejected} == {"n1", "operator"}
    reasons = {"malformed", "manifest", "configuration", "not finished", "not a neighbour"}
    assert {line["reason"] for line in rejected} >= reasons
    assert len(rejected) < REQUESTS / 10  # the log is throttled


def test_memory_did_not_grow(fuzzed):
    assert fuzzed.growth < 64 * MEGABYTE


def test_a_silent_connection_is_closed(fuzzed):
    assert fuzzed.answer_to_silence == b""


def test_all_nodes_finished_with_the_models_of_the_simulator(fuzzed):
    assert not fuzzed.logs
    assert set(fuzzed.exits.values()) == {0}
    assert relative_distance(models(fuzzed.home), simulated(fuzzed.home)) < 1e-6


def test_nodes_wrote_into_their_own_folders_only(fuzzed):
    runs = {fuzzed.home.node(member.name).run for member in fuzzed.home.members}
    folders = {next((run for run in runs if run in path.parents), path) for path in fuzzed.files}
    assert folders == runs


# --- a man in the middle --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corrupted(tmp_path_factory):
    """Three nodes; a proxy with the key of n1 corrupts half of its messages to n0."""
    algorithm = {"name": "lppa", "lr": 0.05, "fresh": True, "masks": "sent"}
    config = plan(algorithm, rounds=2, iterations=10, clients=3)
    home = federation(tmp_path_factory.mktemp("corrupted") / "f", config, clients=3)
    address, backend = home.manifest().member("n1").address, f"127.0.0.1:{free_ports(1)[0]}"
    corrupter = Corrupter("n0", seed=7)
    with (
        MitmProxy(home, "n1", address, backend, corrupter),
        ForkedFederation(home, listen={"n1": backend}) as local,
    ):
        logs = "" if local.wait(STALLED) else local.ends_of_logs()
    return SimpleNamespace(home=home, counts=corrupter.counts, logs=logs)


def test_corrupted_messages_do_not_change_the_result(corrupted):
    assert not corrupted.logs
    assert relative_distance(models(corrupted.home), simulated(corrupted.home)) < 1e-6


def test_corrupted_messages_were_rejected(corrupted):
    assert min(corrupted.counts.values()) > 0, corrupted.counts
    runs = {name: corrupted.home.node(name).run for name in ("n0", "n2")}
    rejected = {
        name: json.loads((run / "summary.json").read_text())["rejected"]
        for name, run in runs.items()
    }
    # A repeated message, or a notice of another generation, is harmless.
    assert rejected["n0"] >= sum(corrupted.counts.values()) / 2
    assert rejected["n2"] == 0
    lines = [line for line in log_of(corrupted.home, "n0") if line["event"] == "rejected"]
    assert {line["sender"] for line in lines} == {"n1"}
    assert {line["reason"] for line in lines} >= {"malformed", "iteration", "checksum", "truncated"}
