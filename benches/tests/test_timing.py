"""Interleaved timing, with a clock that only these tests move."""

import pytest
import torch

from tacit_benches.benchmark import BenchOptions, Quartiles, Timings

CPU, GPU = torch.device("cpu"), torch.device("cuda")


class Clock:
    def __init__(self):
        self.now = 0.0
        self.log = []

    def takes(self, name, *seconds):
        """A function that takes this long at its first, second, … call."""
        each = iter(seconds)

        def function():
            self.log.append(name)
            self.now += next(each)

        return function


def test_functions_are_interleaved_after_a_warmup():
    clock = Clock()
    functions = {"a": clock.takes("a", 100, 1, 2, 3), "b": clock.takes("b", 200, 4, 5, 6)}
    progress = []
    options = BenchOptions(
        (), CPU, progress=lambda *numbers: progress.append(numbers), clock=lambda: clock.now
    )
    timings = options.time("both", functions, 3, 1)
    assert clock.log == ["a", "b"] * 4
    assert timings.seconds == {"a": [1, 2, 3], "b": [4, 5, 6]}
    assert timings.repeats == 3
    assert progress == [("both", 1, 4), ("both", 2, 4), ("both", 3, 4), ("both", 4, 4)]


@pytest.mark.parametrize(
    ("given", "quick", "repeats"), [(None, False, 5), (None, True, 2), (7, False, 7), (7, True, 7)]
)
def test_number_of_repeats(given, quick, repeats):
    options = BenchOptions((), CPU, given, quick)
    assert options.time("nothing", {"a": lambda: None}, 5, 2, warmups=0).repeats == repeats


def test_device_is_synchronized_before_and_after(monkeypatch):
    clock = Clock()

    def synchronize(device):
        # Earlier work of the device takes 1000 seconds, which do not count.
        clock.now += 10 if "a" in clock.log else 1000
        clock.log.append("synchronize")

    monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
    options = BenchOptions((), GPU, clock=lambda: clock.now)
    timings = options.time("a", {"a": clock.takes("a", 1)}, 1, 1, warmups=0)
    assert clock.log == ["synchronize", "a", "synchronize"]
    assert timings.seconds == {"a": [11]}


def test_ratios_are_taken_per_repeat():
    timings = Timings({"ours": [1.0, 8.0, 3.0], "limit": [2.0, 4.0, 3.0]})
    assert timings.median("ours") == 3.0
    assert timings.ratio("ours", "limit") == Quartiles(1.0, low=0.75, high=1.5)  # of 0.5, 1 and 2
    assert timings.ratio("ours", "limit", scale=10).median == 10.0


def test_sums_of_functions():
    timings = Timings({"there": [1.0, 2.0], "back": [3.0, 6.0], "copy": [1.0, 2.0]})
    assert timings.median("there", "back") == 6.0
    assert timings.ratio(("there", "back"), "copy") == Quartiles(4.0, 4.0, 4.0)


def test_different_numbers_of_repeats_have_no_ratio():
    with pytest.raises(ValueError, match="argument 2 is longer"):
        Timings({"a": [1.0], "b": [1.0, 2.0]}).ratio("a", "b")
