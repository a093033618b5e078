import math

import pytest

from tacit.peer.node.score_history import MAX_POINTS, Score, ScoreHistory


def repr_start(value):
    return repr(value)[:10]


def test_repeated_iterations_replace_their_points():
    history = ScoreHistory()
    for step in (0, 5, 10):
        history.add(step, 1.0, None)
    history.add(5, 0.5, 80)
    assert history.points() == [Score(0, 1.0, None), Score(5, 0.5, 80.0)]


def test_a_long_history_is_thinned_and_keeps_its_ends():
    history = ScoreHistory()
    for step in range(10 * MAX_POINTS):
        history.add(step, float(step), None)
        assert len(history.points()) <= MAX_POINTS
        assert history.points()[-1].step == step
    steps = [point.step for point in history.points()]
    assert steps[0] == 0
    assert steps == sorted(set(steps))
    assert len(steps) > MAX_POINTS // 3


@pytest.mark.parametrize("step", [-1, 2**53, 10**400], ids=repr_start)
def test_impossible_steps_are_left_out(step):
    history = ScoreHistory()
    history.add(step, 1.0, None)
    assert history.points() == []


@pytest.mark.parametrize("value", [math.nan, math.inf, "0.5", None, [1], 10**400], ids=repr_start)
def test_what_is_no_number_is_none(value):
    history = ScoreHistory()
    history.add(0, value, value)
    assert history.points() == [Score(0, None, None)]
    sent = history.to_wire()
    assert math.isnan(sent.loss[0])
    assert math.isnan(sent.accuracy[0])
