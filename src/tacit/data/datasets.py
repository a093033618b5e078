"""The front door of the data: list, describe, fetch and load datasets by name."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tacit.core.errors import Misuse, unknown_name
from tacit.data import mini
from tacit.data.dataset import Dataset, Split
from tacit.data.download import DownloadFailed, Patience, fetch_source
from tacit.data.formats import adult, cifar, covertype, idx, location, rcv1
from tacit.data.formats.raw import Raw, RawSplit
from tacit.data.locate import Found, data_folder, locate, places, refuse_unreadable
from tacit.data.source import DatasetSource
from tacit.data.sources import SOURCES

Folder = str | os.PathLike[str] | None

READERS: Mapping[str, Callable[..., Raw]] = {
    "mnist": idx.read,
    "fashion-mnist": idx.read,
    "cifar10": cifar.read,
    "adult": adult.read,
    "covtype": covertype.read_binary,
    "covtype7": covertype.read,
    "rcv1": rcv1.read,
    "location30": location.read,
}
_FOLDERS = frozenset(source.folder for source in SOURCES.values() if source.folder)


@dataclass(frozen=True)
class DatasetDescription:
    """What `tacit data show` prints."""

    name: str
    title: str
    shape: tuple[int, ...]
    classes: int
    class_names: tuple[str, ...]
    counts: str
    licence: str
    citation: str
    page: str
    options: Mapping[str, str]
    looked_in: tuple[Path, ...]
    present: bool
    files: tuple[Path, ...]
    """The files that `load` would read now."""


def names() -> list[str]:
    """Return the names that `load` knows, the embedded dataset first."""
    return list(SOURCES)


def describe(name: str, folder: Folder = None) -> DatasetDescription:
    """Return what is known about a dataset, and whether it is here, without opening it."""
    source = _source(name, SOURCES)
    looked_in = places(source, data_folder(folder), _FOLDERS) if source.forms else []
    found = locate(source, looked_in)
    return DatasetDescription(
        name=name,
        title=source.title,
        shape=source.shape,
        classes=len(source.class_names),
        class_names=source.class_names,
        counts=source.counts,
        licence=source.licence,
        citation=source.citation,
        page=source.page,
        options=source.options,
        looked_in=tuple(looked_in),
        present=found is not None or not source.forms,
        files=tuple(found.paths.values()) if found else (),
    )


def fetch(
    name: str,
    folder: Folder = None,
    *,
    sources: Mapping[str, DatasetSource] = SOURCES,
    patience: Patience = Patience(),
) -> list[Path]:
    """Download a dataset now, check it, and return its files; what is there and right is kept."""
    source = _source(name, sources)
    if not source.forms:
        return []
    base = data_folder(folder)
    try:
        return fetch_source(source, base / source.folder, patience)
    except DownloadFailed as failure:
        tries = Counter(failure.reasons)
        tried = "".join(
            f"\n  {why}" + (f" ({n} times)" if n > 1 else "") for why, n in tries.items()
        )
        raise Misuse(
            f"{name}: the download failed:{tried}\n", _placement(source, base)
        ) from failure


def load(
    name: str,
    folder: Folder = None,
    *,
    download: bool = True,
    seed: int = 0,
    limit_train: int | None = None,
    limit_test: int | None = None,
    sources: Mapping[str, DatasetSource] = SOURCES,
    patience: Patience = Patience(),
    **options: Any,
) -> Dataset:
    """Load a dataset from the data folder, downloading it first where it is missing and that is allowed.

    `limit_train` and `limit_test` keep at most that many samples, drawn at random by `seed` and left in
    their original order (files may be sorted by class). Scaling always uses the whole training set.

    >>> load("mnist-mini", limit_train=100).train.x.shape
    torch.Size([100, 1, 28, 28])
    """
    source = _source(name, sources)
    _check(source, options, seed=seed, limit_train=limit_train, limit_test=limit_test)
    if source.forms:
        found = _found(source, data_folder(folder), download, sources, patience)
        raw = READERS[name](found, seed=seed, **options)
    else:
        raw = mini.read()
    train, train_note = _limited(raw.train, limit_train, seed, "training")
    test, test_note = _limited(raw.test, limit_test, seed, "test")
    note = "; ".join(part for part in (raw.note or source.title, train_note, test_note) if part)
    return Dataset(name, train, test, len(source.class_names), source.class_names, note)


def _source(name: str, sources: Mapping[str, DatasetSource]) -> DatasetSource:
    if name in sources:
        return sources[name]
    raise unknown_name(f"there is no dataset {name!r}.", str(name).lower().replace("_", "-"), sources)


def _check(source: DatasetSource, options: Mapping[str, Any], **numbers: int | None) -> None:
    for option in options:
        if option not in source.options:
            known = (
                f"It has {', '.join(source.options)}."
                if source.options
                else "It has none; leave it out."
            )
            raise Misuse(f"dataset {source.name} has no option {option!r}.", known)
    for key, number in numbers.items():
        least = 0 if key == "seed" else 1
        if number is not None and (not isinstance(number, int) or number < least):
            raise Misuse(f"{key} is {number!r}.", f"Give a whole number of at least {least}.")


def _found(
    source: DatasetSource,
    base: Path,
    download: bool,
    sources: Mapping[str, DatasetSource],
    patience: Patience,
) -> Found:
    folders = places(source, base, _FOLDERS)
    found = locate(source, folders)
    if found is None:
        refuse_unreadable(source, folders)
        if download:
            fetch(source.name, base, sources=sources, patience=patience)
            found = locate(source, folders)
    if found is None:
        looked = " and ".join(str(folder) for folder in folders)
        raise Misuse(f"{source.name}: its files are not in {looked}.", _placement(source, base))
    return found


def _placement(source: DatasetSource, base: Path) -> str:
    """Say which files to put where, and from where to get them."""
    form = next((form for form in source.forms if _downloads(form.needed, source)), source.forms[0])
    wanted = {**form.needed, **form.some_of}
    files = ", ".join(f"{source.folder}/{accepted[0]}" for accepted in wanted.values())
    urls = [url for file in source.files for url in file.urls] or [source.page]
    return (
        f"Put {files} below the data folder {base} (set it by --data or the environment variable "
        f"TACIT_DATA); get them by `tacit data fetch {source.name}` or from {', '.join(urls)}."
    )


def _downloads(needed: Mapping[str, tuple[str, ...]], source: DatasetSource) -> bool:
    fetched = {file.name for file in source.files}
    return bool(fetched) and all(fetched & set(accepted) for accepted in needed.values())


def _limited(split: RawSplit, limit: int | None, seed: int, which: str) -> tuple[Split, str]:
    count = len(split.y)
    x, y, note = split.x, split.y, ""
    if limit is not None and limit < count:
        rows = np.sort(np.random.default_rng([seed, 1]).permutation(count)[:limit])
        x, y, note = x[rows], y[rows], f"{limit:,} of {count:,} {which} samples"
    return Split(_tensor(x), torch.from_numpy(np.ascontiguousarray(y))), note


def _tensor(x: Any) -> torch.Tensor:
    if hasattr(x, "toarray"):
        _check_memory(x.shape)
        x = x.toarray()
    if x.dtype == np.uint8:
        # The same division on the same bytes everywhere; torch.from_numpy wants memory it may write to.
        return torch.from_numpy(x.astype(np.float32)).div_(255)
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))


def _check_memory(shape: tuple[int, int]) -> None:
    needed = 4 * shape[0] * shape[1]
    present = (
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else None
    )
    if present is not None and needed > present:
        raise Misuse(
            f"{shape[0]:,} documents of {shape[1]:,} terms take {needed / 1e9:.0f} GB as a dense tensor; "
            f"this computer has {present / 1e9:.0f} GB.",
            "Lower limit_train or limit_test, or keep fewer terms with features=2000.",
        )
