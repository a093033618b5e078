import json
import os

import pytest
import torch

from tacit import DSGT, Topology, simulate
from tacit.core.errors import Misuse
from tacit.core.workers import WorkerPool
from tacit.engines.gradients import choice as backends
from tacit.engines.gradients.backend import GradientBackend
from tacit.engines.gradients.choice import BackendChoice
from tacit.engines.gradients.objective import HostedObjective
from tacit.tasks import Task


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Each test starts with an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "tacit" / "gradients.json"


def smooth(theta, x):
    return (theta * x).square().mean()


def forked(theta, x):
    """Control flow that depends on the data, which torch.func cannot batch."""
    return (theta * x).sum() if float(x.sum()) > 0 else (theta * x).square().sum()


def task_of(loss, clients=3, width=4):
    parts = [torch.linspace(-1, 2, width) + k for k in range(clients)]
    return Task.from_loss(loss, parts, torch.ones(width))


def choice_for(task, requested="auto"):
    ids = list(range(task.clients))
    return backends.choose_backend(
        task, ids, task.loader(torch.tensor(ids), 0, "cpu"), 0, "cpu", requested
    )


def no_timing(*given):
    raise AssertionError("timed again")


def test_a_choice_is_made_by_timing_and_says_so():
    choice = choice_for(task_of(smooth))
    assert choice.strategy in ("batched", "looped")
    assert "timed once" in choice.reason


def test_a_choice_is_cached(monkeypatch):
    first = choice_for(task_of(smooth))
    monkeypatch.setattr(backends, "_time_all", no_timing)
    assert choice_for(task_of(smooth)) == first


@pytest.mark.parametrize("strategy", ["batched", "looped"])
def test_the_cached_choice_is_used_whatever_is_faster_now(strategy, monkeypatch):
    monkeypatch.setattr(backends, "_time_all", lambda *given: BackendChoice(strategy, "pretended"))
    choice_for(task_of(smooth))
    monkeypatch.setattr(backends, "_time_all", no_timing)
    assert choice_for(task_of(smooth)) == BackendChoice(strategy, "pretended")


def test_a_cached_loop_is_not_compared_with_other_backends(monkeypatch):
    monkeypatch.setattr(backends, "_time_all", lambda *given: BackendChoice("looped", "pretended"))
    choice_for(task_of(smooth))
    monkeypatch.setattr(backends, "_problem", no_timing)
    assert choice_for(task_of(smooth)) == BackendChoice("looped", "pretended")


def test_other_shapes_are_timed_on_their_own(monkeypatch):
    choice_for(task_of(smooth))
    monkeypatch.setattr(backends, "_time_all", lambda *given: BackendChoice("looped", "new shape"))
    assert choice_for(task_of(smooth, width=7)).reason == "new shape"


def test_the_fastest_backend_is_chosen(monkeypatch):
    timings = iter([3.0, 4.0, 300.0, 4.0])  # batched, looped; batched, looped
    monkeypatch.setattr(backends, "_seconds", lambda work, like, best: next(timings))
    candidates = {
        strategy: GradientBackend.of(task_of(smooth), strategy)
        for strategy in ("batched", "looped")
    }
    theta, x = torch.ones(3, 4), torch.ones(3, 4)
    assert backends._time_all(candidates, theta, (x,), WorkerPool(1)).strategy == "batched"
    assert backends._time_all(candidates, theta, (x,), WorkerPool(1)).strategy == "looped"


def test_a_loss_that_cannot_be_batched_is_looped_and_right():
    task = task_of(forked)
    choice = choice_for(task)
    assert choice.strategy == "looped"
    assert "cannot be batched" in choice.reason
    loader = task.loader(torch.arange(3), 0, "cpu")
    theta = torch.full((3, 4), 2.0)
    got = HostedObjective(task, [0, 1, 2], loader, choice.strategy, 0, "cpu").grad(theta, 0)
    for row, (x,) in enumerate(task.parts):
        expected = x if x.sum() > 0 else 2 * 2.0 * x.square()
        torch.testing.assert_close(got[row], expected)


def test_a_choice_made_for_another_loss_of_the_same_name_does_no_harm(monkeypatch):
    monkeypatch.setattr(backends, "_time_all", lambda *given: BackendChoice("batched", "pretended"))

    def loss(theta, x):
        return smooth(theta, x)

    assert choice_for(task_of(loss)).strategy == "batched"

    def loss(theta, x):  # as when a notebook's cell is edited and run again
        return forked(theta, x)

    assert choice_for(task_of(loss)).strategy == "looped"


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"\xff\xfe\x00", b"null"])
def test_a_damaged_cache_only_means_timing_again(content, cache, monkeypatch):
    choice_for(task_of(smooth))
    cache.write_bytes(content)
    chosen = choice_for(task_of(smooth))
    assert "timed once" in chosen.reason
    monkeypatch.setattr(backends, "_time_all", no_timing)
    assert choice_for(task_of(smooth)) == chosen


@pytest.mark.parametrize("entry", ["batched", {"strategy": "magic"}, {}, None])
def test_a_damaged_entry_is_replaced(entry, cache):
    choice_for(task_of(smooth))
    known = json.loads(cache.read_text())
    assert len(known) == 1
    cache.write_text(json.dumps(dict.fromkeys(known, entry)))
    assert "timed once" in choice_for(task_of(smooth)).reason
    assert json.loads(cache.read_text()).keys() == known.keys()


def test_a_cache_that_cannot_be_written_only_means_timing_again(tmp_path, monkeypatch):
    in_the_way = tmp_path / "file"
    in_the_way.write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(in_the_way))
    assert choice_for(task_of(smooth)).strategy in ("batched", "looped")
    assert choice_for(task_of(smooth)).strategy in ("batched", "looped")
    assert in_the_way.read_text() == "not a folder"


def test_nothing_else_is_left_in_the_cache(cache):
    choice_for(task_of(smooth))
    choice_for(task_of(smooth, width=9))
    assert os.listdir(cache.parent) == [cache.name]


def test_without_a_setting_the_cache_is_in_the_home(tmp_path, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    choice_for(task_of(smooth))
    assert (tmp_path / ".cache" / "tacit" / "gradients.json").is_file()


@pytest.mark.parametrize("requested", ["batched", "looped"])
def test_a_requested_backend_is_used_without_timing(requested, cache, monkeypatch):
    monkeypatch.setattr(backends, "_time_all", no_timing)
    assert choice_for(task_of(smooth), requested) == BackendChoice(requested, "as requested")
    assert not cache.exists()


def test_layers_are_refused_where_there_are_none():
    with pytest.raises(
        Misuse, match=r"\"layered\", but the loss is not that of a module.*\"batched\""
    ):
        choice_for(task_of(smooth), "layered")


def test_an_unknown_backend_is_refused():
    with pytest.raises(Misuse, match=r"'fast'.*\"auto\", \"layered\", \"batched\" or \"looped\""):
        choice_for(task_of(smooth), "fast")


def test_gradients_are_compared_parameter_by_parameter():
    expected = torch.cat([torch.full((90,), 1.0), torch.full((10,), 0.05)])
    found = expected.clone()
    assert backends._agree(found, expected, [90, 10], 0.01)
    found[90:] *= -1
    # The whole gradient is off by 3 % only, but one parameter has the opposite sign.
    assert backends._agree(found, expected, [100], 0.05)
    assert not backends._agree(found, expected, [90, 10], 0.05)
    # Where a parameter's gradient is rounding only, it does not count.
    noise = torch.cat([torch.full((90,), 1.0), torch.full((10,), 1e-7)])
    assert backends._agree(torch.cat([noise[:90], -noise[90:]]), noise, [90, 10], 0.01)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_gradients_that_are_not_numbers_do_not_agree_with_those_that_are(bad):
    expected = torch.ones(4)
    assert not backends._agree(torch.full((4,), bad), expected, [4], 0.01)


def test_one_client_needs_no_batching(monkeypatch):
    monkeypatch.setattr(backends, "_time_all", no_timing)
    assert choice_for(task_of(smooth, clients=1)).strategy == "looped"


def test_a_loss_of_several_numbers_is_refused():
    task = Task.from_loss(
        lambda theta, x: (theta - x).square(), [torch.ones(3), torch.zeros(3)], torch.zeros(3)
    )
    with pytest.raises(Misuse, match=r"shape \(3,\).*Return one number"):
        simulate(DSGT(lr=0.1), task, Topology.ring(2).mixing("metropolis"), steps=1)


def test_a_loss_that_draws_at_random_is_refused():
    def shaky(theta, x):
        return (theta * x).sum() + torch.rand(())

    with pytest.raises(Misuse, match="loss draws from a hidden random stream"):
        simulate(DSGT(lr=0.1), task_of(shaky), Topology.ring(3).mixing("metropolis"), steps=1)


@pytest.mark.parametrize(
    ("taken", "best", "runs", "found"),
    [
        ([0.1, 0.03, 0.02], 1.0, 3, 0.02),
        ([0.9, 0.8], 1.0, 2, 0.8),
        ([6.0], 1.0, 1, 6.0),
    ],
)
def test_backends_that_take_long_are_timed_less_often(taken, best, runs, found, monkeypatch):
    clock, calls = [0.0], []

    def work():
        clock[0] += taken[len(calls)]
        calls.append(clock[0])

    timer = backends.timeit.Timer
    monkeypatch.setattr(
        backends.timeit,
        "timeit",
        lambda once, number: timer(once, timer=lambda: clock[0]).timeit(number),
    )
    monkeypatch.setattr(
        backends.timeit,
        "repeat",
        lambda once, number, repeat: timer(once, timer=lambda: clock[0]).repeat(repeat, number),
    )
    assert backends._seconds(work, torch.zeros(1), best) == pytest.approx(found)
    assert len(calls) == runs
