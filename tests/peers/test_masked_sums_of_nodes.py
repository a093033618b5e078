"""Masked sums between real processes: kills, a changed roster, lost state, a lying neighbour."""

import json
import random
import shutil

import pytest
import torch
from chaos import LONG, NAMES, ForkedFederation, logged, until, until_step
from federations import PRIVATE, federation, models, plan, simulated
from test_crashes import KILLS, kill, plan_kills, wait_for_restart
from test_roster_changes import announce, wait_for

from tacit.core.errors import Misuse
from tacit.peer.federation.operator import remove
from tacit.peer.node.fresh_keys import FreshKeys
from tacit.peer.wire.messages import ExchangeId

STEPS = 130


def private_plan(steps=STEPS, clients=5, **more):
    return plan(PRIVATE, rounds=steps // 10, iterations=10, hidden=4, clients=clients, **more)


def test_ten_kills_change_no_bit(tmp_path):
    home = federation(tmp_path / "f", private_plan())
    kills = plan_kills(random.Random(2))
    with ForkedFederation(home, save_seconds=0.3) as running:
        for step, victims, again in kills:
            until_step(home, step, victims[:1])
            kill(running, victims)
            if again:
                wait_for_restart(home, victims[0])
                kill(running, victims)
        assert running.wait(LONG), [node.last_error() for node in running.failed()]
    assert len([1 for name in NAMES for _ in logged(home, name, "resumed")]) >= KILLS - 1
    assert torch.equal(models(home), simulated(home))
    for name in NAMES:
        place = home.node(name).run / "checkpoints" / "masked-000001.log"
        # One row for each iteration, however often it was computed.
        assert len(place.read_text().splitlines()) == STEPS


def test_a_node_leaves_and_the_others_still_have_one_model(tmp_path):
    home = federation(tmp_path / "f", private_plan(clients=5))
    with ForkedFederation(home, save_seconds=0.5) as local:
        wait_for(home, lambda status: status.step >= 20, local)
        local.nodes["n3"].process.kill()
        local.nodes["n3"].process.wait()
        del local.nodes["n3"]
        before = home.manifest()
        remove(home.path, "n3")
        announce(home, before)
        assert local.wait(LONG), [(node.name, node.last_error()) for node in local.failed()]
    found = models(home)
    assert len(found) == 4
    assert torch.equal(found, found[:1].expand_as(found))
    logs = {name: _sums(home, name) for name in ("n0", "n1", "n2", "n4")}
    # An iteration may be repeated after the change, and is counted again.
    assert all(STEPS <= sum(counts) <= STEPS + 2 and len(counts) == 2 for counts in logs.values())


def _sums(home, name):
    place = home.node(name).run / "checkpoints"
    return [len(log.read_text().splitlines()) for log in sorted(place.glob("masked-*.log"))]


def test_a_node_that_lost_its_state_uses_other_masks(tmp_path):
    """Its neighbours keep the old salt, so that their keys differ: it waits, and says why."""
    home = federation(tmp_path / "f", private_plan())
    with ForkedFederation(home, save_seconds=60) as running:
        until_step(home, 10, NAMES)
        node = running.nodes["n2"]
        node.process.kill()
        node.process.wait()
        salts = home.node("n2").run / "checkpoints" / "salts-000001.json"
        before = json.loads(salts.read_text())["n2"]
        shutil.rmtree(home.node("n2").run)
        running.start("n2")
        until(lambda: salts.exists() and len(json.loads(salts.read_text())) == 3, "new salts")
        assert json.loads(salts.read_text())["n2"] != before
        until(lambda: logged(home, "n2", "rejected"), "a message under other keys is rejected")


class TestRecordsOfMaskedRows:
    ROW = torch.arange(5, dtype=torch.int32)[None]

    def test_the_same_row_may_be_sent_again_and_no_other(self, tmp_path):
        FreshKeys(tmp_path, 1).check_row(ExchangeId(1, 3, 0), self.ROW)
        again = FreshKeys(tmp_path, 1)
        again.check_row(ExchangeId(1, 3, 0), self.ROW)
        with pytest.raises(Misuse, match="another row under the masks of iteration 3"):
            again.check_row(ExchangeId(1, 3, 0), self.ROW + 1)

    def test_a_line_that_was_cut_off_counts_as_not_sent(self, tmp_path):
        FreshKeys(tmp_path, 1).check_row(ExchangeId(1, 3, 0), self.ROW)
        log = tmp_path / "masked-000001.log"
        log.write_bytes(log.read_bytes()[:-5])
        FreshKeys(tmp_path, 1).check_row(ExchangeId(1, 3, 0), self.ROW + 1)
        assert len(log.read_text().splitlines()) == 1

    def test_a_budget_counts_sums_under_all_rosters(self, tmp_path):
        first = FreshKeys(tmp_path, 1, allowed=3)
        for tick in range(2):
            first.check_row(ExchangeId(1, tick, 0), self.ROW)
        second = FreshKeys(tmp_path, 2, allowed=3)
        second.check_row(ExchangeId(2, 1, 0), self.ROW)
        second.check_row(ExchangeId(2, 1, 0), self.ROW)
        with pytest.raises(Misuse, match="budget is spent"):
            second.check_row(ExchangeId(2, 2, 0), self.ROW)

    def test_salts_are_kept_and_differ(self, tmp_path):
        own = FreshKeys(tmp_path, 1).own_salt("n0")
        assert FreshKeys(tmp_path, 1).own_salt("n0") == own
        assert FreshKeys(tmp_path, 2).own_salt("n0") != own
        with pytest.raises(Misuse, match="cannot derive its keys"):
            FreshKeys(tmp_path, 1).stored()
