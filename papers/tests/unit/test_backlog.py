"""What all artifacts lack is found, priced, and measured in order of value while time lasts."""

import math
import time
from dataclasses import dataclass, replace

import pytest
from test_runner import FULL, QUICK, measure, stored, trial

from tacit_papers.framework.backlog import Backlog, measure_backlog, status_of
from tacit_papers.framework.cells import Cell
from tacit_papers.framework.runner import ReproductionListener


@dataclass(frozen=True)
class Timed:
    """A measure that takes a known time on a clock of its own."""

    name: str
    seconds: float
    clock: list
    calls: list

    def describe(self):
        return {"name": self.name}

    def __call__(self, seed, context):
        self.clock[0] += self.seconds
        self.calls.append((self.name, seed))
        return {"score": 1.0, "seconds": self.seconds}


def artifact(name, times, clock, calls, repeats=3):
    """An artifact with cells that take these times."""

    def cells(scale):
        return [
            Cell(("digits", f"{name}{number}"), Timed(f"{name}{number}", seconds, clock, calls))
            for number, seconds in enumerate(times)
        ]

    return replace(trial([]), name=f"trial/{name}", cells=cells, claims=[], repeats=repeats)


@pytest.fixture
def clock():
    return [0.0]


def backlog_of(artifacts, out, **options):
    return Backlog(artifacts, out, **options)


def run(backlog, clock):
    return measure_backlog(backlog, ReproductionListener(), lambda: clock[0])


def test_what_is_missing_is_what_was_not_measured(tmp_path):
    table = trial([])
    before = status_of(table, tmp_path)
    assert (before.measured, len(before.missing), before.untimed) == (0, 9, 9)
    assert not (tmp_path / "trial").exists()
    measure(table, tmp_path, repeats=1)
    measure(table, tmp_path, repeats=2, only=("noisy",), resume=True)
    after = status_of(table, tmp_path)
    assert after.measured == 4
    assert [(one.cell.key[1], one.seed) for one in after.missing] == [
        ("plain", 1), ("plain", 2), ("noisy", 2), ("masked", 1), ("masked", 2),
    ]  # fmt: skip
    assert after.untimed == 0
    assert 0 < after.seconds < 5


def test_a_quick_version_is_no_measurement_at_full_size(tmp_path):
    measure(trial([]), tmp_path, QUICK)
    status = status_of(trial([]), tmp_path)
    assert status.is_quick
    assert (status.measured, len(status.missing)) == (0, 9)
    run(backlog_of([trial([])], tmp_path), [0.0])
    assert stored(tmp_path)["quick"] is False
    assert status_of(trial([]), tmp_path).missing == ()


def test_cells_without_numbers_come_first_then_those_with_one_and_cheap_ones_before_dear(
    tmp_path, clock
):
    calls = []
    dear, cheap = artifact("dear", [50, 60], clock, calls), artifact("cheap", [5], clock, calls)
    run(backlog_of([replace(one, repeats=1) for one in (dear, cheap)], tmp_path), clock)
    new = artifact("new", [7], clock, calls, repeats=2)
    calls.clear()
    backlog = backlog_of([dear, cheap, new], tmp_path)
    assert [one.cell.key[1] for one in backlog.missing()[:3]] == ["new0", "cheap0", "dear0"]
    run(backlog, clock)
    assert calls[0] == ("new0", 0)
    assert {seed for _, seed in calls[1:5]} == {1}
    assert [seed for _, seed in calls[5:]] == [2, 2, 2]
    assert backlog.missing() == []


def test_nothing_begins_that_would_not_end_in_time(tmp_path, clock):
    calls = []
    table = artifact("table", [30, 100], clock, calls, repeats=2)
    run(backlog_of([replace(table, repeats=1)], tmp_path), clock)
    calls.clear()
    missing = backlog_of([table], tmp_path).missing()
    assert [(one.cell.key[1], one.seconds) for one in missing] == [("table0", 30), ("table1", 100)]
    changed = run(backlog_of([table], tmp_path, minutes=1), clock)
    assert calls == [("table0", 1)]
    assert list(changed) == ["trial/table"]
    left = status_of(table, tmp_path)
    assert [(one.cell.key[1], one.seconds) for one in left.missing] == [("table1", 100)]
    assert run(backlog_of([table], tmp_path, minutes=1), clock) == {}
    run(backlog_of([table], tmp_path, minutes=2), clock)
    assert status_of(table, tmp_path).missing == ()


def test_a_cell_that_was_never_timed_is_expected_to_take_as_long_as_the_others(tmp_path, clock):
    run(backlog_of([artifact("table", [30, 50], clock, [], repeats=1)], tmp_path), clock)
    table = artifact("table", [30, 50, 400], clock, [], repeats=1)
    assert [one.seconds for one in status_of(table, tmp_path).missing] == [40]


def test_the_command_continues_with_the_same_options(tmp_path):
    backlog = backlog_of([], tmp_path, minutes=2.5, device="cuda")
    words = ["--resume", "--out", str(tmp_path), "--minutes", "2.5", "--device", "cuda"]
    assert backlog.command() == ["tacit", "reproduce", "all", *words]
    assert "--minutes" not in replace(backlog, minutes=math.inf).command()
    assert backlog.request(trial([])).scale == FULL


def test_a_measurement_of_unknown_length_is_interrupted_at_the_end(tmp_path):
    @dataclass(frozen=True)
    class Endless(Timed):
        def __call__(self, seed, context):
            for _ in range(10_000):
                time.sleep(0.01)
            return super().__call__(seed, context)

    calls = []
    table = artifact("table", [1], [0.0], calls)

    def cells(scale):
        return [replace(cell, measure=Endless("x", 1, [0.0], calls)) for cell in table.cells(scale)]

    backlog = backlog_of([replace(table, cells=cells)], tmp_path, minutes=0.005)
    assert measure_backlog(backlog, ReproductionListener()) == {}
    assert calls == []
    assert len(backlog.missing()) == 3
