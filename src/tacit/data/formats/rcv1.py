"""RCV1-v2 as a binary task: SVMlight text, or the arrays that `scikit_learn` writes."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tacit.core.checks import check_choice, is_count
from tacit.core.errors import Misuse
from tacit.data.dataset import LocatedFiles
from tacit.data.formats.raw import RawDataset, RawSplit, damaged

TERMS = 47_236
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
