import pytest

from tacit.peer.node.iteration_clock import MIN_SECONDS, START_SECONDS, IterationClock


class Time:
    now = 1_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def time():
    return Time()


@pytest.fixture
def clock(time):
    return IterationClock(time)


def test_an_iteration_far_longer_than_the_recent_ones_is_a_stall(clock, time):
    for seconds in (20.0, 30.0, 10.0):
        time.now += seconds
        clock.advance()
    time.now += 300
    assert clock.stalled_for(waits=True) == 0
    time.now += 1
    assert clock.stalled_for(waits=True) == clock.stalled_for(waits=False) == 301


def test_short_iterations_have_a_limit_too(clock, time):
    for _ in range(50):
        time.now += 0.01
        clock.advance()
    assert clock.limit() == MIN_SECONDS


def test_the_first_iteration_may_take_any_time_unless_it_waits(clock, time):
    time.now += START_SECONDS + 1
    assert clock.stalled_for(waits=False) == 0
    assert clock.stalled_for(waits=True) == START_SECONDS + 1
    clock.start()
    assert clock.stalled_for(waits=True) == 0


def test_nothing_is_late_after_the_end(clock, time):
    clock.advance()
    clock.stop()
    time.now += 1e6
    assert clock.stalled_for(waits=True) == 0
