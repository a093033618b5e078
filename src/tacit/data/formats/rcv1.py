"""RCV1-v2 as a binary task: SVMlight text, or the arrays that our own download leaves (see `scikit`)."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tacit.core.errors import Misuse
from tacit.data.formats.raw import Raw, RawSplit, damaged
from tacit.data.locate import Found

TERMS = 47_236
SCALES = ("none", "maxabs")


def read(found: Found, *, seed: int, features: int | None = None, scale: str = "none") -> Raw:
    """Read both splits as sparse rows of all terms, or of the `features` most frequent ones.

    A term's frequency is the number of training documents that have it; ties go to the lower index. Documents have
    length one; with `scale` "maxabs" each term is divided by its largest weight in the training set instead.
    """
    del seed
    if scale not in SCALES:
        raise Misuse(f"scale is {scale!r}.", f"Choose one of {', '.join(SCALES)}.")
    if features is not None and (isinstance(features, bool) or not isinstance(features, int)):
        raise Misuse(f"features is {features!r}.", f"Give a whole number from 1 to {TERMS:,}.")
    if features is not None and not 1 <= features <= TERMS:
        raise Misuse(f"features is {features:,}.", f"Give a whole number from 1 to {TERMS:,}.")
    read_file = _arrays if found.form == "arrays" else _svmlight
    train, test = (read_file(found.paths[role]) for role in ("train", "test"))
    documents = len(train.y) + len(test.y)
    note = {
        "subset": f"RCV1 ({documents:,}-document subset)",
        "libsvm": f"RCV1 binary, LIBSVM's files ({documents:,} documents)",
        "arrays": f"RCV1 binary, made from scikit-learn's fetch_rcv1 ({documents:,} documents)",
    }[found.form]
    if features is not None:
        frequency = np.bincount(train.x.indices, minlength=TERMS)
        kept = np.sort(np.argsort(-frequency, kind="stable")[:features])
        train, test = (RawSplit(split.x[:, kept], split.y) for split in (train, test))
        note += f", {features:,} most frequent of {TERMS:,} terms"
    if scale == "maxabs":
        train, test = _by_largest(train, test)
        note += ", each divided by its largest weight"
    return Raw(train, test, note)


def _by_largest(train: RawSplit, test: RawSplit) -> tuple[RawSplit, RawSplit]:
    """Divide each column by its largest size in the training set; columns that are empty there stay as they are."""
    from scipy.sparse import diags_array

    largest = abs(train.x).max(axis=0).toarray().ravel()
    factors: Any = diags_array(1 / np.where(largest > 0, largest, 1).astype(np.float32))
    return RawSplit((train.x @ factors).tocsr(), train.y), RawSplit(
        (test.x @ factors).tocsr(), test.y
    )


def _svmlight(path: Path) -> RawSplit:
    from sklearn.datasets import load_svmlight_file

    try:
        rows, signs = load_svmlight_file(
            str(path), n_features=TERMS, dtype=np.float32, zero_based=False
        )
    except (ValueError, OverflowError, EOFError, OSError, zlib.error) as error:
        expected = f"SVMlight lines `±1 index:value ...`, indices from 1 to {TERMS}"
        raise damaged(path, f"not readable ({error})", expected) from error
    if not len(signs) or not np.isin(signs, (-1, 1)).all():
        labels = ", ".join(f"{sign:g}" for sign in np.unique(signs)[:5]) or "none"
        raise damaged(path, f"labels {labels}", "labels -1 and +1")
    return RawSplit(rows, (signs > 0).astype(np.int64))


def _arrays(path: Path) -> RawSplit:
    from scipy.sparse import csr_matrix

    try:
        with np.load(path, allow_pickle=False) as stored:
            parts = (stored["data"].astype(np.float32), stored["indices"], stored["indptr"])
            labels = stored["y"].astype(np.int64)
        rows: Any = csr_matrix(parts, shape=(len(labels), TERMS))
        rows.check_format(full_check=True)
    except (
        ValueError,
        TypeError,
        KeyError,
        EOFError,
        OSError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise damaged(
            path, f"not readable ({error})", "arrays data, indices, indptr and y"
        ) from error
    if not len(labels) or not np.isin(labels, (0, 1)).all():
        raise damaged(path, "labels other than 0 and 1", "labels 0 and 1")
    return RawSplit(rows, labels)
