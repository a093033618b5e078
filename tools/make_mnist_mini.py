"""Regenerate src/tacit/data/files/mnist_mini.npz: `python tools/make_mnist_mini.py DATA_FOLDER`."""

import hashlib
import sys
from pathlib import Path

import numpy as np

from tacit.data.datasets import READERS
from tacit.data.locate import locate
from tacit.data.mini import TEST_PER_CLASS, TRAIN_PER_CLASS, choose
from tacit.data.sources import SOURCES

TARGET = Path(__file__).parents[1] / "src" / "tacit" / "data" / "files" / "mnist_mini.npz"


def mini_arrays(data: Path) -> dict[str, np.ndarray]:
    """Return the arrays of the embedded file, chosen from the whole MNIST below the data folder."""
    found = locate(SOURCES["mnist"], [data / "mnist", data])
    if found is None:
        raise SystemExit(f"MNIST is not in {data}: get it by `tacit data fetch mnist`.")
    whole = READERS["mnist"](found, seed=0)
    arrays = {}
    for name, split, per_class in (
        ("train", whole.train, TRAIN_PER_CLASS),
        ("test", whole.test, TEST_PER_CLASS),
    ):
        chosen = choose(split.y, per_class)
        arrays[f"{name}_x"] = split.x[chosen, 0]
        arrays[f"{name}_y"] = split.y[chosen].astype(np.uint8)
    return arrays


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    np.savez_compressed(TARGET, **mini_arrays(Path(sys.argv[1])))
    contents = TARGET.read_bytes()
    print(f"{TARGET}: {len(contents):,} bytes, sha256 {hashlib.sha256(contents).hexdigest()}")
