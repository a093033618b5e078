"""Live federations under thousands of mutated messages: nothing breaks, nothing grows, and the result is the same."""

import contextlib
import json
import signal
import socket
import ssl
import time
from types import SimpleNamespace

import pytest
import torch
from chaos import ForkedFederation
from federations import federation, free_ports, models, plan, simulated
from fuzzer import Fuzzer
from hostile import PATIENCE, knock, memory, tls
from middleman import Middleman, Spoiler

from tacit.peer.federation.client import FederationClient

MESSAGES, BURST = 10_000, 500
LIMIT = 120  # seconds for all of them
STEPS, RESERVE = (
    600,
    350,
)  # while fewer iterations than these are left, bursts hit a federation that cannot go on
MEGABYTE = 1 << 20


def log_of(home, name):
    """The lines of a node's log: nothing in it but JSON."""
    text = (home.node(name).run / "log.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def files_of(home):
    return {path for path in home.path.rglob("*") if not path.is_dir()}


def is_simulated(home):
    """Whether the nodes have left the models of the simulator."""
    found, expected = models(home).double(), simulated(home).double()
    distance = torch.linalg.norm(found - expected, dim=1) / torch.linalg.norm(expected, dim=1)
    return bool(distance.max() < 1e-6)


class Watch:
    """Asks n0 how it is."""

    def __init__(self, home, local):
        self._local = local
        self._enquiry = FederationClient(home.manifest(), home.operator(), home.ca())

    def wait_for(self, condition):
        """Its status, as soon as a condition holds."""
        limit = time.monotonic() + 2 * PATIENCE
        while time.monotonic() < limit:
            status = self._enquiry.status(PATIENCE)[0].status
            if status is not None and condition(status):
                return status
            assert not self._local.failed(), [node.last_words() for node in self._local.failed()]
            time.sleep(0.02)
        raise AssertionError(f"n0 does not come so far: {status}")

    def step(self):
        """How far it is."""
        return self.wait_for(lambda status: True).step

    def close(self):
        """Ask no more."""
        self._enquiry.close()


@contextlib.contextmanager
def held(process, really):
    """A process that stands still meanwhile, if it is to."""
    if really:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        if really:
            process.send_signal(signal.SIGCONT)


# --- n0 under fire --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    """Three nodes that train while one of them is fuzzed, and what was seen of it."""
    algorithm = {"name": "lppa", "lr": 0.02, "fresh": True}
    config = plan(
        algorithm,
        rounds=STEPS // 20,
        iterations=20,
        hidden=2,
        clients=3,
        evaluate_every=STEPS // 20,
    )
    home = federation(tmp_path_factory.mktemp("fuzz") / "f", config, clients=3)
    seen = SimpleNamespace(home=home, fuzzer=Fuzzer(home, "n0", "n1", STEPS, seed=5), advanced=0)
    before = files_of(home)
    with ForkedFederation(home, save_seconds=0.5) as local:
        watch = Watch(home, local)
        watch.wait_for(lambda status: status.step > 5)
        fire(seen, watch, local)
        seen.status = watch.wait_for(lambda status: True)
        watch.close()
        seen.fuzzer.close()
        seen.ended = local.wait(2 * PATIENCE)
        seen.exits = {name: node.process.poll() for name, node in local.nodes.items()}
    seen.files = files_of(home) - before
    return seen


def fire(seen, watch, local):
    """All messages, in bursts between which n0 must make progress."""
    fuzzer, others = seen.fuzzer, local.nodes["n2"].process
    neighbour, old = (tls(seen.home.node("n1").credentials()) for _ in range(2))
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    seen.tls_1_2, seen.tls_1_3 = knock(fuzzer.port, old), knock(fuzzer.port, neighbour)
    began = time.monotonic()
    with socket.create_connection(("127.0.0.1", fuzzer.port), PATIENCE) as silent:
        while fuzzer.sent < MESSAGES:
            step = watch.step()
            with held(others, step > STEPS - RESERVE):
                fuzzer.burst(BURST, step)
            seen.advanced += (
                watch.wait_for(lambda status, step=step: status.step > step).step - step
            )
            if fuzzer.sent == MESSAGES // 5:  # by now everything has been used
                seen.memory = memory(local.nodes["n0"].process.pid)
            seconds = time.monotonic() - began
            assert seconds < LIMIT, f"{fuzzer.sent} messages took {seconds:.0f} s: {fuzzer.codes}"
        seen.grown = memory(local.nodes["n0"].process.pid) - seen.memory
        seen.said_to_silence = silent.recv(100)


def test_all_messages_were_sent_while_n0_trained(fuzzed):
    assert fuzzed.fuzzer.sent == MESSAGES
    assert fuzzed.fuzzer.answers > MESSAGES / 1000  # of those that were not mutated beyond sense
    assert fuzzed.advanced >= MESSAGES / BURST
    assert fuzzed.status.step < STEPS


def test_no_message_made_a_call_fail_or_hang(fuzzed):
    codes = fuzzed.fuzzer.codes
    # A connection may have 16 streams: those that were just cancelled count for a moment.
    assert len(fuzzed.fuzzer.lost) < MESSAGES / 100, fuzzed.fuzzer.lost[:3]
    for failure in (
        "UNKNOWN",
        "INTERNAL",
        "DEADLINE_EXCEEDED",
        "stream UNKNOWN",
        "stream INTERNAL",
    ):
        assert failure not in codes, codes
    assert not [line for line in log_of(fuzzed.home, "n0") if line["level"] == "error"]
    answers = {"OK", "INVALID_ARGUMENT", "FAILED_PRECONDITION"}
    assert set(codes) >= answers | {"stream INVALID_ARGUMENT", "stream PERMISSION_DENIED"}


def test_refusals_were_counted_and_logged(fuzzed):
    refused = [line for line in log_of(fuzzed.home, "n0") if line["event"] == "rejected"]
    assert fuzzed.status.rejected > MESSAGES / 10
    assert {line["sender"] for line in refused} == {"n1", "operator"}
    reasons = {"malformed", "manifest", "configuration", "farewell", "not a neighbour"}
    assert {line["reason"] for line in refused} >= reasons
    assert len(refused) < MESSAGES / 10  # a flood of messages is no flood of lines


def test_memory_did_not_grow(fuzzed):
    assert fuzzed.grown < 64 * MEGABYTE


def test_a_real_node_refuses_tls_1_2(fuzzed):
    assert fuzzed.tls_1_2 == b""
    assert fuzzed.tls_1_3


def test_a_caller_that_says_nothing_is_hung_up_on(fuzzed):
    assert fuzzed.said_to_silence == b""


def test_all_nodes_ended_with_the_models_of_the_simulator(fuzzed):
    assert fuzzed.ended, fuzzed.exits
    assert set(fuzzed.exits.values()) == {0}
    assert is_simulated(fuzzed.home)


def test_nodes_wrote_into_their_own_folders_only(fuzzed):
    runs = {fuzzed.home.node(member.name).run for member in fuzzed.home.members}
    assert {
        next((run for run in runs if run in path.parents), path) for path in fuzzed.files
    } == runs


# --- a man in the middle --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory):
    """Three nodes; before n1 stands somebody with its own key, who spoils half of the letters to n0."""
    algorithm = {"name": "lppa", "lr": 0.05, "fresh": True, "masks": "sent"}
    config = plan(algorithm, rounds=4, iterations=10, clients=3)
    home = federation(tmp_path_factory.mktemp("spoilt") / "f", config, clients=3)
    address, hidden = home.manifest().member("n1").address, f"127.0.0.1:{free_ports(1)[0]}"
    spoiler = Spoiler("n0", seed=7)
    with (
        Middleman(home, "n1", address, hidden, spoiler),
        ForkedFederation(home, listen={"n1": hidden}) as local,
    ):
        ended = local.wait(2 * PATIENCE)
        words = {node.name: node.last_words() for node in local.failed()}
    return SimpleNamespace(home=home, ways=spoiler.spoilt, ended=ended, words=words)


def test_spoilt_letters_do_not_change_the_result(spoilt):
    assert spoilt.ended, spoilt.words
    assert is_simulated(spoilt.home)


def test_spoilt_letters_were_refused(spoilt):
    assert min(spoilt.ways.values()) > 0, spoilt.ways
    run = {name: spoilt.home.node(name).run for name in ("n0", "n2")}
    refused = {
        name: json.loads((run[name] / "summary.json").read_text())["rejected"] for name in run
    }
    # Twice the same letter, or a notice of another generation, does no harm.
    assert refused["n0"] >= sum(spoilt.ways.values()) / 2
    assert refused["n2"] == 0  # whose letters nobody spoilt
    lines = [line for line in log_of(spoilt.home, "n0") if line["event"] == "rejected"]
    assert {line["sender"] for line in lines} == {"n1"}
    assert {line["reason"] for line in lines} >= {"malformed", "iteration", "checksum", "truncated"}
