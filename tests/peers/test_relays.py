"""Members that can only connect outward: training through relays, whatever the relays do."""

import functools
import json
import random
import threading

import pytest
import torch
from chaos import (
    FRESH,
    LONG,
    ForkedCommand,
    ForkedFederation,
    logged,
    run_in_threads,
    until,
    until_step,
)
from federations import free_ports, models, plan, twin
from relays import Harm, SpyingServer, relay_in_thread, relayed_federation

from tacit.peer.federation.federation_client import FederationClient
from tacit.peer.federation.membership import change_address
from tacit.peer.federation.operator import create
from tacit.peer.federation.relay_changes import add_relay
from tacit.peer.federation.relays import RelayFolder
from tacit.peer.relay.server import RelayServer
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.message_stream import MessageStream, open_stream
from tacit.peer.wire.transport import SERVICE, grpc, open_channel

NAMES = ["north-hospital", "south-hospital", "west-hospital"]
DIRECT = NAMES[:1]
STEPS = 60


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A federation of three, two of them behind two relays. It is only copied, never run."""
    config = plan(FRESH, rounds=6, iterations=10, hidden=4, clients=3)
    folder = tmp_path_factory.mktemp("relays") / "home"
    return relayed_federation(folder, config, NAMES, DIRECT, relays=2)


@pytest.fixture(scope="module")
def expected(home):
    """The final models without relays: all members have addresses."""
    direct = twin(home, home.path.parent / "direct")
    for name, port in zip(NAMES[1:], free_ports(2), strict=True):
        change_address(direct.path, name, f"127.0.0.1:{port}")
    run_in_threads(direct)
    return models(direct)


@pytest.fixture
def relayed(home, tmp_path):
    return twin(home, tmp_path / "relayed")


def relay_process(home, name):
    """A relay as a process of its own."""
    return ForkedCommand(["relay", str(home.path / "relays" / name)], home.path / f"{name}.jsonl")


def ended(running):
    assert running.wait(LONG), [node.last_error() for node in running.failed()]


def client_of(home):
    return FederationClient(home.manifest(), home.operator_credentials(), home.ca(), home.log())


def test_training_through_a_relay_that_dies_and_comes_back_changes_no_bit(relayed, expected):
    """Both relays are killed in turn, the second is up only while the first is down."""
    first = relay_process(relayed, "r1")
    client = client_of(relayed)
    try:
        with ForkedFederation(relayed, save_seconds=0.3) as running:
            until_step(relayed, 10, NAMES)
            reports = {one.member.name: one for one in client.status(LONG)}
            assert {name: reports[name].relay for name in NAMES} == {
                NAMES[0]: "", NAMES[1]: "r1", NAMES[2]: "r1"
            }  # fmt: skip
            first.kill()
            first.wait(LONG)
            second = relay_process(relayed, "r2")
            step = max(one.status.step for one in reports.values() if one.status)
            until_step(relayed, min(STEPS, step + 10), NAMES)
            second.kill()
            second.wait(LONG)
            first = relay_process(relayed, "r1")
            ended(running)
    finally:
        client.close()
        for one in (first, second):
            one.kill()
            one.wait(LONG)
    assert torch.equal(models(relayed), expected)
    for line in (relayed.path / "r1.jsonl").read_text().splitlines():
        assert json.loads(line)["node"] == "r1"
    for name in NAMES[1:]:
        assert {line["relay"] for line in logged(relayed, name, "relay reached")} == {"r1", "r2"}
        assert logged(relayed, name, "relay not reached")
    [line] = [
        line for line in logged(relayed, NAMES[1], "connected") if line["neighbour"] == NAMES[2]
    ][:1]
    assert line["relay"] == "r1"


def test_a_relay_sees_neither_names_nor_tensors(relayed, expected, monkeypatch):
    seen, sent, lock = bytearray(), [], threading.Lock()

    def show(data):
        with lock:
            seen.extend(data)
        return data

    send_message = MessageStream.send_message

    def sending(stream, message):
        with lock:
            sent.append(bytes(message.frame))
        send_message(stream, message)

    monkeypatch.setattr(MessageStream, "send_message", sending)
    with relay_in_thread(relayed, server=functools.partial(SpyingServer, show=show)):
        run_in_threads(relayed)
    assert torch.equal(models(relayed), expected)
    # It sees the connections between members from their first byte on, so it can tell their kinds.
    assert b"tacit-messages" in seen
    assert b"h2" in seen
    # Five of the six connections for messages lead to a member behind the relay or from one.
    assert len(seen) > 4 * sum(map(len, sent)) / 6
    manifest = relayed.manifest()
    words = [*NAMES, manifest.federation, "operator", "Hello", "GetManifest", "sha256", "lppa"]
    texts = [word.encode() for word in words] + [manifest.hash, manifest.text[:64]]
    texts += [part for frame in sent for part in (frame[-64:-32], frame[100:132])]
    found = [text for text in texts if text in seen]
    assert found == []
    # The check would find what is in a message, if that was in the clear.
    clear = bytes(seen) + sent[-1]
    assert [text for text in texts if text in clear]


def test_a_relay_that_changes_bytes_is_noticed_and_changes_nothing(relayed, expected):
    harm = Harm(seed=7, share=0.1)
    server = functools.partial(SpyingServer, show=harm)
    with relay_in_thread(relayed, server=server), ForkedFederation(relayed) as running:
        ended(running)
    assert min(harm.counts.values()) >= 3, harm.counts
    assert torch.equal(models(relayed), expected)
    retries = sum(len(logged(relayed, name, "neighbour not reached")) for name in NAMES)
    rejections = [line for name in NAMES for line in logged(relayed, name, "rejected by neighbour")]
    assert retries + len(rejections) > 0
    for name in NAMES:
        # TLS notices first: no changed byte gets to what reads messages.
        assert not [
            line
            for line in logged(relayed, name, "rejected")
            if line["reason"] in ("checksum", "malformed", "size", "iteration")
        ]


class Confusing(RelayServer):
    """Often connects callers with another member than the one they name."""

    dice = random.Random(5)
    confused = 0

    async def _take(self, name, to):
        if self.dice.random() < 0.7:
            to = next(one for one in NAMES[1:] if one != to)
            Confusing.confused += 1
        return await super()._take(name, to)


def test_a_member_is_not_taken_for_another_that_the_relay_connects_instead(relayed, expected):
    Confusing.confused = 0
    with relay_in_thread(relayed, server=Confusing), ForkedFederation(relayed) as running:
        ended(running)
    assert Confusing.confused >= 3
    assert torch.equal(models(relayed), expected)
    why = [
        line["why"]
        for name in NAMES
        for event in ("neighbour not reached", "rejected by neighbour", "certificate rejected")
        for line in logged(relayed, name, event)
    ]
    assert any("Hostname" in text for text in why)


def check_relay_is_refused(home):
    """A relay cannot call nodes with its certificate, not even for the manifest."""
    own, manifest = RelayFolder(home.path / "relays" / "r1").credentials(), home.manifest()
    member = manifest.member(NAMES[0])
    channel = open_channel(member.address, member.name, manifest.federation, own, home.ca())
    for method in ("GetManifest", "AnnounceManifest", "GetStatus", "GetScores", "Agree", "Hello"):
        with pytest.raises(grpc.RpcError) as refusal:
            channel.unary_unary(f"/{SERVICE}/{method}")(b"", timeout=LONG)
        assert refusal.value.code() == grpc.StatusCode.PERMISSION_DENIED
    channel.close()
    address, name, federation = member.address, member.name, manifest.federation
    stream = open_stream(address, name, federation, own, home.ca())
    answer = stream.receive(wire.StreamAnswer)
    assert (answer.refusal.code, "r1 is a relay" in answer.refusal.text) == (
        "PERMISSION_DENIED", True
    )  # fmt: skip
    stream.close()


def test_a_member_moves_behind_the_relay_while_it_trains(home, tmp_path):
    """The operator's log says so; neighbours follow it without a restart."""
    config = plan(FRESH, rounds=60, iterations=10, hidden=4, clients=3)
    moving = relayed_federation(tmp_path / "moving", config, NAMES, NAMES)
    with relay_in_thread(moving), ForkedFederation(moving) as running:
        until_step(moving, 5, NAMES)
        change_address(moving.path, NAMES[1], "outgoing")
        client = client_of(moving)
        until(
            lambda: {one.member.name: one.relay for one in client.status(5.0)}[NAMES[1]] == "r1",
            "it is reached through the relay",
        )
        client.close()
        check_relay_is_refused(moving)
        for name in (NAMES[0], NAMES[2]):
            until(
                lambda name=name: [
                    line for line in logged(moving, name, "connected") if line.get("relay") == "r1"
                ],
                f"{name} is connected through the relay",
            )
        assert not running.failed()


@pytest.mark.slow
def test_members_behind_a_relay_go_on_without_one_that_is_gone(tmp_path):
    names = ["n0", "n1", "n2", "n3", "n4"]
    config = plan({"name": "dsgt", "lr": 0.05}, rounds=20, iterations=10, hidden=4)
    nodes = dict.fromkeys(names, "outgoing")
    home = create(tmp_path / "f", "clinics", nodes, config, min_neighbours=1, patience="15s")
    add_relay(home.path, "r1", f"127.0.0.1:{free_ports(1)[0]}")
    with relay_in_thread(home), ForkedFederation(home) as running:
        until_step(home, 5, names)
        gone = running.nodes.pop("n3").process
        gone.kill()
        gone.wait(LONG)
        ended(running)
    for name in running.nodes:
        assert [line["suspended"] for line in logged(home, name, "members agreed")] == [["n3"]]
