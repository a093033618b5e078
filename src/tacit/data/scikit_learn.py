"""Datasets from scikit-learn, if they have no mirror or all mirrors failed."""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core import storage
from tacit.data.download import progress
from tacit.data.formats.images import IDX_SIDE, encode_idx

TRAINING_IMAGES = 60_000
POSITIVE, NEGATIVE = ("CCAT", "ECAT"), ("GCAT", "MCAT")


def write_idx(openml_name: str, folder: Path) -> list[Path]:
    """Write MNIST or Fashion-MNIST from OpenML (version 1, the original order) as IDX files."""
    from sklearn.datasets import fetch_openml

    # liac-arff is slow, but the other parser needs pandas.
    with progress(f"{openml_name} by scikit-learn", None):
        bunch = fetch_openml(
            openml_name, version=1, as_frame=False, parser="liac-arff", cache=False
        )
    images = np.asarray(bunch.data).astype(np.uint8).reshape(-1, IDX_SIDE, IDX_SIDE)
    labels = np.asarray(bunch.target).astype(np.uint8)
    arrays: dict[str, NDArray[np.uint8]] = {
        "train-images-idx3-ubyte.gz": images[:TRAINING_IMAGES],
        "train-labels-idx1-ubyte.gz": labels[:TRAINING_IMAGES],
        "t10k-images-idx3-ubyte.gz": images[TRAINING_IMAGES:],
        "t10k-labels-idx1-ubyte.gz": labels[TRAINING_IMAGES:],
    }
    for name, array in arrays.items():
        storage.write_bytes(folder / name, gzip.compress(encode_idx(array), mtime=0))
    return [folder / name for name in arrays]


def write_rcv1(folder: Path) -> list[Path]:
    """Write RCV1-v2 as a binary task in NumPy arrays.

    Label 1 is CCAT or ECAT, label 0 is GCAT or MCAT. Documents of both sides or of none are
    dropped, as in LIBSVM's files.
    """
    from sklearn.datasets import fetch_rcv1

    # scikit-learn caches pickles, so its cache is temporary.
    cache_folder = tempfile.TemporaryDirectory(prefix="scikit-learn-", dir=folder)
    with cache_folder as cache, progress("RCV1 by scikit-learn (about 650 MB)", None):
        return [
            _write_documents(
                folder / f"rcv1_{subset}.npz", fetch_rcv1(data_home=cache, subset=subset)
            )
            for subset in ("train", "test")
        ]


def _write_documents(path: Path, bunch: Any) -> Path:
    topics = bunch.target.tocsc()
    names = list(bunch.target_names)

    def has_any(codes: tuple[str, ...]) -> NDArray[np.bool_]:
        flags = topics[:, [names.index(code) for code in codes]].toarray()
        return np.asarray(flags.any(axis=1))

    positive, negative = has_any(POSITIVE), has_any(NEGATIVE)
    kept = positive != negative
    rows = bunch.data.tocsr()[np.flatnonzero(kept)]
    with storage.replacing(path) as part, part.open("wb") as out:
        np.savez_compressed(
            out,
            data=rows.data.astype(np.float32),
            indices=rows.indices.astype(np.int32),
            indptr=rows.indptr.astype(np.int64),
            y=positive[kept].astype(np.int8),
        )
    return path
