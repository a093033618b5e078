"""A captured iteration gives what computing it gives; here it is replayed by the CPU.

What a GPU would read on the device (tick, step sizes, samples) is read from the same tensors, so
anything that an algorithm fixes during the capture would show.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import pytest
import torch
from capturable import CANNOT, FALLING, GRAPH, VARIANTS, N, capture_on_cpu, case, digits

import tacit
from tacit.algorithms.algorithm import Algorithm, tensors_of
from tacit.algorithms.tracking import REQUIRES, TrackingState, track
from tacit.core import native
from tacit.core.schedules import Exponential
from tacit.engines.capture.iteration import CapturedStep, NotCapturable, copied_state, overwrite
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.engines.watchdog import NonFiniteRow, Watchdog


@pytest.fixture(autouse=True)
def tensor_operations(monkeypatch):
    """As on a GPU, without compiled loops."""
    monkeypatch.setattr(native, "_library", lambda: None)


def advanced(algorithm, task, steps):
    simulation = Simulation(Setting(algorithm, task, GRAPH, seed=3, gradients="stacked"))
    simulation.start()
    for _ in range(steps):
        simulation.step()
    return simulation


def captured(simulation, algorithm, watchdog):
    state = [copied_state(simulation.state)]
    step = CapturedStep(algorithm, simulation.here, state.pop(), watchdog)
    capture_on_cpu(step)
    return step


# Clients with parts of one size read their samples in another way, whatever the algorithm.
ALIKE = ("lppa fresh, local steps", "pdmm", "private-sgd", "private-sgd clients")


@pytest.mark.parametrize(
    ("name", "uneven"),
    [
        *(pytest.param(name, True, id=f"{name}-uneven") for name in VARIANTS if name not in CANNOT),
        *(pytest.param(name, False, id=f"{name}-alike") for name in ALIKE),
    ],
)
def test_replaying_gives_what_computing_gives(name, uneven):
    algorithm, task = case(name, uneven)
    straight, other = advanced(algorithm, task, 9), advanced(algorithm, task, 2)
    replayed = captured(other, algorithm, Watchdog())
    for t in range(2, 9):
        replayed.replay(t)
    for field, rows in tensors_of(straight.state).items():
        torch.testing.assert_close(getattr(replayed.state, field), rows, rtol=1e-11, atol=1e-11)
    assert other.net.bytes_sent == straight.net.bytes_sent


def test_whole_parts_are_replayed_too():
    algorithm, task = tacit.LPPA(lr=FALLING, fresh=True), digits(batch_size=None)
    straight, other = advanced(algorithm, task, 6), advanced(algorithm, task, 2)
    replayed = captured(other, algorithm, Watchdog())
    for t in range(2, 6):
        replayed.replay(t)
    torch.testing.assert_close(replayed.state.theta, straight.state.theta, rtol=1e-11, atol=1e-11)


def test_the_reason_why_an_iteration_is_not_captured_is_a_remark(monkeypatch):
    def cannot(*parts):
        raise NotCapturable("it depends on the iteration")

    monkeypatch.setattr("tacit.engines.execution.CapturedStep", cannot)
    algorithm, task = tacit.DSGT(lr=FALLING), digits()
    straight, simulation = advanced(algorithm, task, 6), advanced(algorithm, task, 2)
    simulation._warm_up = 0  # as on a GPU after its first iterations
    for _ in range(4):
        simulation.step()
    assert [remark for remark in simulation.remarks if remark not in straight.remarks] == [
        "iterations are computed one by one, not captured: it depends on the iteration"
    ]
    assert torch.equal(simulation.state.theta, straight.state.theta)


def test_rows_return_to_their_places_and_copies_are_left_alone():
    algorithm = tacit.DSGT(lr=FALLING)
    replayed = captured(advanced(algorithm, digits(), 2), algorithm, Watchdog())
    first = {name: rows.data_ptr() for name, rows in tensors_of(replayed.state).items()}
    kept = copied_state(replayed.state)
    before = {name: rows.clone() for name, rows in tensors_of(kept).items()}
    places = []
    for t in range(2, 10):
        replayed.replay(t)
        state = tensors_of(replayed.state)
        places.append({name: rows.data_ptr() for name, rows in state.items()})
    # Three rows of state in four places: each round trip takes four iterations.
    assert places[3] == places[7] == first
    assert len({place for rows in places for place in rows.values()}) == 4
    assert all(torch.equal(rows, before[name]) for name, rows in tensors_of(kept).items())
    assert not torch.equal(replayed.state.theta, kept.theta)


def test_the_watchdog_sees_every_replayed_iteration():
    algorithm, watchdog = tacit.DSGT(lr=FALLING), Watchdog()
    replayed = captured(advanced(algorithm, digits(), 2), algorithm, watchdog)
    replayed.replay(2)
    assert watchdog.first_found() is None
    replayed.state.gamma[4, 1] = torch.nan
    replayed.replay(3)
    replayed.replay(4)
    found = watchdog.first_found()
    assert (found.iteration, found.field) == (4, "theta")
    assert found.row in (3, 4, 5)  # the client and its neighbours on the ring
    assert isinstance(found, NonFiniteRow)


@dataclass(frozen=True)
class Odd(Algorithm):
    """Uses the number of the iteration, in one of two ways."""

    name: ClassVar[str] = "odd"
    paper: ClassVar[str] = "none"
    requires: ClassVar[tuple[str, ...]] = REQUIRES
    protects: ClassVar[str] = "nothing"

    lr: float = 0.05
    by_tick: bool = False

    def start(self, here):
        return tacit.DSGT(lr=self.lr).start(here)

    def step(self, s: TrackingState, here) -> TrackingState:
        odd = here.tick in {1, 3, 5} if self.by_tick else here.t % 2
        return track(s, here, self.lr if odd else 2 * self.lr)


@pytest.mark.parametrize("by_tick", [False, True])
def test_an_algorithm_that_depends_on_the_iteration_is_not_captured(by_tick):
    algorithm = Odd(by_tick=by_tick)
    with pytest.raises(NotCapturable, match="number of the iteration"):
        captured(advanced(algorithm, digits(), 2), algorithm, Watchdog())


@dataclass(frozen=True)
class Scheduled(Algorithm):
    """Makes its schedule when it needs it, and has an option that is a function but no schedule."""

    name: ClassVar[str] = "scheduled"
    requires: ClassVar[tuple[str, ...]] = REQUIRES

    transform: Callable[[torch.Tensor], torch.Tensor] = torch.neg

    def start(self, here) -> TrackingState:
        return tacit.DSGT(lr=0.05).start(here)

    def step(self, s, here):
        after = track(s, here, Exponential(0.05, 0.8))
        return replace(after, theta=-self.transform(after.theta))


def test_schedules_are_what_the_text_asks_for_and_no_other_function():
    algorithm, task = Scheduled(), digits()
    straight, other = advanced(algorithm, task, 9), advanced(algorithm, task, 2)
    replayed = captured(other, algorithm, Watchdog())
    assert other.here.workspace.schedules == [Exponential(0.05, 0.8)]
    for t in range(2, 9):
        replayed.replay(t)
    torch.testing.assert_close(replayed.state.theta, straight.state.theta, rtol=1e-11, atol=1e-11)


def test_streams_are_not_captured():
    task = tacit.adaptive_filtering(N, 3)
    with pytest.raises(TypeError, match="no indices"):
        captured(advanced(tacit.DSGT(lr=0.01), task, 2), tacit.DSGT(lr=0.01), Watchdog())


def test_a_view_of_an_old_row_is_copied():
    target = {"x": torch.arange(4.0).view(2, 2)}
    overwrite(target, {"x": target["x"].T})
    assert target["x"].tolist() == [[0.0, 2.0], [1.0, 3.0]]


def test_a_run_with_a_transcript_is_not_captured():
    simulation = advanced(tacit.DSGT(lr=FALLING), digits(), 2)
    simulation.here = replace(simulation.here, apply=lambda step, rows: step.function(rows))
    with pytest.raises(NotCapturable, match="transcript"):
        captured(simulation, tacit.DSGT(lr=FALLING), Watchdog())


def test_robust_mixing_is_not_captured():
    robust = tacit.Robust(tacit.DSG(lr=FALLING))
    with pytest.raises(NotCapturable, match="robust mixing"):
        captured(advanced(robust, digits(), 2), robust, Watchdog())


@pytest.mark.parametrize("order", ["abc", "bca", "cab", "bac", "aab"])
def test_rows_are_copied_before_they_are_overwritten(order):
    target = {name: torch.full((2,), float(place)) for place, name in enumerate("abc")}
    source = {name: target[other] for name, other in zip("abc", order, strict=True)}
    wanted = {name: rows.clone() for name, rows in source.items()}
    overwrite(target, source)
    assert all(torch.equal(target[name], rows) for name, rows in wanted.items())
