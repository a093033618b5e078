"""Certificates expire, are renewed and revoked, and members move, while nodes train."""

import contextlib
import json
import shutil
import signal
import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta

import pytest
from chaos import (
    FRESH,
    ForkedFederation,
    announce,
    logged,
    monitored,
    step_of,
    until,
    until_step,
)
from federations import federation, free_ports, plan, twin

from tacit.core.storage import write_bytes
from tacit.peer.federation import signing
from tacit.peer.federation.certificates import certificate_info
from tacit.peer.federation.federation_client import FederationClient
from tacit.peer.federation.member_bundle import bundle_path, install_bundle, read_bundle
from tacit.peer.federation.member_request import init_member, read_request, renew_member
from tacit.peer.federation.membership import change_address, revoke, sign_renewal
from tacit.peer.federation.operator import add
from tacit.peer.wire.transport import SERVICE, grpc, open_channel

STEPS = 150
NAMES = ["n0", "n1", "n2", "n3"]  # on a ring


@pytest.fixture
def places(tmp_path):
    """The nodes' folders, and the operator's on another machine: what one changes, both learn."""
    config = plan(FRESH, rounds=STEPS // 10, iterations=10, clients=4, evaluate_every=5)
    nodes = federation(tmp_path / "nodes", config, clients=4)
    operator = twin(nodes, tmp_path / "operator")
    for name in NAMES:
        (nodes.node(name).path / f"{name}.request").write_text("")  # as if it had made its keys
    return nodes, operator


def renew(nodes, operator, name):
    """The member makes a new key, the operator signs it, the member installs the certificate."""
    place = nodes.node(name).path
    sign_renewal(operator.path, read_request(renew_member(place)))
    install_bundle(place, read_bundle(bundle_path(operator, name)))
    return certificate_info(nodes.node(name).credentials().certificate).fingerprint


def finish(local):
    assert local.wait(240), [(node.name, node.last_error()) for node in local.failed()]


def check_uninterrupted(nodes, names=NAMES):
    """They did all iterations, in one process and under one roster."""
    for name in names:
        summary = json.loads((nodes.node(name).run / "summary.json").read_text())
        assert summary["steps"] == STEPS
        assert len(logged(nodes, name, "started")) == 1
        assert not logged(nodes, name, "roster changed")


def shown_certificate(nodes, name, tmp_path):
    """The fingerprint of the certificate that a node shows to new connections."""
    own, member = nodes.node("n0").credentials(), nodes.manifest().member(name)
    (tmp_path / "client.pem").write_bytes(own.certificate + own.key)
    context = ssl.create_default_context(cadata=nodes.ca().decode())
    context.check_hostname = False
    context.load_cert_chain(tmp_path / "client.pem")
    host, _, port = member.address.rpartition(":")
    with (
        socket.create_connection((host, int(port)), 60) as raw,
        context.wrap_socket(raw) as connection,
    ):
        der = connection.getpeercert(binary_form=True)
    return certificate_info(ssl.DER_cert_to_PEM_cert(der).encode()).fingerprint


def ask(channel, method="GetStatus"):
    """An answer, or why there is none."""
    try:
        return channel.unary_unary(f"/{SERVICE}/{method}")(b"", timeout=60)
    except grpc.RpcError as problem:
        return problem.details()


@contextlib.contextmanager
def calling(nodes, name, own):
    """A channel to a node with some credentials."""
    manifest = nodes.manifest()
    address = manifest.member(name).address
    channel = open_channel(address, name, manifest.federation, own, nodes.ca())
    try:
        yield channel
    finally:
        channel.close()


def test_certificates_are_renewed_and_a_member_moves_while_training(places, tmp_path):
    nodes, operator = places
    with ForkedFederation(nodes, save_seconds=0.2) as local:
        until_step(nodes, 10, NAMES)
        for name in ("n1", "n2"):
            before = shown_certificate(nodes, name, tmp_path)
            after = renew(nodes, operator, name)
            assert before != after
            assert shown_certificate(nodes, name, tmp_path) == after
            until(lambda name=name: logged(nodes, name, "certificate renewed"), "it is noticed")
        # Connections that break now are replaced by ones with the new certificates.
        local.nodes["n3"].process.terminate()
        local.nodes["n3"].process.wait(60)
        (port,) = free_ports(1)
        change_address(operator.path, "n3", f"127.0.0.1:{port}")
        nodes.node("n3").update_log(operator.log().text)  # from its new bundle
        # Only n1 is told, which is no neighbour of n3.
        client = FederationClient(nodes.manifest(), operator.operator_credentials(), operator.ca())
        client._channels, client._members = client._channels[1:2], client._members[1:2]
        assert client.announce(*operator.signed_update()) == {"n1": ""}
        client.close()
        local.start("n3")
        finish(local)
    check_uninterrupted(nodes, NAMES[:3])
    for name in NAMES:
        assert not logged(nodes, name, "certificate rejected")
        assert not logged(nodes, name, "rejected")
        assert nodes.node(name).log() == operator.log()
    started = logged(nodes, "n3", "started")[-1]
    assert started["listen"] == f"127.0.0.1:{port}"
    assert started["step"] > 0


def test_an_expired_certificate_ends_no_open_connection(places, tmp_path, monkeypatch):
    nodes, operator = places
    node = nodes.node("n1")
    public = certificate_info(node.credentials().certificate)
    key = signing.node_public_key(node.credentials().certificate)
    authority, federation = operator.authority(), nodes.manifest().federation
    with ForkedFederation(nodes) as local:
        until_step(nodes, 2, NAMES)
        end = datetime.now(UTC) + timedelta(seconds=6)
        monkeypatch.setattr(signing, "_end", lambda days: end)
        short = signing.issue_certificate(authority, key, public.name, federation, 1)
        monkeypatch.undo()
        write_bytes(node.path / "node.pem", short)
        # It is announced.
        status = monitored(nodes, "n1")
        assert "expires in less than a day" in status["certificate_notice"]
        assert abs(status["certificate_expiry"] - end.timestamp()) <= 1
        assert monitored(nodes, "n0")["certificate_notice"] == ""
        until(lambda: logged(nodes, "n1", "certificate expires"), "the log announces it")
        # Hold all nodes until it has expired, so that they do not finish before.
        for each in local.nodes.values():
            each.process.send_signal(signal.SIGSTOP)
        until(lambda: datetime.now(UTC) > end + timedelta(seconds=1), "it has expired")
        for each in local.nodes.values():
            each.process.send_signal(signal.SIGCONT)
        step = step_of(nodes, "n0")
        assert step < STEPS
        until_step(nodes, step + 1, ["n0"])
        health = monitored(nodes, "n1", "health")
        assert not health["healthy"]
        assert "the certificate of n1 expired on" in health["reason"]
        with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
            shown_certificate(nodes, "n1", tmp_path)
        # A new certificate heals it.
        assert renew(nodes, operator, "n1") == shown_certificate(nodes, "n1", tmp_path)
        assert monitored(nodes, "n1")["certificate_notice"] == ""
        finish(local)
    check_uninterrupted(nodes)


def test_a_revoked_member_is_shut_out_at_once_and_comes_back_with_new_keys(places, tmp_path):
    """It brings its state along, and all do all iterations."""
    nodes, operator = places
    others = NAMES[:3]
    with ForkedFederation(nodes, save_seconds=0.05) as local:
        until_step(nodes, 10, NAMES)
        until(lambda: (monitored(nodes, "n3") or {}).get("saved", 0) > 0, "n3 has saved its state")
        before, stolen = nodes.manifest(), nodes.node("n3").credentials()
        with calling(nodes, "n1", stolen) as channel:
            assert isinstance(ask(channel), bytes)
            # A connection of the thief is open, with a call that does not end by itself.
            waiting = channel.stream_unary(f"/{SERVICE}/GetStatus").future(silence(waits := []))
            revoke(operator.path, "n3", "its key was stolen")
            assert announce(operator, before)["n0"] == ""
            with pytest.raises(grpc.RpcError):
                waiting.result(120)
            waits[0].set()
            assert "revoked this certificate of n3: entry 6" in ask(channel)
        for name in others:
            with calling(nodes, name, stolen) as channel:
                for method in ("Hello", "GetStatus", "GetManifest"):
                    until(
                        lambda channel=channel, method=method: "revoked" in str(
                            ask(channel, method)
                        ),
                        "the revocation has arrived",
                    )  # fmt: skip
        assert local.nodes["n3"].process.wait(120) == 0  # the operator told it
        for name in others:
            until(lambda name=name: logged(nodes, name, "roster changed"), "n3 is removed")
        # Hold the others, so that they do not finish before it is back.
        for name in others:
            local.nodes[name].process.send_signal(signal.SIGSTOP)
        address = before.member("n3").address
        request = read_request(init_member(tmp_path / "again", "n3", address))
        add(operator.path, "n3", address, request=request)
        install_bundle(tmp_path / "again", read_bundle(bundle_path(operator, "n3")))
        old = nodes.node("n3").path
        shutil.copytree(old / "run", tmp_path / "again" / "run")
        shutil.rmtree(old)
        shutil.move(tmp_path / "again", old)
        for name in others:
            local.nodes[name].process.send_signal(signal.SIGCONT)
        local.start("n3")
        announce(operator, before)
        finish(local)
    for name in NAMES:
        summary = json.loads((nodes.node(name).run / "summary.json").read_text())
        assert (summary["steps"], summary["generation"]) == (STEPS, 3)
    for name in others:
        assert len(logged(nodes, name, "started")) == 1
    assert logged(nodes, "n3", "resumed")[-1]["step"] > 0


def silence(waits):
    """Requests that never come."""
    waits.append(threading.Event())
    waits[0].wait(240)
    yield from ()


def test_a_kept_member_continues_with_a_new_certificate_and_its_old_key_is_refused(
    places, tmp_path
):
    """Its neighbours wait for it, in the same generation, and nothing is lost."""
    nodes, operator = places
    thief = twin(nodes, tmp_path / "thief")
    with ForkedFederation(nodes, save_seconds=0.2) as local:
        until_step(nodes, 10, NAMES)
        old = nodes.node("n2").credentials()
        revoke(operator.path, "n2", keep=True)
        assert set(announce(operator, nodes.manifest()).values()) == {""}
        health = monitored(nodes, "n2", "health")
        assert not health["healthy"]
        assert health["reason"] == "the certificate of n2 is revoked by entry 6 of the log"
        until(lambda: any("n2" in one for one in monitored(nodes, "n1")["waiting_for"]), "waits")
        # A thief with its old key takes its place.
        local.nodes["n2"].process.terminate()
        local.nodes["n2"].process.wait(60)
        renew(nodes, operator, "n2")
        told = announce(operator, nodes.manifest())
        assert [told[name] for name in ("n0", "n1", "n3")] == [""] * 3
        with ForkedFederation(thief) as stolen:
            for name in ("n0", "n1", "n3"):
                stolen.nodes[name].process.kill()
                stolen.nodes.pop(name).process.wait()
            for name in ("n1", "n3"):
                until(
                    lambda name=name: logged(nodes, name, "certificate rejected"),
                    "the old certificate is refused in the handshake",
                )
        with calling(nodes, "n1", old) as channel:
            assert "revoked" in str(ask(channel))
        step = step_of(nodes, "n1")
        local.start("n2")
        until_step(nodes, step + 3, NAMES)
        finish(local)
    check_uninterrupted(nodes, ["n0", "n1", "n3"])
