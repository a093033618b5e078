"""Work is timed in turns, by a clock that only this test moves."""

import pytest

from tacit.bench.stopwatch import Quartiles, Stopwatch, Timings


class Clock:
    def __init__(self):
        self.now = 0.0
        self.log = []

    def takes(self, name, *seconds):
        """Work that takes so long the first, second, … time."""
        each = iter(seconds)

        def work():
            self.log.append(name)
            self.now += next(each)

        return work

    def finish(self):
        self.log.append("finish")


def test_pieces_take_turns_and_the_first_turn_does_not_count():
    clock = Clock()
    works = {"a": clock.takes("a", 100, 1, 2, 3), "b": clock.takes("b", 200, 4, 5, 6)}
    told = []
    timings = Stopwatch(lambda: clock.now).interleaved(
        works, 3, warmups=1, turns=lambda done, of: told.append((done, of))
    )
    assert clock.log == ["a", "b"] * 4
    assert timings.seconds == {"a": [1, 2, 3], "b": [4, 5, 6]}
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_what_is_under_way_is_waited_for_before_and_after():
    clock = Clock()

    def finish():
        clock.finish()
        clock.now += 10 if "a" in clock.log else 1000  # what others left running is not ours

    seconds = Stopwatch(lambda: clock.now, finish).seconds(clock.takes("a", 1))
    assert clock.log == ["finish", "a", "finish"]
    assert seconds == 11


def test_ratios_are_taken_turn_by_turn():
    timings = Timings({"ours": [1.0, 8.0, 3.0], "limit": [2.0, 4.0, 3.0]})
    assert timings.median("ours") == 3.0
    assert timings.ratio("ours", "limit") == Quartiles(1.0, low=0.75, high=1.5)  # of 0.5, 1 and 2
    assert timings.ratio("ours", "limit", scale=10).median == 10.0


def test_pieces_can_be_added_up():
    timings = Timings({"there": [1.0, 2.0], "back": [3.0, 6.0], "copy": [1.0, 2.0]})
    assert timings.median("there", "back") == 6.0
    assert timings.ratio(("there", "back"), "copy") == Quartiles(4.0, 4.0, 4.0)


def test_pieces_of_different_turns_have_no_ratio():
    with pytest.raises(ValueError, match="argument 2 is longer"):
        Timings({"a": [1.0], "b": [1.0, 2.0]}).ratio("a", "b")
