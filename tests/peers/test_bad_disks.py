"""Disks that are full or lose what was written, stops in the middle, clocks that jump: no bit of the result changes."""

import errno
import itertools
import os
import re
import resource
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from chaos import (
    FRESH,
    LONG,
    ForkedFederation,
    asked,
    logged,
    metric,
    threads,
    undisturbed,
    until,
    until_step,
)
from federations import federation, models, plan, twin

import tacit.peer
from tacit.peer.node import results
from tacit.peer.node.checkpoint_store import CheckpointStore

FULL, DAMAGED, STOPPED = "n2", "n1", "n4"
DAY = 86_400.0
# Where the time of day may be asked for: a clock that jumps changes these, and nothing else.
TIME_OF_DAY = {
    ("journal.py", "clock: Callable"),  # of a line of the log
    ("serving.py", "tacit_start_seconds"),  # a metric
    ("certificates.py", "now = "),  # whether a certificate is valid
    ("identity.py", "not_valid_before"),  # from when
    ("identity.py", "timedelta(days"),  # and until when
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A federation that is never run itself; its models are judged at every iteration."""
    base = tmp_path_factory.mktemp("disks")
    return federation(base / "home", plan(FRESH, rounds=120, iterations=1, hidden=4))


@pytest.fixture(scope="module")
def expected(home):
    """The models [N, P] when nothing happens."""
    return undisturbed(twin(home, home.path.parent / "undisturbed"))


@pytest.fixture(scope="module")
def life(home):
    """What was seen of a federation that met with a full disk, and lost two nodes for a while and a checkpoint."""
    harmed = twin(home, home.path.parent / "harmed")
    seen = SimpleNamespace(home=harmed)
    with ForkedFederation(harmed, save_seconds=0.3) as running:
        until_step(harmed, 10)
        fill_the_disk(harmed, running.nodes[FULL], seen)
        until_step(harmed, 40, [FULL])
        ends = [running.nodes[name].process for name in (DAMAGED, STOPPED)]
        for process in ends:
            process.terminate()
        seen.ended = [process.wait(LONG) for process in ends]
        seen.saved = {name: checkpoints(harmed, name) for name in (DAMAGED, STOPPED)}
        hopeless = twin(home, home.path.parent / "hopeless")
        shutil.copytree(harmed.node(STOPPED).run, hopeless.node(STOPPED).run)
        truncate(seen.saved[DAMAGED][:1])
        truncate(checkpoints(hopeless, STOPPED))
        for name in (DAMAGED, STOPPED):
            running.start(name)
        alone = ForkedFederation(hopeless, save_seconds=0.3).start(STOPPED)
        seen.refused, seen.last_words = alone.process.wait(LONG), alone.last_words()
        assert running.wait(LONG), [node.last_words() for node in running.failed()]
    return seen


def fill_the_disk(home, node, seen):
    """Leave no room for a state, then for anything at all, in the middle of a save and again of a note of history."""

    def failures():
        return metric(home, FULL, "tacit_checkpoint_failures_total")

    room(node, 30_000)
    until(lambda: logged(home, FULL, "not saved"), "a state is not saved")
    seen.state = asked(home, FULL, "health"), asked(home, FULL)
    room(node, 0)  # not for a line of the log either
    before = failures()
    until(lambda: failures() > before, "it has tried again")
    room(node, None)
    until_step(home, seen.state[1]["step"] + 1, [FULL])
    room(node, 0)
    before = failures()
    until(lambda: failures() > before, "a line of history is not saved")
    seen.history = asked(home, FULL, "health"), asked(home, FULL)
    room(node, None)


def room(node, size):
    """Let no file of a running process be larger than so many bytes: writing more fails, as on a full disk."""
    _, most = resource.prlimit(node.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(
        node.process.pid, resource.RLIMIT_FSIZE, (most if size is None else size, most)
    )


def checkpoints(home, name):
    """The files of a node's checkpoints, the newest first."""
    return CheckpointStore(home.node(name).run / "checkpoints").newest_first()


def truncate(paths):
    """Lose the second half of files."""
    for path in paths:
        os.truncate(path, path.stat().st_size // 2)


def test_a_full_disk_is_told_and_waited_for(life):
    for what, (health, status) in {"the state": life.state, "the history": life.history}.items():
        assert not health["healthy"]
        assert what in health["reason"]
        assert status["phase"] == "saving"
        assert os.strerror(errno.EFBIG) in status["problem"]
    again = [line["what"] for line in logged(life.home, FULL, "saved again")]
    assert again == ["the state", "the history"]
    steps = [
        line["step"] for line in results.read_history(life.home.node(FULL).run / "history.jsonl")
    ]
    assert steps == list(range(121))  # no line twice, none missing, none cut off


def test_a_node_that_is_stopped_goes_on_from_there(life):
    assert life.ended == [0, 0]
    for name in (DAMAGED, STOPPED):
        [stopped] = logged(life.home, name, "stopped")
        assert stopped["saved"] == stopped["step"] >= 38
        assert f"{stopped['step']:09d}" in life.saved[name][0].name
    [resumed] = logged(life.home, STOPPED, "resumed")
    assert resumed["step"] == stopped["step"]


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(life):
    [passed] = logged(life.home, DAMAGED, "checkpoint passed over")
    newest, before = life.saved[DAMAGED]
    assert newest.name in passed["why"]
    [resumed] = logged(life.home, DAMAGED, "resumed")
    assert f"{resumed['step']:09d}" in before.name
    assert newest.with_suffix(".damaged").exists()


def test_without_any_whole_checkpoint_a_node_refuses(life):
    assert life.refused == 2
    assert "No checkpoint in" in life.last_words
    assert "Let the operator remove this node" in life.last_words
    assert all(path.name in life.last_words for path in life.saved[STOPPED])


def test_no_bit_of_the_models_changed(life, expected):
    assert torch.equal(models(life.home), expected)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two nodes that are never run themselves, and their models when nothing happens."""
    home = federation(
        tmp_path_factory.mktemp("pair") / "home",
        plan(FRESH, rounds=2, iterations=3, hidden=4, clients=2, graph="complete"),
        clients=2,
    )
    return home, undisturbed(twin(home, home.path.parent / "undisturbed"))


def test_a_disk_that_is_full_at_the_end_is_waited_for(pair, tmp_path, monkeypatch):
    home, expected = twin(pair[0], tmp_path / "full"), pair[1]
    replace, failures = results.replace, iter([True, True, False])

    def sometimes(path, content):
        if next(failures, False):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(path, content)

    monkeypatch.setattr(results, "replace", sometimes)
    logs = threads(home)
    assert "".join(logs.values()).count("the model cannot be saved: No space left") == 2
    assert torch.equal(models(home), expected)


def test_a_clock_that_jumps_by_days_changes_times_alone(pair, tmp_path, monkeypatch):
    home, expected = twin(pair[0], tmp_path / "jumping"), pair[1]
    now = time.time()

    def jumping():
        jumps = itertools.cycle([DAY, -DAY, 0.0])
        return lambda: now + next(jumps)

    monkeypatch.setattr(time, "time", jumping())
    logs = threads(
        home, clock=jumping()
    )  # one of its own: every line is of another day than the one before
    days = set(re.findall(r'"time": "(\S{10})', "".join(logs.values())))
    assert len(days) == 3
    assert torch.equal(models(home), expected)


def test_the_time_of_day_is_asked_for_where_it_does_no_harm():
    asks = re.compile(
        r"\btime\.(time|time_ns|localtime|gmtime|ctime|strftime)\b|datetime\.(now|utcnow|today)\("
    )
    names = re.compile(r"from time import")
    for path in Path(tacit.peer.__file__).parent.glob("*.py"):
        for line in path.read_text(encoding="utf-8").splitlines():
            assert not names.search(line), f"{path.name}: {line}"
            if asks.search(line):
                assert any(path.name == file and words in line for file, words in TIME_OF_DAY), (
                    path.name,
                    line,
                )
