"""Rosters, signatures and stored votes of a real federation."""

from dataclasses import replace

import pytest
from test_absence import made

from tacit.core.errors import Misuse
from tacit.peer.agreement.quorum import Electorate, Invalid, Roster, Unsafe
from tacit.peer.agreement.rosters import FederationRosters
from tacit.peer.agreement.signatures import make_signer, make_verifier
from tacit.peer.agreement.statements import (
    Acceptance,
    Ballot,
    Decision,
    Endorsement,
    Sheet,
    Votes,
    parse_sheet,
    to_json,
)
from tacit.peer.agreement.vote_store import VoteStore
from tacit.peer.federation.operator import set_absence
from tacit.peer.node.roster_agreement import agreed_roster

ENDORSEMENT = Endorsement("roster", "c", "silent", 5)


@pytest.fixture
def home(tmp_path):
    return made(tmp_path, 5, patience="10m")


def suspended(base, *names, epoch=1):
    """The change that suspends these members."""
    electorate = Electorate(tuple(base.names), FederationRosters(base), lambda signed: True)
    roster = Roster(base.generation, epoch - 1, base.hash.hex())
    return electorate.make_change(roster, names, [], 1000, 7)


def signer(home, name, federation=None):
    own = home.node(name).credentials()
    return make_signer(lambda: own, name, federation or home.manifest().federation)


def test_a_roster_without_a_member_is_the_one_that_the_operator_would_make(home):
    base = home.manifest()
    change = suspended(base, "c")
    found = FederationRosters(base).manifest(change)
    assert found.names == ["a", "b", "d", "e"]
    assert found.graph.doubly_stochastic
    # A ring again: b and d are neighbours now.
    assert [one.name for one in found.in_neighbours("b")] == ["a", "d"]
    assert (found.generation, found.epoch, found.suspended) == (1, 1, (("c", 1000),))
    assert found.hash.hex() == change.digest
    assert found.federation == base.federation
    assert found.number != base.number


def test_everything_that_members_agree_on_is_in_the_digest(home):
    base = home.manifest()
    digests = {
        suspended(base).digest, suspended(base, "c").digest, suspended(base, "d").digest,
        suspended(base, "c", epoch=2).digest, base.hash.hex(),
    }  # fmt: skip
    assert len(digests) == 5
    other = set_absence(home.path, patience="1h")
    assert suspended(other, "c").digest not in digests


def test_rosters_that_would_not_protect_are_unsafe(home, tmp_path):
    with pytest.raises(Unsafe, match=r"without c, d, e: a, b would have fewer than 2 neighbours"):
        suspended(home.manifest(), "c", "d", "e")
    with pytest.raises(Unsafe, match="only one node"):
        suspended(home.manifest(), "b", "c", "d", "e")
    # Without b, a would be alone.
    line = made(tmp_path / "line", 4, edges=["a:b", "b:c", "c:d"], patience="10m").manifest()
    with pytest.raises(Unsafe, match=r"without b: The graph is not connected: a "):
        suspended(line, "b")
    assert FederationRosters(line).manifest(suspended(line, "a")).names == ["b", "c", "d"]


def test_a_member_signs_with_its_key_and_nobody_else_can(home, tmp_path):
    federation = home.manifest().federation
    verify = make_verifier(home.ca(), federation)
    signed = signer(home, "a")(ENDORSEMENT)
    assert verify(signed)
    for wrong in (
        replace(signed, statement=replace(ENDORSEMENT, subject="d")),
        replace(signed, statement=replace(ENDORSEMENT, roster="another")),
        replace(signed, signer="b"),
        replace(signed, signature="00"),
        replace(signed, signature="not hexadecimal"),
        replace(signed, certificate=signer(home, "b")(ENDORSEMENT).certificate),
        replace(signed, certificate="no certificate"),
        replace(signed, certificate=""),
        signer(home, "a", "others-00000000")(ENDORSEMENT),
    ):
        assert not verify(wrong)
    # A federation of the same name has another authority.
    other = made(tmp_path / "other", 5)
    assert not verify(signer(other, "a", federation)(ENDORSEMENT))


def test_votes_are_stored_and_only_for_their_generation(home):
    base, store = home.manifest(), VoteStore(home.node("a").run / "agreement")
    assert store.load(base) == Votes(1, base.hash.hex())
    change = suspended(base, "c")
    vote = Acceptance(base.hash.hex(), Ballot(1, "a"), change)
    votes = tuple(signer(home, name)(vote) for name in "abd")
    given = Votes(1, base.hash.hex(), Decision(change, votes), None, votes[0])
    store.save(given)
    assert store.load(base) == given
    found = agreed_roster(home.node("a"), base)
    assert found.hash.hex() == change.digest
    after = set_absence(home.path, patience="1h")
    assert store.load(after) == Votes(2, after.hash.hex())
    assert agreed_roster(home.node("a"), after) is after


def test_damaged_votes_stop_the_node(home):
    folder = home.node("a").run / "agreement"
    VoteStore(folder).save(Votes(1, "x"))
    path = folder / "votes.json"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(Misuse, match="may have voted already"):
        VoteStore(folder).load(home.manifest())


@pytest.mark.parametrize("content", [
    b"", b"[]", b"{}", b"\xff", b"[" * 100_000, b'{"generation": 1}',
    b'{"generation": "x", "epoch": 0, "roster": "", "finished": false}',
    b'{"generation": 1, "epoch": 0, "roster": "", "finished": false, "endorsements": [1]}',
    b'{"generation": 1, "epoch": 0, "roster": "", "finished": false, "decision": {"change": 1}}',
    b" " * (1 << 23),
])  # fmt: skip
def test_what_is_no_sheet_is_refused(content):
    with pytest.raises(ValueError, match=r"\S"):
        parse_sheet(content)


def test_a_sheet_survives_its_way(home):
    sheet = Sheet(1, 0, "roster", False, (signer(home, "a")(ENDORSEMENT),))
    assert parse_sheet(to_json(sheet)) == sheet


def test_a_revoked_certificate_votes_no_more_but_what_it_decided_holds(home):
    base, federation = home.manifest(), home.manifest().federation
    revoked = signer(home, "a")(ENDORSEMENT).certificate
    electorate = Electorate(
        tuple(base.names),
        FederationRosters(base),
        make_verifier(home.ca(), federation),
        lambda signed: signed.certificate != revoked,
    )
    electorate.check_signature(signer(home, "b")(ENDORSEMENT), ENDORSEMENT.roster)
    statement = signer(home, "a")(ENDORSEMENT)
    with pytest.raises(Invalid, match="revoked"):
        electorate.check_signature(statement, ENDORSEMENT.roster)
    electorate.check_signature(statement, ENDORSEMENT.roster, decided=True)
