"""What a grid varies: keys with their values or ranges, and their combinations."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tacit.config.kinds import SELECTORS
from tacit.config.variants import split_outside_brackets
from tacit.core.errors import Misuse
from tacit.core.randomness import derive_key

MAX_SETTINGS = 10_000
RANGES = ("log", "uniform", "int")


@dataclass(frozen=True)
class Axis:
    """A key and the values that it takes: texts as in `--set`, or a range to draw from.

    The key is a section alone if its values choose an algorithm, a graph, a model and so on; then
    they can have options, such as "lppa+fresh=true".
    """

    key: str
    values: tuple[str, ...] = ()
    draw: Callable[[float], str] | None = None  # from a uniform number in [0, 1)

    @classmethod
    def parse(cls, text: str) -> Axis:
        """An axis such as "algorithm=dsgt,lppa+fresh=true" or "algorithm.lr=log:1e-3:1".

        Ranges are "log:LOW:HIGH", "uniform:LOW:HIGH" and, with both ends, "int:LOW:HIGH".
        """
        key, equals, rest = text.partition("=")
        key = key.strip()
        if not equals or not key or not rest.strip():
            raise Misuse(
                f"--over {text!r} is not of the form KEY=VALUE,VALUE.",
                "E.g. algorithm=dsgt,lppa or algorithm.lr=0.01,0.1; with --random also "
                "algorithm.lr=log:1e-3:1.",
            )
        section, _, name = key.partition(".")
        if name and SELECTORS.get(section) == name:
            key = section
        kind, colon, ends = rest.strip().partition(":")
        if colon and kind in RANGES:
            return cls(key, draw=_range(text, kind, ends))
        values = [value.strip() for value in split_outside_brackets(rest, ",")]
        if not all(values):
            raise Misuse(f"--over {text!r} has an empty value.", "Remove one of its commas.")
        return cls(key, tuple(dict.fromkeys(values)))

    def at(self, number: float) -> str:
        """The value at a number in [0, 1)."""
        if self.draw is not None:
            return self.draw(number)
        return self.values[int(number * len(self.values))]


def combine(axes: Sequence[Axis], draws: int | None, seed: int) -> list[dict[str, str]]:
    """All combinations of the axes' values, or so many different random ones.

    More draws with the same seed begin with the same combinations.
    """
    keys = [axis.key for axis in axes]
    if not axes or len(set(keys)) < len(keys):
        problem = f"--over names a key twice: {', '.join(keys)}."
        problem = problem if axes else "There is nothing to vary."
        raise Misuse(problem, "Give each key once, e.g. --over algorithm=dsgt,lppa.")
    if "run.seed" in keys:
        raise Misuse("--over run.seed is no setting.", "Use --seeds 3, which averages over seeds.")
    if draws is None:
        return _all_combinations(axes)
    if not 1 <= draws <= MAX_SETTINGS:
        raise Misuse(f"--random is {draws}.", f"Give a number from 1 to {MAX_SETTINGS:,}.")
    source = random.Random(derive_key(seed, "sweep"))
    drawn: dict[tuple[str, ...], None] = {}
    # There may be fewer combinations than are asked for.
    for _ in range(100 * draws):
        if len(drawn) == draws:
            break
        drawn.setdefault(tuple(axis.at(source.random()) for axis in axes))
    return [dict(zip(keys, values, strict=True)) for values in drawn]


def _all_combinations(axes: Sequence[Axis]) -> list[dict[str, str]]:
    for axis in axes:
        if axis.draw is not None:
            raise Misuse(
                f"--over {axis.key} is a range, of which there are no single values to list.",
                "Add --random 20, or list values.",
            )
    count = math.prod(len(axis.values) for axis in axes)
    if count > MAX_SETTINGS:
        raise Misuse(
            f"The grid has {count:,} combinations.",
            f"Use at most {MAX_SETTINGS:,}, or draw some with --random.",
        )
    keys = [axis.key for axis in axes]
    products = itertools.product(*(axis.values for axis in axes))
    return [dict(zip(keys, values, strict=True)) for values in products]


def _range(text: str, kind: str, ends: str) -> Callable[[float], str]:
    try:
        low, high = (float(end) for end in ends.split(":"))
    except ValueError:
        raise Misuse(
            f"--over {text!r} is not a range.", f"Write {kind}:LOW:HIGH with two numbers."
        ) from None
    if not (math.isfinite(low) and math.isfinite(high) and low < high) or (
        kind == "log" and low <= 0
    ):
        raise Misuse(
            f"--over {text!r} is not a range.",
            "The second number must be larger"
            + (", the first positive." if kind == "log" else "."),
        )
    if kind == "log":
        return lambda number: f"{low * (high / low) ** number:.4g}"
    if kind == "int":
        return lambda number: str(math.floor(low + number * (math.floor(high) - low + 1)))
    return lambda number: repr(float(f"{low + number * (high - low):.4g}"))
