"""The handlers of a node, called without a network: what each answers to which caller."""

import functools
import io
import itertools
import json
import os
import shutil
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
import torch
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tacit.config.loading import make_config, with_keys
from tacit.peer.federation.certificates import server_name
from tacit.peer.federation.federation_client import status_to_dict
from tacit.peer.federation.membership import revoke
from tacit.peer.federation.operator import create, remove
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node import finished_peers, service
from tacit.peer.node.fresh_keys import FreshKeys
from tacit.peer.node.node_state import ActiveRoster, NodeState
from tacit.peer.node.outbox import Outbox
from tacit.peer.node.service import MAX_CALLS, PeerService, threads_for
from tacit.peer.node.spent_budget import SpentBudget
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.chunks import parse_chunk
from tacit.peer.wire.messages import Envelope, ExchangeId, pack
from tacit.peer.wire.transport import (
    MAX_MANIFEST_BYTES,
    MAX_REQUEST_BYTES,
    SERVICE,
    caller_name,
    grpc,
)
from tacit.privacy.guarantee import Privacy

CONFIG = make_config(
    {"algorithm": {"name": "lppa", "lr": 0.05}, "run": {"iterations_per_round": 5}}
)
METHODS = (
    "Hello", "FetchMessages", "NotifyFinished", "GetStatus", "GetScores", "GetManifest",
    "AnnounceManifest",
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


class ServedNode:
    """The state and the service of a node, and ways to call it."""

    def __init__(self, home, name="a"):
        self.folder = home.node(name)
        active = ActiveRoster.load(self.folder, name, self.folder.manifest())
        self.log = io.StringIO()
        event_log = EventLog(self.log, name)
        self.state = NodeState(self.folder, name, active, event_log, 6, "torch.float32")
        self.state.report(steps=100)
        self.metrics = self.state.metrics
        self.handlers = PeerService(self.state).handlers()

    @property
    def outbox(self):
        return self.state.active.outbox

    def context(self, caller):
        return FakeContext(caller, server_name(caller, self.state.manifest.federation))

    def handler(self, method):
        return self.handlers.service(SimpleNamespace(method=f"/{SERVICE}/{method}"))

    def call(self, method, raw=b"", caller="b", context=None):
        """The answer of a method; for FetchMessages an iterator."""
        handler, context = self.handler(method), context or self.context(caller)
        if method == "FetchMessages":
            return handler.stream_stream(iter(raw if isinstance(raw, list) else [raw]), context)
        return handler.stream_unary(iter([raw]), context)

    def fetch(self, *requests, caller="b"):
        return self.call("FetchMessages", list(requests), caller)

    def refusal(self, method, raw=b"", caller="b"):
        with pytest.raises(Aborted) as caught:
            list(self.call(method, raw, caller))
        return caught.value.code, str(caught.value)

    def rejected(self, reason):
        return self.metrics.value("tacit_rejected_total", reason=reason)

    def put(self, tick, receiver=""):
        exchange = ExchangeId(1, tick, 0)
        envelope = Envelope(self.state.manifest.federation, "a", receiver, exchange)
        message = pack(envelope, {"x": torch.full((4,), float(tick))})
        self.outbox.put(message)
        return message

    def request(self, tick, saved=-1, generation=1, manifest=None):
        return wire.FetchRequest(
            exchange=wire.ExchangeId(generation=generation, tick=tick),
            manifest_sha256=self.state.manifest.hash if manifest is None else manifest,
            saved_tick=saved,
        ).SerializeToString()


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """a, b, c, d on a ring: b and d are neighbours of a."""
    nodes = {name: f"127.0.0.1:{7400 + i}" for i, name in enumerate("abcd")}
    return create(tmp_path_factory.mktemp("served") / "f", "clinics", nodes, CONFIG)


@pytest.fixture
def node(home):
    served = ServedNode(home)
    yield served
    shutil.rmtree(served.folder.run, ignore_errors=True)


@pytest.fixture(scope="module")
def later(home, tmp_path_factory):
    """The federation after c was removed. One copy: nodes store its log in the folders of home."""
    changed = type(home)(tmp_path_factory.mktemp("service") / "later")
    shutil.copytree(home.path, changed.path)
    remove(changed.path, "c")
    return changed


def frame(chunks):
    """The data of some chunks."""
    return b"".join(bytes(parse_chunk(raw).data or b"") for raw in chunks)


def notices(chunks):
    return [chunk.notice for chunk in map(parse_chunk, chunks) if chunk.notice is not None]


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
    assert caller_name(FakeContext(common_name, *names), "clinics-01234567") == caller


@pytest.mark.parametrize("method", METHODS)
def test_a_certificate_of_another_federation_is_refused_everything(node, method):
    with pytest.raises(Aborted, match="not of federation clinics") as caught:
        list(node.call(method, context=FakeContext("b", BANKS("b"))))
    assert caught.value.code == StatusCode.PERMISSION_DENIED
    assert node.rejected("another federation") == 1


@pytest.mark.parametrize("caller", ["c", "operator", "x.b"])
def test_only_neighbours_get_messages(node, caller):
    node.put(1)
    code, _ = node.refusal("FetchMessages", node.request(1), caller)
    assert code == StatusCode.PERMISSION_DENIED
    assert node.rejected("not a neighbour") == 1
    assert json.loads(node.log.getvalue())["sender"] == caller


@pytest.mark.parametrize("caller", ["b", "c", "operator"])
def test_members_and_the_operator_get_the_status(node, caller):
    assert wire.Status.FromString(node.call("GetStatus", caller=caller)).steps == 100


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
    node = ServedNode(folder)
    for method in METHODS:
        if method != "AnnounceManifest":
            raw = [node.request(1)] if method == "FetchMessages" else b""
            code, why = node.refusal(method, raw)
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


@pytest.mark.parametrize(
    ("method", "part"),
    [("GetStatus", "status"), ("Hello", "node_info"), ("FetchMessages", "progress_notice")],
)
def test_an_internal_error_is_logged_but_not_shown_to_the_caller(node, monkeypatch, method, part):
    def broken(*_, **__):
        raise ZeroDivisionError("something internal")

    monkeypatch.setattr(node.state, part, broken)
    raw = node.request(1, generation=2) if method == "FetchMessages" else b""
    code, why = node.refusal(method, raw)
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


@pytest.mark.parametrize(
    ("caller", "others"), [("b", ["c", "operator", "z"]), ("z", ["b", "c", "operator"])]
)
def test_silent_calls_do_not_block_other_callers(node, caller, others):
    finish = [silent_call(node, caller) for _ in range(MAX_CALLS)]
    code, why = node.refusal("Hello", node.state.node_info().SerializeToString(), caller)
    assert code == StatusCode.RESOURCE_EXHAUSTED
    assert why == f"4 calls of {'others' if caller == 'z' else caller} are running already"
    assert node.rejected("too many calls") == 1
    for other in others:
        assert node.call("GetManifest", caller=other)
    finish[0]()
    assert node.call("GetManifest", caller=caller)
    for one in finish:
        one()


def test_callers_that_are_not_members_share_one_limit(node):
    finish = [silent_call(node, caller) for caller in ("y", "y", "x", "x")]
    assert node.refusal("GetManifest", caller="w")[0] == StatusCode.RESOURCE_EXHAUSTED
    assert node.call("GetManifest", caller="b")
    for one in finish:
        one()


def test_there_are_threads_for_all_allowed_calls():
    for members in (2, 5, 20):
        streams, callers = members, members + 2
        assert threads_for(members) > streams + MAX_CALLS * callers


# --- malformed requests -------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("raw", [b"\x0a\xff", b"\xff" * 30, b"\x08", b"\x0f"])
def test_what_cannot_be_parsed_is_refused_and_counted(node, method, raw):
    code, why = node.refusal(method, raw)
    assert code == StatusCode.INVALID_ARGUMENT
    assert why.startswith(f"{len(raw)} bytes that are no ")
    assert node.rejected("malformed") == 1


@pytest.mark.parametrize("method", [method for method in METHODS if method != "FetchMessages"])
def test_a_call_without_a_request_is_refused(node, method):
    with pytest.raises(Aborted, match="without a request"):
        node.handler(method).stream_unary(iter([]), node.context("b"))
    assert node.rejected("malformed") == 1


def test_a_caller_that_hangs_up_before_its_request_is_not_counted(node):
    context = node.context("b")
    context.cancel()
    assert node.handler("GetStatus").stream_unary(iter([]), context) == b""
    assert node.metrics.total("tacit_rejected_total") == 0


@pytest.mark.parametrize("method", METHODS)
def test_only_a_manifest_may_be_long(node, method):
    unknown_field = b"\x7a" + b"\x80\x80\x02" + bytes(1 << 15)
    assert MAX_REQUEST_BYTES < len(unknown_field) < MAX_MANIFEST_BYTES
    code, _ = node.refusal(method, unknown_field)
    expected = "FAILED_PRECONDITION" if method == "AnnounceManifest" else "INVALID_ARGUMENT"
    assert code.name == expected


# --- messages -----------------------------------------------------------------------------------


def test_messages_are_sent_in_the_order_of_the_requests(node):
    messages = {tick: node.put(tick) for tick in (1, 2)}
    chunks = list(node.fetch(node.request(2), node.request(1), node.request(2)))
    assert frame(chunks) == messages[2].frame + messages[1].frame + messages[2].frame
    assert node.outbox.readers["b"].delivered == 2
    assert node.metrics.value("tacit_messages_sent_total", neighbour="b") == 3
    sent = 2 * len(messages[2].frame) + len(messages[1].frame)
    assert node.metrics.value("tacit_sent_bytes_total", neighbour="b") == sent


def test_a_message_counts_as_delivered_only_after_its_last_byte(node):
    node.put(1)
    answers = node.fetch(node.request(1))
    next(answers)
    assert node.outbox.readers["b"].delivered == -1
    assert list(answers) == []
    assert node.outbox.readers["b"].delivered == 1


def test_notices_come_until_the_message_exists(node, monkeypatch):
    monkeypatch.setattr(service, "NOTICE_SECONDS", 0.01)
    node.state.report(step=4, waiting_for=("b (at iteration 4, says it waits for c)",))
    answers = node.fetch(node.request(5))
    for notice in notices(itertools.islice(answers, 3)):
        assert (notice.generation, notice.tick, list(notice.waiting_for)) == (1, 4, ["b"])
    message = node.put(5)
    assert frame(answers) == message.frame


def test_a_request_of_another_generation_is_answered_by_a_notice(node):
    message = node.put(1)
    chunks = list(node.fetch(node.request(1, generation=2), node.request(1)))
    assert [notice.generation for notice in notices(chunks[:1])] == [1]
    assert frame(chunks[1:]) == message.frame


def test_a_request_under_another_manifest_is_refused(node):
    node.put(1)
    code, why = node.refusal("FetchMessages", node.request(1, manifest=b"x" * 32))
    assert (code, why) == (StatusCode.FAILED_PRECONDITION, "another manifest for generation 1")
    assert node.rejected("configuration") == 1
    assert node.outbox.readers["b"].delivered == -1


@pytest.mark.parametrize("tick", [101, 2**64 - 1])
def test_a_message_after_the_end_is_refused(node, tick):
    refusal = (StatusCode.OUT_OF_RANGE, f"iteration {tick} of 100")
    assert node.refusal("FetchMessages", node.request(tick)) == refusal
    assert node.rejected("future") == 1


def test_a_new_stream_of_a_neighbour_ends_its_previous_one(node, monkeypatch):
    monkeypatch.setattr(service, "NOTICE_SECONDS", 3600)
    node.put(1)
    first, second, other = node.context("b"), node.context("b"), node.context("d")
    begun, ended = threading.Event(), threading.Event()

    def read():
        requests = [node.request(1), node.request(9)]
        for _ in node.call("FetchMessages", requests, context=first):
            begun.set()
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    assert begun.wait(60)
    list(node.call("FetchMessages", [node.request(1)], context=other))
    assert first.is_active()
    list(node.call("FetchMessages", [node.request(1)], context=second))
    assert not first.is_active()
    assert ended.wait(60)
    assert second.is_active()
    assert other.is_active()


def test_a_node_that_stops_ends_its_streams(node):
    answers = node.fetch(node.request(9))
    node.state.stop.set()
    assert list(answers) == []


# --- what neighbours have saved -------------------------------------------------------------------


def test_a_false_claim_to_have_saved_costs_no_other_neighbour_a_message(node):
    messages = [node.put(tick) for tick in (1, 2, 3)]
    list(node.fetch(node.request(3)))
    list(node.fetch(node.request(3, saved=2**62)))
    found = frame(node.fetch(*map(node.request, (1, 2, 3)), caller="d"))
    assert found == b"".join(message.frame for message in messages)
    # It is kept for d, so b can have it again too.
    assert frame(node.fetch(node.request(2))) == messages[1].frame


def test_only_delivered_messages_count_as_saved(node):
    node.put(1, receiver="b")
    node.put(2, receiver="b")
    list(node.fetch(node.request(1, saved=2**62)))
    list(node.fetch(node.request(2, saved=2**62)))
    assert [message.envelope.exchange.tick for message in node.outbox.messages()] == [2]


def test_a_saved_message_is_gone(node, monkeypatch):
    monkeypatch.setattr(service, "NOTICE_SECONDS", 0.01)
    node.put(1, receiver="b")
    list(node.fetch(node.request(1)))
    code, why = node.refusal("FetchMessages", [node.request(1, saved=1)])
    assert (code, why) == (StatusCode.OUT_OF_RANGE, "b has already saved iteration 1")
    assert node.rejected("past") == 1


def test_the_smallest_saved_tick_does_no_harm(node):
    message = node.put(1)
    assert frame(node.fetch(node.request(1, saved=-(2**63)))) == message.frame
    assert node.outbox.readers["b"].saved == -1


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


def test_hello_answers_with_our_own_info(node):
    ours = node.state.node_info()
    assert wire.NodeInfo.FromString(node.call("Hello", ours.SerializeToString())) == ours
    ours.sections["algorithm"], ours.manifest_sha256 = "0" * 16, b"x" * 32
    code, why = node.refusal("Hello", ours.SerializeToString())
    assert code == StatusCode.FAILED_PRECONDITION
    assert why == "another manifest for generation 1, which differs in algorithm"
    assert node.rejected("configuration") == 1


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


def test_a_neighbour_that_leaves_the_roster_gets_nothing_more(node):
    """The stream was opened by a neighbour; then the outbox has other readers."""
    node.put(1)
    answers = node.fetch(node.request(1), node.request(1))
    assert next(answers)
    active = node.state.active
    node.state.active = ActiveRoster(active.manifest, Outbox(["d"]), active.finished_peers)
    node.put(1)
    assert list(answers) == []
    assert node.metrics.value("tacit_messages_sent_total", neighbour="b") == 1
