"""List, describe, fetch and load datasets by name."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tacit.core.checks import check_count
from tacit.core.errors import Misuse, first_line, unknown_name
from tacit.data.dataset import Dataset, DatasetSource, Split
from tacit.data.formats.raw import RawDataset, RawSplit
from tacit.data.locate import data_folder, fetch_files, locate, locate_or_fetch, search_folders
from tacit.data.registry import DATASETS

Folder = str | os.PathLike[str] | None


@dataclass(frozen=True)
class DatasetDescription:
    """What `tacit data show` prints.

    Attributes:
        package: The package that registers the dataset; None for built-in ones.
        looked_in: The folders that `load` searches.
        present: Whether `load` needs no download.
        files: The files that `load` would read now.
    """

    name: str
    title: str
    package: str | None
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


def names() -> list[str]:
    """The names of all datasets: the embedded one first, those of plugins last."""
    return list(DATASETS)


def describe(name: str, folder: Folder = None) -> DatasetDescription:
    """What is known about a dataset without opening it, and whether its files are here."""
    source = _find(name)
    looked_in = search_folders(source, data_folder(folder))
    files = locate(source, looked_in)
    same = ("title", "shape", "class_names", "counts", "licence", "citation", "page", "options")
    return DatasetDescription(
        name=name,
        package=DATASETS.package(name),
        classes=len(source.class_names),
        looked_in=tuple(looked_in),
        present=files is not None,
        files=tuple(files.paths.values()) if files else (),
        **{key: getattr(source, key) for key in same},
    )


def fetch(name: str, folder: Folder = None) -> list[Path]:
    """Download a dataset, check it and return its files; files that are correct are kept.

    Raises Misuse, with the reason of each attempt and where to put the files by hand, if no mirror
    has them.
    """
    return fetch_files(_find(name), data_folder(folder))


def load(
    name: str,
    folder: Folder = None,
    *,
    download: bool = True,
    seed: int = 0,
    limit_train: int | None = None,
    limit_test: int | None = None,
    **options: Any,
) -> Dataset:
    """Load a dataset.

    Args:
        name: One of `names()`.
        folder: The data folder; by default $TACIT_DATA or the user's cache.
        download: Download files that are missing.
        seed: Seed of random splits and limits.
        limit_train: Keep at most this many random training samples, in their original order.
            Scaling uses the whole training set.
        limit_test: The same for the test set.
        options: Options of the dataset; see `describe(name).options`.

    Returns:
        The training set and the test set as tensors.

    >>> load("mnist-mini", limit_train=100).train.x.shape
    torch.Size([100, 1, 28, 28])
    """
    source = _find(name)
    for option in options:
        if option not in source.options:
            raise Misuse(
                f"Dataset {name} has no option {option!r}.",
                f"It has {', '.join(source.options) or 'none; leave it out'}.",
            )
    check_count("seed", seed, 0)
    for key, limit in (("limit_train", limit_train), ("limit_test", limit_test)):
        if limit is not None:
            check_count(key, limit)
    if source.read is not None:
        files = locate_or_fetch(source, data_folder(folder), download)
        raw: RawDataset | Dataset = _call(source.read, files, seed, options)
    else:
        raw = _load_plugin(source, None if folder is None else Path(folder), seed, options)
    train, train_note = _limited(raw.train, limit_train, seed, "training")
    test, test_note = _limited(raw.test, limit_test, seed, "test")
    note = "; ".join(part for part in (raw.note or source.title, train_note, test_note) if part)
    if not isinstance(raw, Dataset):
        names = source.class_names
        return Dataset(name, train, test, len(names), names, note)
    if raw.clients and (train_note or test_note):
        raise Misuse(
            f"The samples of dataset {name} belong to its clients, and a limit is set.",
            "Remove limit_train and limit_test.",
        )
    return replace(raw, name=name, train=train, test=test, note=note)


def _find(name: str) -> DatasetSource:
    if not isinstance(name, str) or name not in DATASETS:
        similar = str(name).lower().replace("_", "-")
        raise unknown_name(f"There is no dataset {name!r}.", similar, DATASETS)
    entry = DATASETS[name]
    if isinstance(entry, DatasetSource):
        return replace(entry, name=name)
    return DatasetSource.from_function(name, entry)


def _call(function: Callable[..., Any], first: object, seed: int, options: dict[str, Any]) -> Any:
    if "seed" in inspect.signature(function).parameters:
        options = options | {"seed": seed}
    return function(first, **options)


def _load_plugin(
    source: DatasetSource, folder: Path | None, seed: int, options: dict[str, Any]
) -> Dataset:
    package = DATASETS.package(source.name)
    if source.load is None:
        raise Misuse(
            f"The dataset {source.name!r} of {package} has neither `read` nor `load`.",
            "Repair or uninstall that package.",
        )
    try:
        dataset = _call(source.load, folder, seed, options)
    except Misuse:
        raise
    # A plugin can raise anything.
    except Exception as problem:
        raise Misuse(
            f"The dataset {source.name!r} of {package} cannot be loaded: "
            f"{type(problem).__name__}: {first_line(problem)}.",
            "Check its options, or repair that package.",
        ) from problem
    if not isinstance(dataset, Dataset):
        raise Misuse(
            f"The dataset {source.name!r} is {type(dataset).__name__}, not a tacit.data.Dataset.",
            f"Repair or uninstall {package}.",
        )
    return dataset


def _limited(
    split: RawSplit | Split, limit: int | None, seed: int, title: str
) -> tuple[Split, str]:
    count = len(split.y)
    x, y, note = split.x, split.y, ""
    if limit is not None and limit < count:
        rows = np.sort(np.random.default_rng([seed, 1]).permutation(count)[:limit])
        x, y, note = x[rows], y[rows], f"{limit:,} of {count:,} {title} samples"
    x, y = _tensor(x), torch.as_tensor(np.ascontiguousarray(y))
    return (replace(split, x=x, y=y) if isinstance(split, Split) else Split(x, y)), note


def _tensor(x: Any) -> torch.Tensor:
    if isinstance(x, torch.Tensor):
        return x
    if hasattr(x, "toarray"):
        _check_memory(*x.shape)
        x = x.toarray()
    if x.dtype == np.uint8:
        # A copy, because torch.from_numpy needs writable memory.
        return torch.from_numpy(x.astype(np.float32)).div_(255)
    return torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))


def _check_memory(documents: int, terms: int) -> None:
    if not hasattr(os, "sysconf"):
        return
    needed = 4 * documents * terms
    present = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > present:
        raise Misuse(
            f"{documents:,} documents of {terms:,} terms take {needed / 1e9:.0f} GB as a dense "
            f"tensor; this computer has {present / 1e9:.0f} GB.",
            "Lower limit_train or limit_test, or keep fewer terms with features=2000.",
        )
