"""Data of three hospitals for examples/federation.toml, as files and as a function.

    python examples/hospital.py runs/parts      # writes a.npz, b.npz and c.npz to runs/parts
    tacit node nodes/a --data runs/parts/a.npz
    PYTHONPATH=examples tacit node nodes/a --data hospital:records      # calls records("a")

The three split a public dataset that comes with scikit-learn: 569 biopsies with 30 measurements
each. In a real federation, `records` reads the hospital's own table.
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

HOSPITALS = ("a", "b", "c")


def records(name):
    """Training and test data of the node `name`: ((x, y), (x_test, y_test))."""
    x, y = load_breast_cancer(return_X_y=True)
    # All nodes must scale in the same way: by constants they agreed on, never by their own means.
    x = (x - x.mean(0)) / x.std(0)
    mine = np.random.default_rng(0).permutation(len(x))[HOSPITALS.index(name) :: len(HOSPITALS)]
    train, test = mine[40:], mine[:40]
    return (x[train], y[train]), (x[test], y[test])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write a.npz, b.npz and c.npz to a folder.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path("parts"))
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name in HOSPITALS:
        (x, y), (x_test, y_test) = records(name)
        np.savez(folder / f"{name}.npz", x=x, y=y, x_test=x_test, y_test=y_test)
        print(f"{folder / name}.npz: {len(x)} patients for training, {len(x_test)} for testing")
