"""Who sent what: contradictions are found, and nothing that is not signed is believed."""

import pytest
from hypothesis import given, settings, strategies as st

from support.misuse import misuse_message
from tacit.peer.federation.equivocation import (
    MAX_SENT,
    Proof,
    Sender,
    sign_list,
    verify_list,
)
from tacit.peer.federation.signing import create_authority, issue_credentials
from tacit.peer.node import digest_witness
from tacit.peer.node.digest_witness import KEPT, UNSIGNED, DigestWitness, digest_of_one
from tacit.peer.wire import wire_pb2 as wire
from tacit.peer.wire.messages import ExchangeId, Rejected

FEDERATION = "clinics-00000000"
NAMES = ("a", "b", "c")
AUTHORITY = create_authority(FEDERATION)
KEYS = {name: issue_credentials(AUTHORITY, name, FEDERATION) for name in NAMES}
SENDERS = {name: Sender(FEDERATION, 1, name, name.encode() * 16) for name in NAMES}


def digest(content):
    return digest_of_one(f"{content}".encode())


def listed(name, digests, after=0, last=None, key=None, sender=None):
    last = max(tick for tick, _ in digests) if last is None else last
    return sign_list(sender or SENDERS[name], after, last, digests, KEYS[key or name])


class Observed(DigestWitness):
    """The witness of a node, and the proofs that it reported."""

    def __init__(self, folder, name="c", sent=None):
        self.proofs = []
        super().__init__(
            folder, lambda: AUTHORITY.certificate, lambda proof, path: self.proofs.append(proof)
        )
        self.begin(name, SENDERS, sent or {})

    def take(self, one, source="b"):
        self.receive(one.signed, source)

    def got(self, name, tick, content, index=0):
        self.record_received(name, ExchangeId(1, tick, index), f"{content}".encode())


@pytest.fixture
def witness(tmp_path):
    return Observed(tmp_path / "evidence")


def test_two_lists_that_differ_are_a_proof(witness, tmp_path):
    witness.take(listed("a", {(1, 0): digest("x"), (2, 0): digest("y")}))
    witness.take(listed("a", {(2, 0): digest("z")}, after=1))
    (proof,) = witness.proofs
    assert (proof.name, proof.exchange) == ("a", (2, 0))
    with pytest.raises(Rejected, match="two different messages of iteration 2"):
        witness.check("a")
    (path,) = (tmp_path / "evidence").iterdir()
    assert Proof.from_json(path.read_text(), AUTHORITY.certificate).name == "a"
    # Also after a restart; and it is reported once.
    again = Observed(tmp_path / "evidence")
    with pytest.raises(Rejected, match=path.name):
        again.check("a")
    again.take(listed("a", {(1, 0): digest("x")}))
    again.take(listed("a", {(1, 0): digest("y")}))
    assert not again.proofs


def test_lists_that_agree_are_no_proof(witness):
    witness.take(listed("a", {(1, 0): digest("x"), (2, 0): digest("y")}))
    witness.take(listed("a", {(2, 0): digest("y"), (3, 0): digest("z")}, after=1), "a")
    witness.take(listed("b", {(1, 0): digest("z")}))
    witness.check("a")
    assert not witness.proofs


@pytest.mark.parametrize("order", ["list first", "message first"])
def test_a_message_that_its_sender_denies_is_noticed(witness, order):
    if order == "list first":
        witness.take(listed("a", {(1, 0): digest("x")}), "b")
        with pytest.raises(Rejected, match="something else in iteration 1"):
            witness.got("a", 1, "lie")
    else:
        witness.got("a", 1, "lie")
        witness.take(listed("a", {(1, 0): digest("x")}), "b")
    with pytest.raises(Rejected, match="something else in iteration 1"):
        witness.check("a")
    assert not witness.proofs


def test_a_message_that_its_sender_leaves_out_is_noticed(witness):
    witness.got("a", 1, "x")
    witness.got("a", 2, "lie")
    witness.take(listed("a", {(1, 0): digest("x")}, last=1), "a")
    witness.check("a")
    # A list that another node passes on may end earlier.
    witness.take(listed("a", {(3, 0): digest("z")}, after=2), "b")
    witness.check("a")
    witness.take(listed("a", {(3, 0): digest("z")}, after=1), "a")
    with pytest.raises(Rejected, match="iteration 2"):
        witness.check("a")


def test_a_list_that_came_by_a_detour_first_still_counts_as_the_senders(witness):
    one = listed("a", {(1, 0): digest("x")})
    witness.got("a", 1, "x")
    witness.take(one, "b")
    assert witness.last_signed("a") == 0
    witness.take(one, "a")
    assert witness.last_signed("a") == 1


def test_a_neighbour_that_never_signs_is_refused_until_it_does(witness):
    witness.got("a", 1, 1)
    # Nothing arrives: an outage, which is no refusal to sign.
    for _ in range(2 * UNSIGNED):
        witness.note_comparison("a")
    for tick in range(2, UNSIGNED + 2):
        witness.got("a", tick, tick)
        witness.note_comparison("a")
    with pytest.raises(Rejected, match="does not sign"):
        witness.got("a", UNSIGNED + 2, "x")
    signed = {(tick, 0): digest(tick) for tick in range(1, UNSIGNED + 2)}
    witness.take(listed("a", signed), "a")
    witness.got("a", UNSIGNED + 2, "x")


def changed(one, **fields):
    signed = wire.SignedDigestList()
    signed.CopyFrom(one.signed)
    for name, value in fields.items():
        setattr(signed, name, value)
    return signed


FORGED = {
    "signed by another": lambda: listed("a", {(1, 0): digest("y")}, key="b").signed,
    "certificate borrowed": lambda: changed(
        listed("a", {(1, 0): digest("y")}, key="b"), certificate=KEYS["a"].certificate
    ),
    "changed afterwards": lambda: changed(
        listed("a", {(1, 0): digest("x")}), list=listed("a", {(1, 0): digest("y")}).signed.list
    ),
    "another authority": lambda: (
        sign_list(
            SENDERS["a"],
            0,
            1,
            {(1, 0): digest("y")},
            issue_credentials(create_authority(FEDERATION), "a", FEDERATION),
        ).signed
    ),
    "another roster": lambda: (
        listed("a", {(1, 0): digest("y")}, sender=Sender(FEDERATION, 2, "a", b"a" * 16)).signed
    ),
    "another start": lambda: (
        listed("a", {(1, 0): digest("y")}, sender=Sender(FEDERATION, 1, "a", b"new salt")).signed
    ),
    "another federation": lambda: (
        listed(
            "a", {(1, 0): digest("y")}, sender=Sender("others-00000000", 1, "a", b"a" * 16)
        ).signed
    ),
    "no certificate": lambda: changed(listed("a", {(1, 0): digest("y")}), certificate=b"x"),
    "not in the list's range": lambda: listed("a", {(9, 0): digest("y")}, last=8).signed,
    "no list": lambda: wire.SignedDigestList(list=b"\xff\xff"),
    "a digest too short": lambda: listed("a", {(1, 0): b"y"}).signed,
    "too many": lambda: listed("a", {(1, i): bytes(32) for i in range(MAX_SENT + 1)}).signed,
}


@pytest.mark.parametrize("way", FORGED)
def test_what_its_sender_has_not_signed_changes_nothing(witness, way):
    witness.take(listed("a", {(1, 0): digest("x")}))
    with pytest.raises(Rejected):
        witness.receive(FORGED[way](), "b")
    witness.check("a")
    witness.got("a", 1, "x")
    assert not witness.proofs
    assert witness.lists_since(0, "b", 1 << 20)[0] == 1


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 40), st.integers(0, 2)), st.integers(0, 3), min_size=1, max_size=60
    ),
    st.lists(st.integers(0, 40), max_size=6),
    st.booleans(),
)
@settings(deadline=None, max_examples=40)
def test_an_honest_node_never_contradicts_itself(tmp_path_factory, sent, asked, restarts):
    """Whenever others ask, and whether or not it restarts: all of its lists agree."""
    folder = tmp_path_factory.mktemp("honest")
    node, other = Observed(folder / "a", "a"), Observed(folder / "b", "b")
    done = {}
    for number, (place, content) in enumerate(sorted(sent.items())):
        node.record_sent(ExchangeId(1, *place), digest(content))
        done[place] = digest(content)
        other.got("a", place[0], content, place[1])
        if number in asked:
            if restarts:
                node = Observed(folder / "a", "a", done)
            for one in node.own_lists(other.last_signed("a"), lambda: KEYS["a"]):
                other.take(one, "a")
    node.finish()
    for one in node.own_lists(other.last_signed("a"), lambda: KEYS["a"]):
        other.take(one, "a")
    other.check("a")
    assert not other.proofs
    assert other.last_signed("a") == max(tick for tick, _ in sent)


def test_lists_are_passed_on_in_parts(witness):
    for tick in range(1, 6):
        witness.take(listed("a", {(tick, 0): digest(tick)}, after=tick - 1))
    witness.take(listed("b", {(1, 0): digest("b")}))
    number, first = witness.lists_since(0, "b", 1)
    assert (number, len(first.lists)) == (1, 1)
    number, rest = witness.lists_since(number, "b", 1 << 20)
    # What b sent itself is not news for b.
    assert (number, len(rest.lists)) == (6, 4)
    assert witness.lists_since(number, "b", 1 << 20) == (6, wire.SignedDigestLists())


def test_memory_is_bounded(witness):
    for tick in range(1, KEPT + 200):
        witness.record_sent(ExchangeId(1, tick, 0), digest(tick))
    lists = witness.own_lists(0, lambda: KEYS["c"])
    assert sum(len(one.digests) for one in lists) <= KEPT
    assert all(verify_list(one.signed, AUTHORITY.certificate).last == one.last for one in lists)
    assert [one.after for one in lists[1:]] == [one.last for one in lists[:-1]]


def test_a_member_that_signs_without_end_does_not_fill_the_memory(witness, monkeypatch):
    monkeypatch.setattr(digest_witness, "MAX_KEPT", 40)
    witness.take(listed("b", {(1, 0): digest("b")}))
    for tick in range(1, 60):
        witness.take(listed("a", {(tick, i): digest(tick) for i in range(4)}, after=tick - 1))
    number, lists = witness.lists_since(0, "c", 1 << 20)
    assert (number, len(lists.lists)) == (60, 9)
    # Others are not forgotten for that, and what is kept is still compared.
    witness.take(listed("b", {(1, 0): digest("other")}))
    witness.take(listed("a", {(59, 0): digest("other")}, after=58))
    assert [proof.name for proof in witness.proofs] == ["b", "a"]


def test_a_damaged_proof_is_ignored(tmp_path):
    folder = tmp_path / "evidence"
    folder.mkdir()
    (folder / "equivocation-a.json").write_text('{"format": 3')
    assert not Observed(folder).refused
    message = misuse_message(Proof.from_json, "[]", AUTHORITY.certificate)
    assert "not a proof" in message
