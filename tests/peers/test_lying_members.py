"""Members that lie or send ruinous numbers are refused and named; false accusations name no one."""

import hashlib
import json

import numpy as np
import pytest
from chaos import ForkedFederation, logged, unhealthy, until_logged
from federations import federation, free_ports, log_of, plan
from hostile import frame
from mitm import MitmProxy

from support.misuse import misuse_message
from tacit.core.storage import read_json
from tacit.peer.federation.equivocation import Proof, Sender, sign_list, verify_list
from tacit.peer.federation.federation_client import FederationClient
from tacit.peer.node.digest_witness import digest_of_one
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.transport import SERVICE, grpc, open_channel

FROM = 3  # the iteration of the first lie
HONEST = ("n0", "n2", "n3")


class Equivocator:
    """n1 sends n2 other numbers than its other neighbours; `signs` what each of them got."""

    def __init__(self, home, signs):
        self._home, self._signs = home, signs
        self.changed = {}

    def corrupt(self, caller, header, content):
        if caller != "n2" or header.exchange.tick < FROM:
            return frame(header=header) + content, False
        changed = content[:-4] + (np.frombuffer(content[-4:], np.float32) + 1).tobytes()
        header.sha256 = hashlib.sha256(changed).digest()
        place = header.exchange.tick, header.exchange.index
        self.changed[place] = digest_of_one(header.sha256)
        return frame(header=header) + changed, False

    def compare(self, caller, answer):
        if caller != "n2" or not self._signs:
            return answer
        lists = wire.SignedDigestLists.FromString(answer).lists
        node = self._home.node("n1")
        told = []
        for signed in lists:
            one = verify_list(signed, node.ca())
            digests = {at: self.changed.get(at, digest) for at, digest in one.digests.items()}
            told.append(sign_list(one.sender, one.after, one.last, digests, node.credentials()))
        return wire.SignedDigestLists(lists=[one.signed for one in told]).SerializeToString()


@pytest.fixture
def home(tmp_path):
    config = plan({"name": "dsg", "lr": 0.05}, 2000, clients=4, graph="complete")
    return federation(tmp_path / "f", config, clients=4)


def equivocating(home, signs):
    """The federation with n1 behind a proxy that has its key and changes what n2 gets."""
    address, backend = home.manifest().member("n1").address, f"127.0.0.1:{free_ports(1)[0]}"
    liar = Equivocator(home, signs)
    answers = {"CompareDigests": liar.compare}
    proxy = MitmProxy(home, "n1", address, backend, liar.corrupt, answers)
    return proxy, ForkedFederation(home, listen={"n1": backend}, save_seconds=0.0)


def asked(home):
    """The status of all nodes, as the operator asks for it."""
    client = FederationClient(home.manifest(), home.operator_credentials(), home.ca())
    return client.status(30)


def test_a_member_that_signs_two_messages_is_proved_to_lie(home):
    proxy, local = equivocating(home, signs=True)
    with proxy, local as running:
        for name in HONEST:
            (line,) = until_logged(home, name, "equivocation")
            assert (line["level"], line["member"]) == ("error", "n1")
            assert "n1 has signed two different messages" in unhealthy(home, name)
            path = home.node(name).run / "evidence" / "equivocation-n1.json"
            proof = Proof.from_json(path.read_text(), home.ca())
            assert proof.name == "n1"
            assert proof.exchange[0] >= FROM
        # The same after a restart, from the proof alone.
        running.nodes["n0"].process.terminate()
        assert running.nodes["n0"].process.wait(60) == 0
        running.start("n0")
        until_logged(home, "n0", "started", 2)
        assert "n1 has signed two different messages" in unhealthy(home, "n0")
        assert len(until_logged(home, "n0", "equivocation")) == 1
        reports = {one.member.name: one.status for one in asked(home)}
        assert all("n1 has signed two" in reports[name].problem for name in HONEST)
    # Some waits for n1, and all others for that one.
    lines = [line for name in HONEST for line in log_of(home, name)]
    refused = [line for line in lines if line["event"] == "message refused"]
    assert {(line["sender"], line["reason"]) for line in refused} == {("n1", "equivocation")}


def test_a_member_that_signs_one_message_is_refused_by_whom_it_lied_to(home):
    proxy, local = equivocating(home, signs=False)
    with proxy, local:
        (line,) = until_logged(home, "n2", "message refused")
        assert (line["sender"], line["reason"]) == ("n1", "equivocation")
        assert "n1 has signed that it sent something else" in unhealthy(home, "n2")
    for name in ("n0", "n2", "n3"):
        assert not (home.node(name).run / "evidence").exists()
    assert not [one for one in log_of(home, "n0") if one.get("sender") == "n1"]


def forged(home, salt):
    """Lists that accuse n2, made by n1: none is signed by n2."""
    manifest, n1, n2 = home.manifest(), home.node("n1"), home.node("n2")
    sender = Sender(manifest.federation, manifest.generation, "n2", salt)
    other = sign_list(sender, 0, 1, {(1, 0): bytes(32)}, n1.credentials())
    borrowed = wire.SignedDigestList()
    borrowed.CopyFrom(other.signed)
    borrowed.certificate = n2.certificate()
    old = sign_list(
        Sender(sender.federation, 7, "n2", salt), 0, 1, {(1, 0): bytes(32)}, n2.credentials()
    )
    return {"own key": other.signed, "borrowed": borrowed, "another roster": old.signed}


def test_false_accusations_change_nothing(tmp_path):
    config = plan({"name": "dsg", "lr": 0.05}, rounds=30, clients=3)
    home = federation(tmp_path / "f", config, clients=3)
    with ForkedFederation(home) as local:
        # It trains: all salts are agreed on.
        until_logged(home, "n0", "evaluated")
        node, manifest = home.node("n1"), home.manifest()
        salts = read_json(home.node("n0").run / "checkpoints" / "salts-000001.json")["salts"]
        address = manifest.member("n0").address
        channel = open_channel(address, "n0", manifest.federation, node.credentials(), node.ca())
        call = channel.unary_unary(f"/{SERVICE}/CompareDigests")
        for signed in forged(home, bytes.fromhex(salts["n2"])).values():
            known = wire.SignedDigestLists(lists=[signed])
            request = wire.DigestRequest(generation=1, known=known).SerializeToString()
            with pytest.raises(grpc.RpcError) as refusal:
                call(request, timeout=30)
            assert refusal.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        channel.close()
        assert all(one.process.wait(120) == 0 for one in local.nodes.values())
    for name in ("n0", "n1", "n2"):
        assert not (home.node(name).run / "evidence").exists()
        events = {line["event"] for line in log_of(home, name)}
        assert "finished" in events
        assert not events & {"equivocation", "message refused"}
    rejected = [one for one in log_of(home, "n0") if one["event"] == "rejected"]
    assert {one["sender"] for one in rejected} == {"n1"}


def test_a_file_that_proves_nothing_is_no_proof(home, tmp_path):
    node = home.node("n2")
    sender = Sender(home.manifest().federation, 1, "n2", b"salt")
    same = sign_list(sender, 0, 2, {(1, 0): bytes(32)}, node.credentials())
    more = sign_list(sender, 0, 2, {(1, 0): bytes(32), (2, 0): bytes(32)}, node.credentials())
    other = sign_list(sender, 0, 2, {(1, 0): b"x" * 32}, node.credentials())
    text = json.loads(Proof.of(same, other).to_json())
    assert Proof.from_json(json.dumps(text), home.ca()).exchange == (1, 0)
    # The words around what is signed do not count.
    text["member"] = text["statement"] = "n3"
    assert Proof.from_json(json.dumps(text), home.ca()).name == "n2"
    text["lists"][1] = text["lists"][0]
    assert "do not contradict" in misuse_message(Proof.from_json, json.dumps(text), home.ca())
    assert "do not contradict" in misuse_message(Proof.of, same, more)


# --- ruinous numbers ------------------------------------------------------------------------------

RUINED_FROM = 4  # the iteration of the first ruinous message


def ruined(caller, header, content):
    """A message, from iteration RUINED_FROM on with every number at ±3e38."""
    if header.exchange.tick < RUINED_FROM:
        return frame(header=header) + content, False
    changed = bytearray(content)
    start = 8 + int.from_bytes(changed[:8], "little")
    numbers = np.frombuffer(content, dtype=np.float32, offset=start)
    changed[start:] = np.copysign(np.float32(3e38), numbers).tobytes()
    header.sha256 = hashlib.sha256(changed).digest()
    return frame(header=header) + bytes(changed), False


def test_ruinous_numbers_are_refused_and_their_sender_is_named(tmp_path):
    config = plan({"name": "dsgt", "lr": 0.05}, clients=3)
    home = federation(tmp_path / "f", config, clients=3)
    address, backend = home.manifest().member("n1").address, f"127.0.0.1:{free_ports(1)[0]}"
    with (
        MitmProxy(home, "n1", address, backend, ruined),
        ForkedFederation(home, listen={"n1": backend}, save_seconds=0.0) as local,
    ):
        for name in ("n0", "n2"):
            (line,) = until_logged(home, name, "message refused")
            assert (line["level"], line["sender"]) == ("error", "n1")
            # A slow node knows the digest of what n1 really sent before it reads the message.
            why = {"too large": "holds 3e+38", "equivocation": "sent something else"}
            assert why[line["reason"]] in line["why"]
            assert f"{name} refuses a message of n1" in unhealthy(home, name)
        # The same after a restart, from an undamaged state.
        local.nodes["n0"].process.terminate()
        assert local.nodes["n0"].process.wait(60) == 0
        local.start("n0")
        _, again = until_logged(home, "n0", "message refused", 2)
        assert again["sender"] == "n1"
        assert [line["step"] for line in logged(home, "n0", "resumed")] == [RUINED_FROM - 1]
        assert not local.failed()
