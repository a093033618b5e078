"""The operator's log: whatever is edited, removed, reordered or forked is detected."""

from functools import partial

import pytest
from hypothesis import given, strategies as st

from tacit.core.errors import Misuse
from tacit.peer.federation.certificates import certificate_info
from tacit.peer.federation.change_log import ChangeLog
from tacit.peer.federation.signing import (
    create_authority,
    generate_key,
    issue_credentials,
    sign,
    signed_by_key,
)

KEY, OTHER_KEY = generate_key(), generate_key()
VERIFY = partial(signed_by_key, KEY)
AUTHORITY = create_authority("clinics-01234567")
NAMES = st.sampled_from(["a", "b", "c"])


def certificate_of(name):
    return issue_credentials(AUTHORITY, name, "clinics-01234567").certificate.decode()


CERTIFICATES = {name: [certificate_of(name) for _ in range(2)] for name in "abc"}


@st.composite
def changes(draw):
    kind = draw(st.sampled_from(["roster", "certificate", "revocation", "address"]))
    name = draw(NAMES)
    if kind == "roster":
        digest = draw(st.binary(min_size=32, max_size=32)).hex()
        members = draw(st.lists(NAMES, unique=True))
        return kind, {"generation": draw(st.integers(1, 9)), "manifest": digest, "members": members}
    if kind == "certificate":
        return kind, {"name": name, "certificate": draw(st.sampled_from(CERTIFICATES[name]))}
    if kind == "revocation":
        return kind, {"name": name, "reason": draw(st.text(max_size=9))}
    return kind, {"name": name, "address": f"host:{draw(st.integers(1, 9))}"}


LOGS = st.lists(changes(), min_size=1, max_size=4)


def made(entries, key=KEY, log=None):
    log = ChangeLog() if log is None else log
    for kind, change in entries:
        log = log.appended(kind, change, partial(sign, key))
    return log


def read(text, known=None):
    return (ChangeLog() if known is None else known).updated(text, VERIFY)


@given(LOGS)
def test_a_log_is_read_as_it_was_written(entries):
    log = made(entries)
    assert read(log.text) == log
    assert read(log.text, log) is log
    assert [(entry.kind, entry.change) for entry in log.entries] == entries
    assert all(entry.describe() for entry in log.entries)


@given(LOGS, LOGS)
def test_a_longer_log_is_followed_and_a_shorter_one_changes_nothing(first, second):
    shorter = made(first)
    longer = made(second, log=shorter)
    assert read(longer.text, shorter) == longer
    # A log that was rolled back.
    assert read(shorter.text, longer) is longer


# Signatures differ in length from run to run, so places are relative.
PLACES = st.floats(0, 1, exclude_max=True)


@given(LOGS, PLACES, st.integers(1, 255))
def test_any_edit_is_detected(entries, place, difference):
    log = made(entries)
    at = int(place * len(log.text))
    edited = log.text[:at] + bytes([log.text[at] ^ difference]) + log.text[at + 1 :]
    for known in (None, log):
        with pytest.raises(Misuse):
            read(edited, known)


@given(LOGS, st.floats(0, 1), st.binary(min_size=1, max_size=3))
def test_any_insertion_is_detected(entries, place, more):
    log = made(entries)
    at = int(place * len(log.text))
    inserted = log.text[:at] + more + log.text[at:]
    with pytest.raises(Misuse):
        read(inserted)


@given(st.lists(changes(), min_size=2, max_size=5), st.data())
def test_a_removed_entry_is_detected(entries, data):
    log = made(entries)
    lines = log.text.splitlines(keepends=True)
    # Without the last entry it is the log as it was before, which is not followed backwards.
    del lines[data.draw(st.integers(0, len(lines) - 2))]
    for known in (None, log):
        with pytest.raises(Misuse, match="does not follow"):
            read(b"".join(lines), known)


@given(st.lists(changes(), min_size=2, max_size=5), st.data())
def test_another_order_is_detected(entries, data):
    log = made(entries)
    lines = log.text.splitlines(keepends=True)
    order = data.draw(st.permutations(range(len(lines))).filter(lambda one: one != sorted(one)))
    for known in (None, log):
        with pytest.raises(Misuse, match="does not follow"):
            read(b"".join(lines[at] for at in order), known)


@given(st.lists(changes(), max_size=3), changes(), changes())
def test_a_fork_is_named(before, one, other):
    common = made(before)
    ours, theirs = made([one], log=common), made([other], log=common)
    if one == other and ours.head == theirs.head:
        # Signed twice in the same second: the same entry with another signature.
        assert read(theirs.text, ours) is ours
        return
    with pytest.raises(Misuse, match=f"forks at entry {common.number + 1}.*Both are signed"):
        read(theirs.text, ours)


@given(LOGS, changes())
def test_only_the_operator_can_extend_it(entries, more):
    log = made(entries)
    forged = made([more], OTHER_KEY, log)
    for known in (None, log):
        with pytest.raises(Misuse, match="not signed by this federation's operator"):
            read(forged.text, known)


@given(LOGS, st.binary(max_size=200))
def test_rubbish_is_refused(entries, rubbish):
    log = made(entries)
    for text in (rubbish + b"\n", log.text + rubbish + b"\n", log.text + b"[" * 60_000 + b"\n"):
        with pytest.raises(Misuse):
            read(text, log)


def test_a_line_that_is_cut_off_is_refused():
    log = made([("address", {"name": "a", "address": "h:1"})])
    with pytest.raises(Misuse, match="cut off"):
        read(log.text[:-1])


# --- what the entries say -------------------------------------------------------------------------


def roster(digest, *members):
    return "roster", {"generation": 1, "manifest": digest.hex(), "members": list(members)}


def test_addresses_count_after_the_manifest():
    first, second = b"1" * 32, b"2" * 32
    moved = ("address", {"name": "a", "address": "h:2"})
    log = made([roster(first), moved, ("address", {"name": "a", "address": "h:3"}), roster(second)])
    assert log.addresses(first) == {"a": "h:3"}
    assert log.addresses(second) == {}
    assert log.roster_entry(second) == 4
    assert log.roster_entry(b"3" * 32) is None


def test_after_a_revocation_only_newer_certificates_count():
    old, new = (("certificate", {"name": "a", "certificate": one}) for one in CERTIFICATES["a"])
    revoked = ("revocation", {"name": "a", "reason": "stolen"})
    log = made([old])
    assert log.trusted_certificates("a") is None
    assert log.accepts("a", fingerprint(old))
    assert log.accepts("a", "one that the log does not have")
    log = made([revoked], log=log)
    assert log.trusted_certificates("a") == []
    assert not log.accepts("a", fingerprint(old))
    assert not log.accepts("a", "one that the log does not have")
    assert log.accepts("b", "any")
    log = made([new], log=log)
    assert log.accepts("a", fingerprint(new))
    assert not log.accepts("a", fingerprint(old))
    assert not log.accepts("a", "one that the log does not have")


def fingerprint(entry):
    return certificate_info(entry[1]["certificate"].encode()).fingerprint
