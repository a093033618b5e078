"""The handlers of a node, called without a network: what each answers to which caller."""

import functools
import json
import math
import os
import shutil
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from served_node import ServedNode

from support.clinics import clinics
from tacit.config.loading import with_keys
from tacit.peer.federation.certificates import server_name
from tacit.peer.federation.federation_client import status_to_dict
from tacit.peer.federation.membership import revoke
from tacit.peer.federation.operator import remove
from tacit.peer.node import finished_peers
from tacit.peer.node.callers import Caller, Refused
from tacit.peer.node.fresh_keys import FreshKeys
from tacit.peer.node.node_state import ActiveRoster
from tacit.peer.node.service import PeerService
from tacit.peer.node.spent_budget import SpentBudget
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.transport import (
    MAX_MANIFEST_BYTES,
    MAX_REQUEST_BYTES,
    SERVICE,
    caller_certificate,
    grpc,
)
from tacit.privacy.guarantee import Privacy

METHODS = (
    "Hello", "NotifyFinished", "GetStatus", "GetScores", "GetManifest", "AnnounceManifest",
    "CompareDigests",
)  # fmt: skip
StatusCode = grpc.StatusCode
BANKS = functools.partial(server_name, federation="banks-01234567")
CLINICS = functools.partial(server_name, federation="clinics-01234567")


@functools.cache
def certificate(common_name, *names):
    """A certificate (PEM) for these names; the tests assume that gRPC has verified it."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    builder = x509.CertificateBuilder(
        subject, subject, key.public_key(), 1, now, now + timedelta(days=1)
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), False
        )
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


class Aborted(Exception):
    def __init__(self, code, why):
        super().__init__(why)
        self.code = code


class FakeContext:
    """A call as gRPC shows it to a handler."""

    def __init__(self, common_name, *names):
        self._certificate = certificate(common_name, *names)
        self._active, self._callbacks = True, []

    def peer(self):
        return "ipv4:127.0.0.1:40000"

    def auth_context(self):
        return {"x509_pem_cert": [self._certificate]}

    def abort(self, code, why):
        raise Aborted(code, why)

    def is_active(self):
        return self._active

    def add_callback(self, callback):
        self._callbacks.append(callback)

    def cancel(self):
        self._active = False
        for callback in self._callbacks:
            callback()


class CalledNode(ServedNode):
    """A node, and ways to call it."""

    def __init__(self, home):
        super().__init__(home)
        self.handlers = PeerService(self.state).handlers()

    def context(self, caller):
        return FakeContext(caller, server_name(caller, self.state.manifest.federation))

    def handler(self, method):
        return self.handlers.service(SimpleNamespace(method=f"/{SERVICE}/{method}"))

    def call(self, method, raw=b"", caller="b", context=None):
        """The answer of a method."""
        context = context or self.context(caller)
        return self.handler(method).stream_unary(iter([raw]), context)

    def refusal(self, method, raw=b"", caller="b"):
        with pytest.raises(Aborted) as caught:
            self.call(method, raw, caller)
        return caught.value.code, str(caught.value)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return clinics(tmp_path_factory.mktemp("served") / "f", "abcd")


@pytest.fixture
def node(home):
    served = CalledNode(home)
    yield served
    shutil.rmtree(served.folder.run, ignore_errors=True)


@pytest.fixture(scope="module")
def later(home, tmp_path_factory):
    """The federation after c was removed. One copy: nodes store its log in the folders of home."""
    changed = type(home)(tmp_path_factory.mktemp("service") / "later")
    shutil.copytree(home.path, changed.path)
    remove(changed.path, "c")
    return changed


# --- callers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("common_name", "names", "caller"),
    [
        ("b", [CLINICS("b")], "b"),
        ("c", [BANKS("b"), CLINICS("c")], "c"),
        ("c", [CLINICS("b")], None),
        ("b", [BANKS("b")], None),
        ("b", [CLINICS("b").replace(".", "", 1)], None),
        ("b", [CLINICS("b") + ".example.org"], None),
        ("b", [CLINICS("b").upper()], None),
        ("b", ["b.clinics-01234567.tacit"], None),
        ("b", [CLINICS("b"), CLINICS("c")], None),  # ambiguous
        ("b", [], None),
    ],
)
def test_the_certificate_names_the_caller_in_this_federation(common_name, names, caller):
    log = SimpleNamespace(accepts=lambda name, fingerprint: True)
    manifest = SimpleNamespace(federation="clinics-01234567")
    state = SimpleNamespace(manifest=manifest, changes=SimpleNamespace(log=log))
    found = Caller(state, caller_certificate(FakeContext(common_name, *names)))
    assert found.name == caller
    assert found.is_revoked == (caller is None)
    if caller is None:
        with pytest.raises(Refused, match="not of federation clinics"):
            found.identified(even_revoked=True)


def test_a_caller_without_a_certificate_is_refused(node):
    context = FakeContext("b")
    context._certificate = b""
    with pytest.raises(Aborted, match="not of federation clinics"):
        node.call("AnnounceManifest", context=context)
    context.auth_context = dict
    with pytest.raises(Aborted, match="not of federation clinics"):
        node.call("AnnounceManifest", context=context)


@pytest.mark.parametrize("caller", ["a", "b", "c", "operator"])
@pytest.mark.parametrize(
    ("manifest_agrees", "owner_agrees"),
    [(None, False), (None, True), (False, True), (True, False), (True, True)],
)
def test_loss_and_accuracy_are_told_only_if_manifest_and_owner_agree(
    node, caller, manifest_agrees, owner_agrees
):
    """They are computed from the owner's data, and no bound accounts for them."""
    if manifest_agrees is not None:
        active = node.state.active
        config = with_keys(active.manifest.config, "federation", share_metrics=manifest_agrees)
        node.state.active = replace(active, manifest=replace(active.manifest, config=config))
    node.state.owner_shares_scores = owner_agrees
    node.state.report(loss=0.25, accuracy=90.0)
    node.state.scores.add(5, 0.25, 90.0)
    status = wire.Status.FromString(node.call("GetStatus", caller=caller))
    scores = wire.Scores.FromString(node.call("GetScores", caller=caller))
    agreed = bool(manifest_agrees and owner_agrees)
    assert (status.HasField("loss"), status.HasField("accuracy")) == (agreed, agreed)
    assert list(scores.step) == ([5] if agreed else [])
    assert list(scores.loss) == ([0.25] if agreed else [])
    assert list(scores.accuracy) == ([90.0] if agreed else [])
    assert node.state.status().loss == 0.25  # for its owner


def test_the_status_has_a_budget_only_if_a_guarantee_was_promised(node, tmp_path):
    def told():
        return wire.Status.FromString(node.call("GetStatus", caller="b"))

    assert not told().HasField("privacy")
    assert status_to_dict(told())["privacy"] is None
    budget = Privacy(epsilon=3.0).budget(0.1, steps=40, clients=5)
    node.state.show_spent(SpentBudget(budget, FreshKeys(tmp_path / "keys", 1)))
    expected = {"sums": 0, "epsilon_spent": 0.0, "epsilon": 3.0, "delta": 1e-5}
    assert status_to_dict(told())["privacy"] == expected


@pytest.mark.parametrize("method", ["GetStatus", "GetScores"])
def test_others_do_not_get_the_status(node, method):
    node.state.owner_shares_scores = True
    refusal = (StatusCode.PERMISSION_DENIED, "z is not a member")
    assert node.refusal(method, caller="z") == refusal


# --- revoked certificates -------------------------------------------------------------------------


def test_a_revoked_caller_can_only_bring_a_newer_log(home, tmp_path):
    folder = type(home)(shutil.copytree(home.path, tmp_path / "f"))
    revoke(folder.path, "b", keep=True)
    node = CalledNode(folder)
    for method in METHODS:
        if method != "AnnounceManifest":
            code, why = node.refusal(method)
            assert code == StatusCode.PERMISSION_DENIED
            assert why == "the operator revoked this certificate of b: entry 6 of its log"
    assert node.rejected("revoked") == len(METHODS) - 1
    node.call("GetStatus", caller="c")
    # The operator signs a new certificate. Its owner brings the log that has it.
    context = node.context("b")
    new = context.auth_context()["x509_pem_cert"][0]
    folder.record(("certificate", {"name": "b", "certificate": new.decode()}))
    text, signature, log = folder.signed_update()
    raw = wire.SignedManifest(manifest=text, signature=signature, log=log).SerializeToString()
    assert node.call("AnnounceManifest", raw) == b""
    assert node.call("GetStatus", context=context)
    old = node.context("b")
    old._certificate = folder.node("b").certificate()
    with pytest.raises(Aborted, match="revoked"):
        node.call("GetStatus", context=old)


# --- errors of the node ---------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "part"), [("GetStatus", "status"), ("Hello", "node_info")])
def test_an_internal_error_is_logged_but_not_shown_to_the_caller(node, monkeypatch, method, part):
    def broken(*_, **__):
        raise ZeroDivisionError("something internal")

    monkeypatch.setattr(node.state, part, broken)
    code, why = node.refusal(method)
    assert (code, why) == (StatusCode.INTERNAL, "internal error of this node: see its log")
    line = json.loads(node.log.getvalue())
    assert (line["event"], line["level"], line["caller"]) == ("internal error", "error", "b")
    assert "something internal" in line["why"]


# --- too many calls -----------------------------------------------------------------------------


def silent_call(node, caller):
    """Open a call that sends no request; return a function that ends it."""
    begun, end = threading.Event(), threading.Event()

    def requests():
        begun.set()
        assert end.wait(60)
        yield b""

    handle = node.handler("GetManifest").stream_unary
    thread = threading.Thread(target=handle, args=(requests(), node.context(caller)), daemon=True)
    thread.start()
    assert begun.wait(60)

    def finish():
        end.set()
        thread.join(60)

    return finish


def test_callers_that_are_not_members_share_one_limit(node):
    finish = [silent_call(node, caller) for caller in ("y", "y", "x", "x")]
    assert node.refusal("GetManifest", caller="w")[0] == StatusCode.RESOURCE_EXHAUSTED
    assert node.call("GetManifest", caller="b")
    for one in finish:
        one()


# --- malformed requests -------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("raw", [b"\x0a\xff", b"\xff" * 30, b"\x08", b"\x0f"])
def test_what_cannot_be_parsed_is_refused_and_counted(node, method, raw):
    code, why = node.refusal(method, raw)
    assert code == StatusCode.INVALID_ARGUMENT
    assert why.startswith(f"{len(raw)} bytes that are no ")
    assert node.rejected("malformed") == 1


@pytest.mark.parametrize("method", METHODS)
def test_a_call_without_a_request_is_refused(node, method):
    with pytest.raises(Aborted, match="without a request"):
        node.handler(method).stream_unary(iter([]), node.context("b"))
    assert node.rejected("malformed") == 1


def test_a_caller_that_hangs_up_before_its_request_is_not_counted(node):
    context = node.context("b")
    context.cancel()
    assert node.handler("GetStatus").stream_unary(iter([]), context) == b""
    assert node.metrics.total("tacit_rejected_total") == 0


@pytest.mark.parametrize("method", [one for one in METHODS if one != "CompareDigests"])
def test_only_a_manifest_may_be_long(node, method):
    unknown_field = b"\x7a" + b"\x80\x80\x02" + bytes(1 << 15)
    assert MAX_REQUEST_BYTES < len(unknown_field) < MAX_MANIFEST_BYTES
    code, _ = node.refusal(method, unknown_field)
    expected = "FAILED_PRECONDITION" if method == "AnnounceManifest" else "INVALID_ARGUMENT"
    assert code.name == expected


# --- finished neighbours, manifests, Hello --------------------------------------------------------


def finished(tick=100, generation=1):
    return wire.Finished(generation=generation, tick=tick).SerializeToString()


def test_a_neighbour_can_finish_at_the_end(node):
    node.folder.run.mkdir()
    assert node.call("NotifyFinished", finished()) == b""
    assert node.state.active.finished_peers.finished == {"b"}


@pytest.mark.parametrize(
    ("caller", "generation", "tick"),
    [
        ("b", 1, 99),
        ("b", 1, 2**64 - 1),
        ("b", 2, 100),
        ("b", 0, 0),
        ("c", 1, 100),
        ("operator", 1, 100),
    ],
)
def test_others_or_earlier_ones_cannot_finish(node, caller, generation, tick):
    node.folder.run.mkdir()
    code, _ = node.refusal("NotifyFinished", finished(tick, generation), caller)
    assert code == StatusCode.FAILED_PRECONDITION
    assert node.state.active.finished_peers.finished == frozenset()
    assert node.rejected("not finished") == 1


def test_a_notification_that_cannot_be_saved_must_be_repeated(node, monkeypatch):
    def full(*_, **__):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(finished_peers, "write_text", full)
    code, why = node.refusal("NotifyFinished", finished())
    assert code == StatusCode.UNAVAILABLE
    assert "No space left" in why
    assert node.metrics.total("tacit_rejected_total") == 0


def test_a_notification_before_the_run_folder_exists_must_be_repeated(node):
    assert not node.folder.run.exists()
    code, _ = node.refusal("NotifyFinished", finished())
    assert code == StatusCode.UNAVAILABLE


@pytest.mark.parametrize("theirs", [(), (1.0, 2.001), (1.0, math.nan), (1.0, 2.0, 3.0)], ids=str)
def test_hello_refuses_a_model_with_other_frozen_weights(node, theirs):
    node.state.constants = (1.0, 2.0)
    info = node.state.node_info()
    node.call("Hello", info.SerializeToString())
    del info.constants[:]
    info.constants.extend(theirs)
    code, why = node.refusal("Hello", info.SerializeToString())
    assert code == StatusCode.FAILED_PRECONDITION
    assert "other frozen weights" in why
    assert "load the same ones" in why


def test_a_newer_manifest_is_taken_once_and_passed_on(node, later):
    text, signature, log = later.signed_update()
    raw = wire.SignedManifest(manifest=text, signature=signature, log=log).SerializeToString()
    interrupted = []
    node.state.on_interrupt(lambda: interrupted.append(True))
    for _ in range(2):
        assert node.call("AnnounceManifest", raw, "c") == b""
    assert interrupted == [True]
    assert wire.SignedManifest.FromString(node.call("GetManifest", caller="z")).manifest == text
    forged = wire.SignedManifest(manifest=text + b"\n", signature=signature).SerializeToString()
    assert "not signed by" in node.refusal("AnnounceManifest", forged, "operator")[1]
    assert node.rejected("manifest") == 1
    announced = node.state.announced
    assert (announced.manifest.text, announced.signature) == (text, signature)


def test_a_manifest_that_became_active_while_it_was_checked_is_not_new(node, later, monkeypatch):
    text, signature, log = later.signed_update()
    manifest, interrupted = later.manifest(), []

    def check_update(self, text, signature):
        node.state.activate(ActiveRoster.load(node.folder, "a", manifest))
        return manifest

    node.state.on_interrupt(lambda: interrupted.append(True))
    monkeypatch.setattr(type(node.folder), "check_update", check_update)
    assert node.state.consider_manifest(text, signature, log) is False
    assert node.state.announced is None
    assert interrupted == []
    assert not node.state.interrupted


def test_an_interruption_before_the_wait_is_not_missed(node, later):
    assert node.state.consider_manifest(*later.signed_update()) is True
    cancelled = []
    node.state.on_interrupt(lambda: cancelled.append("new roster"))
    assert cancelled == ["new roster"]
    node.state.activate(ActiveRoster.load(node.folder, "a", later.manifest()))
    node.state.on_interrupt(lambda: cancelled.append("stop"))
    assert cancelled == ["new roster"]
    node.state.request_stop()
    assert cancelled == ["new roster", "stop"]
