"""RCV1-v2 as a binary task: SVMlight text, or arrays made from what scikit-learn fetches."""

from __future__ import annotations

import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tacit.core import storage
from tacit.core.checks import check_choice, is_count
from tacit.core.errors import Misuse
from tacit.data.dataset import LocatedFiles
from tacit.data.download import progress
from tacit.data.formats.raw import RawDataset, RawSplit, damaged

TERMS = 47_236
POSITIVE, NEGATIVE = ("CCAT", "ECAT"), ("GCAT", "MCAT")
_UNREADABLE = (
    *(ValueError, TypeError, KeyError, OverflowError, EOFError, OSError),
    *(zipfile.BadZipFile, zlib.error),
)


def read(files: LocatedFiles, *, features: int | None = None, scale: str = "none") -> RawDataset:
    """Read both splits as sparse rows.

    With `features`, only this many terms are kept: those in the most training documents, and of
    equally frequent ones those with the lower index. With the scale "maxabs", each term is divided
    by its largest weight in the training set; with "none", documents have length 1.
    """
    check_choice("scale", scale, ("none", "maxabs"))
    if features is not None and not (is_count(features) and features <= TERMS):
        raise Misuse(f"features is {features!r}.", f"Give a whole number from 1 to {TERMS:,}.")
    read_file = _read_arrays if files.layout == "arrays" else _read_svmlight
    train, test = (read_file(files.paths[role]) for role in ("train", "test"))
    documents = len(train.y) + len(test.y)
    note = {
        "subset": f"RCV1 ({documents:,}-document subset)",
        "libsvm": f"RCV1 binary, LIBSVM's files ({documents:,} documents)",
        "arrays": f"RCV1 binary, made from scikit-learn's fetch_rcv1 ({documents:,} documents)",
    }[files.layout]
    if features is not None:
        frequency = np.bincount(train.x.indices, minlength=TERMS)
        kept = np.sort(np.argsort(-frequency, kind="stable")[:features])
        train, test = (RawSplit(split.x[:, kept], split.y) for split in (train, test))
        note += f", {features:,} most frequent of {TERMS:,} terms"
    if scale == "maxabs":
        train, test = _divide_by_largest(train, test)
        note += ", each divided by its largest weight"
    return RawDataset(train, test, note)


def _divide_by_largest(train: RawSplit, test: RawSplit) -> tuple[RawSplit, RawSplit]:
    """Divide each column by its largest magnitude in the training set, if that is not zero."""
    from scipy.sparse import diags_array

    largest = abs(train.x).max(axis=0).toarray().ravel()
    factors: Any = diags_array(1 / np.where(largest > 0, largest, 1).astype(np.float32))
    first, second = (RawSplit((split.x @ factors).tocsr(), split.y) for split in (train, test))
    return first, second


def _read_svmlight(path: Path) -> RawSplit:
    from sklearn.datasets import load_svmlight_file

    try:
        rows, signs = load_svmlight_file(
            str(path), n_features=TERMS, dtype=np.float32, zero_based=False
        )
    except _UNREADABLE as error:
        expected = f"SVMlight lines `±1 index:value ...`, indices from 1 to {TERMS}"
        raise damaged(path, f"not readable ({error})", expected) from error
    if not len(signs) or not np.isin(signs, (-1, 1)).all():
        labels = ", ".join(f"{sign:g}" for sign in np.unique(signs)[:5]) or "none"
        raise damaged(path, f"labels {labels}", "labels -1 and +1")
    return RawSplit(rows, (signs > 0).astype(np.int64))


def _read_arrays(path: Path) -> RawSplit:
    from scipy.sparse import csr_matrix

    try:
        with np.load(path, allow_pickle=False) as stored:
            parts = (stored["data"].astype(np.float32), stored["indices"], stored["indptr"])
            labels = stored["y"].astype(np.int64)
        rows: Any = csr_matrix(parts, shape=(len(labels), TERMS))
        rows.check_format(full_check=True)
    except _UNREADABLE as error:
        expected = "arrays data, indices, indptr and y"
        raise damaged(path, f"not readable ({error})", expected) from error
    if not len(labels) or not np.isin(labels, (0, 1)).all():
        raise damaged(path, "labels other than 0 and 1", "labels 0 and 1")
    return RawSplit(rows, labels)


def write(folder: Path) -> list[Path]:
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
