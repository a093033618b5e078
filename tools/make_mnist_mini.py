"""Regenerate src/tacit/data/files/mnist_mini.npz: `python tools/make_mnist_mini.py DATA_FOLDER`."""

import hashlib
import sys
from pathlib import Path

import numpy as np

from tacit.data.formats.images import read_idx
from tacit.data.locate import locate
from tacit.data.sources import SOURCES

TARGET = Path(__file__).parents[1] / "src" / "tacit" / "data" / "files" / "mnist_mini.npz"


def mini_arrays(data: Path) -> dict[str, np.ndarray]:
    """The arrays of the embedded file, chosen from MNIST in the data folder."""
    files = locate(SOURCES["mnist"], [data / "mnist", data])
    if files is None:
        raise SystemExit(f"MNIST is not in {data}. Get it with `tacit data fetch mnist`.")
    whole = read_idx(files)
    arrays = {}
    for name, split, per_class in (("train", whole.train, 400), ("test", whole.test, 100)):
        # The first samples of each class, in their original order.
        firsts = [np.flatnonzero(split.y == label)[:per_class] for label in range(10)]
        chosen = np.sort(np.concatenate(firsts))
        arrays[f"{name}_x"] = split.x[chosen, 0]
        arrays[f"{name}_y"] = split.y[chosen].astype(np.uint8)
    return arrays


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    np.savez_compressed(TARGET, **mini_arrays(Path(sys.argv[1])))
    contents = TARGET.read_bytes()
    print(f"{TARGET}: {len(contents):,} bytes, sha256 {hashlib.sha256(contents).hexdigest()}")
