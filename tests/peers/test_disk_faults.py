"""Killed nodes, full disks, damaged files and clocks that jump: no bit of the result changes."""

import errno
import os
import random
import re
import resource
import shutil
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from chaos import (
    FRESH,
    LONG,
    ForkedFederation,
    kill,
    logged,
    metric,
    monitored,
    run_in_threads,
    undisturbed,
    until,
    until_logged,
    until_step,
)
from federations import federation, models, plan, twin, with_salts

import tacit.peer
from tacit.peer.node import results
from tacit.peer.node.checkpoint_store import CheckpointStore

FULL, DAMAGED, STOPPED, KILLED = "n2", "n1", "n4", ["n0", "n3"]
LINES = ["the history", "the record of messages"]  # whichever is written next
DAY = 86_400.0
# The only uses of the time of day, which may jump.
TIME_OF_DAY = {
    ("event_log.py", "clock: Callable"),  # of a line of the log
    ("servers.py", "tacit_start_seconds"),  # a metric
    ("relay.py", "tacit_start_seconds"),
    ("relay.py", "self._credentials.expiry"),  # whether the relay's certificate has expired
    ("health.py", "clock: Callable"),  # whether the certificate has expired
    ("node_state.py", "certificate_notice"),
    ("log_sharing.py", "announce_expiry"),
    ("own_page.py", "now, manifest"),  # how long ago something was
    ("live_credentials.py", "time.gmtime(expiry)"),
    ("member_request.py", "isoformat"),  # when a request was made
    ("change_log.py", "isoformat"),  # when a change was made
    ("federation_watch.py", "time.time()"),  # of what the dashboard shows
    ("certificates.py", "now = "),  # the validity of certificates
    ("signing.py", "not_valid_before"),
    ("signing.py", "timedelta(days"),
    ("roster_agreement.py", "rules = "),  # since when a member is suspended, for reports
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A federation that is only copied, never run; it evaluates after every iteration."""
    base = tmp_path_factory.mktemp("disks")
    config = plan(FRESH, rounds=120, iterations=1, hidden=4)
    return with_salts(federation(base / "home", config))


@pytest.fixture(scope="module")
def expected(home):
    """The final models [N, P] without faults."""
    return undisturbed(twin(home, home.path.parent / "undisturbed"))


@pytest.fixture(scope="module")
def seen(home):
    """A run with a full disk, stopped and killed nodes and a damaged checkpoint, as observed."""
    harmed = twin(home, home.path.parent / "harmed")
    hopeless = twin(home, home.path.parent / "hopeless")
    found = SimpleNamespace(home=harmed)
    alone = ForkedFederation(hopeless, save_seconds=0.3)
    try:
        with ForkedFederation(harmed, save_seconds=0.3) as running:
            until_step(harmed, 10)
            fill_disk(harmed, running.nodes[FULL], found)
            until_step(harmed, 40, [FULL])
            processes = [running.nodes[name].process for name in (DAMAGED, STOPPED)]
            for process in processes:
                process.terminate()
            found.exits = [process.wait(LONG) for process in processes]
            found.saved = {name: checkpoints(harmed, name) for name in (DAMAGED, STOPPED)}
            shutil.copytree(
                harmed.node(STOPPED).run, hopeless.node(STOPPED).run, dirs_exist_ok=True
            )
            truncate(found.saved[DAMAGED][:1])
            truncate(checkpoints(hopeless, STOPPED))
            for name in (DAMAGED, STOPPED):
                running.start(name)
            node = alone.start(STOPPED)
            found.refused, found.last_error = node.process.wait(LONG), node.last_error()
            # Two at once, and one of them again right after its restart.
            until_step(harmed, 60, KILLED)
            for victims in (KILLED, KILLED[:1]):
                starts = len(logged(harmed, KILLED[0], "started"))
                kill(running, victims)
                until_logged(harmed, KILLED[0], "started", starts + 1)
            assert running.wait(LONG), [node.last_error() for node in running.failed()]
    finally:
        alone.stop()
    return found


def fill_disk(home, node, found):
    """Fill the disk during a checkpoint, and later during the next line of a file."""

    def failures():
        return metric(home, FULL, "tacit_checkpoint_failures_total")

    limit_files(node, 30_000)
    until(lambda: logged(home, FULL, "save failed"), "a checkpoint is not saved")
    found.state = monitored(home, FULL, "health"), monitored(home, FULL)
    limit_files(node, 0)  # not even a line of the log
    before = failures()
    until(lambda: failures() > before, "it has tried again")
    limit_files(node, None)
    until_step(home, found.state[1]["step"] + 1, [FULL])
    limit_files(node, 0)
    before = failures()
    until(lambda: failures() > before, "a line is not saved")
    found.line = monitored(home, FULL, "health"), monitored(home, FULL)
    limit_files(node, None)


def limit_files(node, size):
    """Limit the size of files that a running process writes: more fails, as on a full disk."""
    pid = node.process.pid
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most if size is None else size, most))


def checkpoints(home, name):
    """The checkpoint files of a node, newest first."""
    return CheckpointStore(home.node(name).run / "checkpoints").newest_first()


def truncate(paths):
    for path in paths:
        os.truncate(path, path.stat().st_size // 2)


def test_on_a_full_disk_a_node_reports_that_and_waits(seen):
    reported = []
    for (health, status), possible in (seen.state, ["the state"]), (seen.line, LINES):
        assert not health["healthy"]
        reported += [what for what in possible if what in health["reason"]]
        assert status["phase"] == "saving"
        assert os.strerror(errno.EFBIG) in status["problem"]
    assert len(reported) == 2
    retried = [line["what"] for line in logged(seen.home, FULL, "saved after retry")]
    assert retried == reported
    records = results.read_history(seen.home.node(FULL).run / "history.jsonl")
    assert [record["step"] for record in records] == list(range(121))


def test_a_stopped_node_continues_from_its_last_iteration(seen):
    assert seen.exits == [0, 0]
    for name in (DAMAGED, STOPPED):
        [stopped] = logged(seen.home, name, "stopped")
        assert stopped["saved"] == stopped["step"] >= 38
        assert f"{stopped['step']:09d}" in seen.saved[name][0].name
    [resumed] = logged(seen.home, STOPPED, "resumed")
    assert resumed["step"] == stopped["step"]


def test_killed_nodes_repeat_what_they_had_not_saved(seen):
    assert [len(logged(seen.home, name, "resumed")) for name in KILLED] == [2, 1]


def test_instead_of_a_damaged_checkpoint_the_previous_one_is_used(seen):
    [skipped] = logged(seen.home, DAMAGED, "checkpoint skipped")
    newest, previous = seen.saved[DAMAGED]
    assert newest.name in skipped["why"]
    [resumed] = logged(seen.home, DAMAGED, "resumed")
    assert f"{resumed['step']:09d}" in previous.name
    assert newest.with_suffix(".damaged").exists()


def test_without_an_undamaged_checkpoint_a_node_does_not_start(seen):
    assert seen.refused == 2
    assert "No checkpoint in" in seen.last_error
    assert "Ask the operator to remove this node" in seen.last_error
    assert all(path.name in seen.last_error for path in seen.saved[STOPPED])


def test_no_bit_of_the_models_changed(seen, expected):
    assert torch.equal(models(seen.home), expected)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two nodes that are only copied, never run, and their final models without faults."""
    config = plan(FRESH, rounds=2, iterations=3, hidden=4, clients=2, graph="complete")
    base = tmp_path_factory.mktemp("pair")
    home = with_salts(federation(base / "home", config, clients=2))
    return home, undisturbed(twin(home, home.path.parent / "undisturbed"))


def test_a_disk_that_is_full_at_the_end_is_waited_for(pair, tmp_path, monkeypatch):
    home, expected = twin(pair[0], tmp_path / "full"), pair[1]
    write, failures = results.write_bytes, iter([True, True, False])

    def sometimes(path, content, **options):
        if next(failures, False):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, content, **options)

    monkeypatch.setattr(results, "write_bytes", sometimes)
    logs = run_in_threads(home)
    assert "".join(logs.values()).count("the model cannot be saved: No space left") == 2
    assert torch.equal(models(home), expected)


def test_a_clock_that_jumps_by_days_changes_only_times(pair, tmp_path, monkeypatch):
    home, expected = twin(pair[0], tmp_path / "jumping"), pair[1]
    now = time.time()

    jumps, true_time = random.Random(0), time.time

    def jumping():
        # Not for gRPC's Python part: its core compares such a time with the system's own clock, and
        # waits for a day in `Server.start`.
        if not sys._getframe(1).f_globals["__name__"].startswith("tacit."):
            return true_time()
        return now + jumps.choice([DAY, -DAY, 0.0])

    monkeypatch.setattr(time, "time", jumping)
    logs = run_in_threads(home, clock=jumping)
    days = set(re.findall(r'"time": "(\S{10})', "".join(logs.values())))
    assert len(days) == 3
    assert torch.equal(models(home), expected)


def test_the_time_of_day_is_used_only_where_jumps_do_no_harm():
    uses = re.compile(
        r"\btime\.(time|time_ns|localtime|gmtime|ctime|strftime)\b|datetime\.(now|utcnow|today)\("
    )
    found = set()
    for path in Path(tacit.peer.__file__).parent.rglob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert "from time import" not in line, path
            if uses.search(line):
                known = {use for use in TIME_OF_DAY if use[0] == path.name and use[1] in line}
                assert known, (path.name, line)
                found |= known
    assert found == TIME_OF_DAY
