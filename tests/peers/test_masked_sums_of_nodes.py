"""Masked sums between real processes: kills and a changed roster."""

import json

import torch
from chaos import (
    LONG,
    NAMES,
    ForkedFederation,
    announce,
    kill,
    logged,
    until_status,
    until_step,
)
from federations import (
    PRIVATE,
    federation,
    models,
    plan,
    simulated_through_change,
)

from tacit.peer.federation.operator import remove

STEPS = 80

# (iteration, victims): processes to kill before n3 is removed, meanwhile, and after.
BEFORE = [(6, ["n0"]), (14, ["n1", "n3"])]
CHANGE, MEANWHILE = 26, "n1"
AFTER = [(46, ["n2"]), (56, ["n0", "n4"])]
KILLS = 1 + sum(len(victims) for _, victims in BEFORE + AFTER)


def test_kills_and_a_changed_roster_change_no_bit(tmp_path):
    home = federation(tmp_path / "f", plan(PRIVATE, rounds=STEPS // 10, iterations=10, hidden=4))
    with ForkedFederation(home, save_seconds=0.3) as running:
        _kill_in_turn(home, running, BEFORE)
        until_status(home, lambda status: status.step >= CHANGE, running)
        # A node sends the row of an iteration before it has done it.
        until_status(home, lambda status: 0 <= status.privacy.sums - status.step <= 1, running)
        before = home.manifest()
        # It comes back with an older model than the others have, and takes theirs.
        running.nodes[MEANWHILE].process.kill()
        running.nodes[MEANWHILE].process.wait()
        _remove(home, running, "n3")
        running.start(MEANWHILE)
        until_status(
            home, lambda status: (status.generation, status.phase) == (2, "training"), running
        )
        _kill_in_turn(home, running, AFTER)
        assert running.wait(LONG), [node.last_error() for node in running.failed()]
    assert len([1 for name in NAMES for _ in logged(home, name, "resumed")]) >= KILLS - 1

    ticks = {name: _masked_ticks(home, name) for name in home.manifest().names}
    (first,) = {under[1][0] for under in ticks.values()}
    assert first > CHANGE
    for earlier, later in ticks.values():
        # One row for each iteration, however often it was computed. When the roster changes, nodes
        # may have sent rows of the next iteration, and one that is killed may have been ahead.
        assert later == list(range(first, STEPS + 1))
        assert earlier in [list(range(1, first + more)) for more in range(3)]
    assert torch.equal(models(home), simulated_through_change(home, before, first - 1))
    for name, under in ticks.items():
        summary = json.loads((home.node(name).run / "summary.json").read_text())
        assert summary["privacy"]["sums"] == sum(map(len, under))
        assert 0 < summary["privacy"]["epsilon_spent"] <= summary["privacy"]["epsilon"] == 8.0


def _kill_in_turn(home, running, kills):
    for step, victims in kills:
        until_step(home, step, victims[:1])
        kill(running, victims)


def _remove(home, running, name):
    """Kill a node for good, and tell the others that it has left."""
    node = running.nodes.pop(name)
    node.process.kill()
    node.process.wait()
    before = home.manifest()
    remove(home.path, name)
    announce(home, before)


def _masked_ticks(home, name):
    """The ticks of the rows that a node has masked, for each roster."""
    place = home.node(name).run / "checkpoints"
    logs = [log.read_text().splitlines() for log in sorted(place.glob("masked-*.log"))]
    return [[int(line.split("-")[0]) for line in lines] for lines in logs]
