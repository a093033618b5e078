"""What all artifacts lack is found, priced, and measured in order of value while time lasts."""

import json
import math
import time
from dataclasses import dataclass, replace

import pytest
import torch
from test_runner import FULL, QUICK, measure, stored, trial

from tacit.core.errors import Misuse
from tacit_papers.framework.backlog import (
    Backlog,
    guessed_seconds,
    measure_backlog,
    status_of,
)
from tacit_papers.framework.cells import Cell
from tacit_papers.framework.results import OUTDATED
from tacit_papers.framework.runner import ReproductionListener, machine_description


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


def mark(out, label, seed, reason):
    """Mark a stored repeat as outdated."""
    path = out / "trial" / "table" / "result.json"
    content = json.loads(path.read_text())
    cell = next(one for one in content["cells"] if one["key"]["rule"] == label)
    repeat = next(one for one in cell["repeats"] if one["seed"] == seed)
    repeat["values"] |= {OUTDATED: reason, "score": -1.0}
    path.write_text(json.dumps(content))


def scores(out):
    cells = stored(out)["cells"]
    return [one["values"]["score"] for cell in cells for one in cell["repeats"]]


def test_outdated_repeats_are_missing_and_stay_until_they_are_repeated(tmp_path):
    calls = []
    table = trial(calls)
    measure(table, tmp_path)
    mark(tmp_path, "noisy", 1, "in TF32")
    status = status_of(table, tmp_path)
    assert (status.measured, status.outdated) == (9, {"in TF32": 1})
    assert [(one.cell.key[1], one.seed, one.earlier) for one in status.missing] == [("noisy", 1, 2)]
    mark(tmp_path, "masked", 0, "in TF32")
    mark(tmp_path, "masked", 1, "in TF32")
    mark(tmp_path, "masked", 2, "in TF32")
    ranks = [one.earlier for one in status_of(table, tmp_path).missing]
    assert ranks == [2, 1, 1, 2]
    # Another measurement of the artifact keeps the old number.
    measure(replace(table, repeats=4), tmp_path, repeats=4, only=("plain",), resume=True)
    assert scores(tmp_path).count(-1.0) == 4
    calls.clear()
    run(backlog_of([table], tmp_path), [0.0])
    assert sorted(calls) == [(80.0, 1), (89.95, 0), (89.95, 1), (89.95, 2)]
    assert -1.0 not in scores(tmp_path)
    after = status_of(table, tmp_path)
    assert (after.outdated, after.missing) == ({}, ())


def test_times_of_other_machines_count_only_if_there_are_none_of_this_one(tmp_path, clock):
    table = artifact("table", [30, 50], clock, [], repeats=2)
    run(backlog_of([replace(table, repeats=1)], tmp_path), clock)
    path = tmp_path / "trial" / "table" / "result.json"
    content = json.loads(path.read_text())
    here = machine_description("cpu").split(",")[0]
    content["machines"].append("slow processor, 1 cores")
    content["cells"][1]["repeats"][0]["values"] |= {"machine": 1, "took": 4000}
    path.write_text(json.dumps(content))

    def seconds(machine):
        return [one.seconds for one in status_of(table, tmp_path, machine).missing]

    assert seconds(here) == [30, 30]
    assert seconds("slow processor") == [4000, 4000]
    assert seconds("another") == seconds(None) == [30, 4000]
    assert [one.seconds for one in backlog_of([table], tmp_path).missing()] == [30, 30]


def test_the_time_of_what_was_never_timed_is_guessed_from_its_paper(tmp_path, clock):
    timed = [artifact("table1", [30], clock, []), artifact("table2", [60, 90], clock, [])]
    run(backlog_of([replace(table, repeats=1) for table in timed], tmp_path), clock)
    untimed = artifact("table3", [7], clock, [])
    other = replace(untimed, name="other/table")
    statuses = backlog_of([*timed, untimed, other], tmp_path).statuses()
    assert guessed_seconds(statuses) == {"trial": 60, "other": 60}
    assert guessed_seconds(statuses[2:]) == {}


def test_artifacts_are_chosen_by_patterns(tmp_path, clock):
    tables = [artifact(name, [1], clock, [], repeats=1) for name in ("table1", "table2", "fig1")]
    backlog = backlog_of(tables, tmp_path, only=("trial/table*", "trial/fig?"))
    assert backlog.chosen == tables
    some = replace(backlog, only=("trial/table?",))
    assert [status.artifact for status in some.statuses()] == tables[:2]
    assert list(run(some, clock)) == ["trial/table1", "trial/table2"]
    assert some.command()[-2:] == ["--only", "trial/table?"]
    with pytest.raises(Misuse, match="'table1'"):
        replace(backlog, only=("table1",)).statuses()


@dataclass(frozen=True)
class Failing(Timed):
    """Raises these problems, one per call, before it measures."""

    problems: list

    def __call__(self, seed, context):
        if self.problems:
            raise self.problems.pop(0)
        return super().__call__(seed, context)


def run_with_failures(out, clock, problems):
    """Measure two cells, of which the first has these problems."""
    calls, failures, warnings = [], [], []
    table = artifact("table", [1, 1], clock, calls, repeats=1)

    def cells(scale):
        first, second = table.cells(scale)
        return [replace(first, measure=Failing("table0", 1, clock, calls, problems)), second]

    backlog = backlog_of([replace(table, cells=cells)], out)
    listener = ReproductionListener(on_warning=warnings.append, on_failure=failures.append)
    measure_backlog(backlog, listener, sleep=lambda seconds: calls.append(("pause", seconds)))
    missing = [one.cell.key[1] for one in backlog.missing()]
    assert sorted({name for name, _ in calls} - {"pause"} | set(missing)) == ["table0", "table1"]
    return [name for name, _ in calls], failures, warnings


def test_a_measurement_that_fails_is_reported_and_the_others_go_on(tmp_path, clock):
    calls, failures, _ = run_with_failures(tmp_path, clock, [ValueError("no data")])
    assert calls == ["table1"]
    assert failures == ["trial/table, digits · table0, seed 0: ValueError: no data"]


def test_a_measurement_without_enough_memory_is_tried_again_after_a_pause(tmp_path, clock):
    full = torch.OutOfMemoryError("CUDA out of memory.")
    calls, failures, warnings = run_with_failures(tmp_path / "some", clock, [full, full])
    assert (calls, failures) == (["pause", "table1", "pause", "table0"], [])
    assert len(warnings) == 2
    assert warnings[0].startswith("trial/table, digits · table0, seed 0: the GPU has too little")
    calls, failures, _ = run_with_failures(tmp_path / "all", clock, [full] * 9)
    assert (calls, len(failures)) == (["pause", "table1", "pause", "pause"], 1)


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: unknown error",
        "Triton Error [CUDA]: out of memory",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`",
        "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    ],
)
def test_nothing_is_measured_after_an_error_of_the_gpu(tmp_path, clock, message):
    calls, failures, warnings = run_with_failures(tmp_path, clock, [RuntimeError(message)])
    assert calls == []
    assert failures == [f"trial/table, digits · table0, seed 0: RuntimeError: {message}"]
    assert warnings == ["This process stops: the GPU may give it wrong results now."]
