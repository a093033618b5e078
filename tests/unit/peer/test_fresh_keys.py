"""Salts and records in a node's folder: what is kept, what is new, what is refused."""

import errno
import os
from dataclasses import replace

import pytest

from tacit.core.errors import Misuse
from tacit.peer.node import fresh_keys
from tacit.peer.node.fresh_keys import FreshKeys
from tacit.peer.wire.messages import ExchangeId
from tacit.privacy.keystreams import KeyRing

ONE, OTHER = b"1" * 32, b"2" * 32


class TestRecords:
    def test_the_same_message_may_be_sent_again_and_no_other(self, tmp_path):
        FreshKeys(tmp_path, 1).check_sent(ExchangeId(1, 3, 0), ONE)
        again = FreshKeys(tmp_path, 1)
        again.check_sent(ExchangeId(1, 3, 0), ONE)
        with pytest.raises(Misuse, match="another message in iteration 3"):
            again.check_sent(ExchangeId(1, 3, 0), OTHER)
        again.check_sent(ExchangeId(1, 3, 1), OTHER)

    def test_a_line_that_was_cut_off_counts_as_not_sent(self, tmp_path):
        FreshKeys(tmp_path, 1).check_sent(ExchangeId(1, 3, 0), ONE)
        log = tmp_path / "masked-000001.log"
        log.write_bytes(log.read_bytes()[:-5])
        FreshKeys(tmp_path, 1).check_sent(ExchangeId(1, 3, 0), OTHER)
        assert len(log.read_text().splitlines()) == 1

    def test_a_failed_write_leaves_no_part_of_a_line(self, tmp_path, monkeypatch):
        keys = FreshKeys(tmp_path, 1)
        keys.check_sent(ExchangeId(1, 3, 0), ONE)
        before = (tmp_path / "masked-000001.log").read_bytes()

        def full(_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patched:
            patched.setattr(fresh_keys.os, "fsync", full)
            with pytest.raises(OSError, match="No space"):
                keys.check_sent(ExchangeId(1, 4, 0), ONE)
        assert (tmp_path / "masked-000001.log").read_bytes() == before
        assert keys.sums == 1
        keys.check_sent(ExchangeId(1, 4, 0), ONE)
        assert FreshKeys(tmp_path, 1).sums == 2

    def test_a_budget_counts_exchanges_under_all_rosters(self, tmp_path):
        first = FreshKeys(tmp_path, 1, allowed=3)
        for tick in range(2):
            first.check_sent(ExchangeId(1, tick, 0), ONE)
        FreshKeys(tmp_path, 2, allowed=3).check_sent(ExchangeId(2, 1, 0), ONE)
        second = FreshKeys(tmp_path, 2, allowed=3)
        second.check_sent(ExchangeId(2, 1, 0), ONE)
        with pytest.raises(Misuse, match="budget is spent"):
            second.check_sent(ExchangeId(2, 2, 0), ONE)


class TestSalts:
    def test_a_salt_is_kept_for_one_roster_and_the_same_data(self, tmp_path):
        own = FreshKeys(tmp_path, 1).own_salt("n0", "data")
        assert FreshKeys(tmp_path, 1).own_salt("n0", "data") == own
        assert FreshKeys(tmp_path, 2).own_salt("n0", "data") != own

    def test_other_data_have_another_salt(self, tmp_path):
        own = FreshKeys(tmp_path, 1).own_salt("n0", "trial data")
        other = FreshKeys(tmp_path, 1).own_salt("n0", "real data")
        assert other != own
        assert FreshKeys(tmp_path, 1).own_salt("n0", "real data") == other

    def test_agreed_salts_are_found_again(self, tmp_path):
        keys = FreshKeys(tmp_path, 1)
        keys.own_salt("n0", "data")
        with pytest.raises(Misuse, match="cannot derive its keys"):
            keys.agreed_salts()
        salts = {"n0": b"0" * 16, "n1": b"1" * 16}
        keys.save(salts, "data")
        assert FreshKeys(tmp_path, 1).agreed_salts() == salts

    @pytest.mark.parametrize("text", ["{}", '{"n0": "00", "n1": "11"}'])
    def test_a_damaged_file_is_refused(self, tmp_path, text):
        (tmp_path / "salts-000001.json").write_text(text)
        with pytest.raises(Misuse, match="damaged, or from another version"):
            FreshKeys(tmp_path, 1).agreed_salts()


@pytest.mark.parametrize("purpose", ["noise", "words", "masks", "integers", "integers/ties"])
@pytest.mark.parametrize("target", [None, 1])
def test_every_key_depends_on_the_salts_of_its_ends_and_on_no_other(purpose, target):
    def key(*salts):
        ring = replace(KeyRing.from_seed(3, 0), salts=dict(enumerate(salts)))
        return ring.key(purpose, "tag", 7, 0, target)

    before = key(b"a", b"b", b"c")
    assert key(b"x", b"b", b"c") != before
    assert (key(b"a", b"x", b"c") != before) == (target == 1)
    assert key(b"a", b"b", b"x") == before
