"""What the codecs cost in bytes and in time: `python benches/codecs.py --parameters 1000000 --rows 4`.

Times are nanoseconds per number of the rows, medians over the repeats, and below them how many copies of the rows
would take as long. Everything is measured in turn within each
repeat, a plain copy of the rows too, so that a busy machine slows all of it alike. Random words are drawn
beforehand: what they cost is the generator's affair and has a column of its own. (The subset of rand-k is computed
from its seed by the codec, and counted there.)
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from tacit.compression import QSGD, Codec, Identity, RandK, SignBits
from tacit.randomness import key_of, tiles, words

SUBJECTS: dict[str, Codec] = {
    "identity": Identity(),
    "sign": SignBits(),
    "sign (of signs)": SignBits(),
    "qsgd 2 bits": QSGD(2),
    "qsgd 4 bits": QSGD(4),
    "qsgd 8 bits": QSGD(8),
    "qsgd 16 bits": QSGD(16),
    "rand-k 1 %": RandK(fraction=0.01),
    "rand-k 10 %": RandK(fraction=0.1),
    "rand-k 10 %, qsgd 8": RandK(fraction=0.1, values=QSGD(8)),
    "rand-k 10 %, sign": RandK(fraction=0.1, values=SignBits()),
}
COLUMNS = ("draw", "received", "encode", "decode")


class Words:
    """Random words for `rows` messages, drawn once and remembered."""

    def __init__(self, rows: int) -> None:
        self.rows = torch.arange(rows)
        self.drawn: dict[tuple[str, int], Tensor] = {}

    def __call__(self, purpose: str, count: int) -> Tensor:
        """The words for this purpose, from memory if they were asked for before."""
        if (purpose, count) not in self.drawn:
            self.drawn[purpose, count] = self.draw(purpose, count)
        return self.drawn[purpose, count]

    def draw(self, purpose: str, count: int) -> Tensor:
        """The words for this purpose, drawn anew as the simulator does."""
        out = torch.empty(len(self.rows), count, dtype=torch.int64)
        for rows, columns in tiles(*out.shape):
            source = self.rows[rows]
            drawn = words(key_of(0, purpose), 0, source, torch.zeros_like(source), columns)
            out[rows, columns.start : columns.stop] = drawn
        return out

    def draw_all(self) -> None:
        """Draw anew everything that was ever asked for."""
        for purpose, count in self.drawn:
            self.draw(purpose, count)


def actions(codec: Codec, rows: Tensor) -> dict[str, Callable[[], object]]:
    """What is timed for one codec, by column; each is done once so that all words are drawn."""
    drawn = Words(len(rows))
    wire = codec.encode(rows, drawn)
    codec.received(rows, drawn)
    return {
        "draw": drawn.draw_all,
        "received": lambda: codec.received(rows, drawn),
        "encode": lambda: codec.encode(rows, drawn),
        "decode": lambda: codec.decode(wire, rows.shape[1], rows.dtype),
    }


def seconds(action: Callable[[], object]) -> float:
    """How long it takes, once."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def measure(rows: Tensor, repeats: int) -> dict[tuple[str, str], float]:
    """Median nanoseconds per number of every codec and column, and of ("copy", "received")."""
    signs = torch.where(rows < 0, -0.01, 0.01)
    timed: dict[tuple[str, str], Callable[[], object]] = {("copy", "received"): rows.clone}
    for name, codec in SUBJECTS.items():
        subject = signs if "signs" in name else rows
        timed |= {(name, column): action for column, action in actions(codec, subject).items()}
    taken: dict[tuple[str, str], list[float]] = {what: [] for what in timed}
    for _ in range(repeats):
        for what, action in timed.items():
            taken[what].append(seconds(action))
    return {what: median(times) / rows.numel() * 1e9 for what, times in taken.items()}


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parameters", type=int, default=1_000_000, help="numbers in a row")
    parser.add_argument("--rows", type=int, default=4, help="messages encoded together")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument(
        "--threads", type=int, default=torch.get_num_threads(), help="1 where cores are shared"
    )
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    rows = torch.randn(given.rows, given.parameters, generator=torch.Generator().manual_seed(0))
    nanoseconds = measure(rows, given.repeats)

    print(
        f"{given.rows} rows of {given.parameters:,} float32; threads: {given.threads}; times in ns per number"
    )
    header = f"{'codec':<20}{'bytes/row':>12}{'bits/number':>13}{'of float32':>12}"
    print(header + "".join(f"{column:>10}" for column in COLUMNS))
    print(f"{'(a copy)':<20}{'':>12}{'':>13}{'':>12}{'':>10}{nanoseconds['copy', 'received']:>10.2f}")
    copy = nanoseconds["copy", "received"]
    for name, codec in SUBJECTS.items():
        size = codec.size(given.parameters, rows.dtype)
        costs = f"{size:>12,}{8 * size / given.parameters:>13.3f}{size / (4 * given.parameters):>12.4f}"
        times = [nanoseconds[name, column] for column in COLUMNS]
        print(f"{name:<20}{costs}" + "".join(f"{time:>10.2f}" for time in times))
        print(f"{'  in copies':<57}" + "".join(f"{time / copy:>10.1f}" for time in times))


if __name__ == "__main__":
    main()
