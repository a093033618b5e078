"""Datasets: loaded as tensors, and described by their files and where these come from."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.core.checks import is_number
from tacit.core.errors import Misuse
from tacit.core.notebooks import html_table
from tacit.data.formats.raw import RawDataset
from tacit.data.hold_out import held_out
from tacit.data.partitions import WITHOUT_CLASSES, Partition, partition


@dataclass(frozen=True)
class Target:
    """A number to predict.

    Attributes:
        name: Its column.
        mean: What is subtracted from it in training.
        std: What it is then divided by. Models still predict it in its own unit.
    """

    name: str
    mean: float = 0.0
    std: float = 1.0

    def as_dict(self) -> dict[str, Any]:
        """As files have it."""
        return {"column": self.name, "mean": self.mean, "std": self.std}


@dataclass(frozen=True, eq=False)
class Split:
    """Samples and their classes: x is float32 [n, C, H, W] or [n, F]; y is int64 [n].

    Pixels are in [0, 1], unless the dataset was loaded with another scale. In a regression, y is
    `numeric`: float32 [n]. `disclosure` is what clients told each other to prepare the samples.
    """

    x: Tensor
    y: Tensor
    numeric: bool = False
    disclosure: str = ""

    def __post_init__(self) -> None:
        if self.y.dtype != (torch.float32 if self.numeric else torch.int64) or self.y.ndim != 1:
            raise Misuse(
                f"labels are {self.y.dtype} with shape {tuple(self.y.shape)}.",
                "Give one int64 class number per sample, shape [n], or a float32 number to "
                "predict.",
            )
        if len(self.x) != len(self.y):
            raise Misuse(
                f"a split has {len(self.x):,} samples but {len(self.y):,} labels.",
                "Give exactly one label per sample.",
            )

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        return f"Split({len(self):,} samples of shape {tuple(self.x.shape[1:])})"

    def parts(
        self,
        division: str | Partition | Sequence[Any],
        clients: int | None = None,
        seed: int = 0,
        **options: Any,
    ) -> list[ClientPart]:
        """The samples of each client, for a task.

        Args:
            division: A name such as "iid", "quantity" or "dirichlet", a partition of
                `tacit.data`, or the numbers of each client's samples.
            clients: Number of clients, for a name.
            seed: Seed of the draws, for a name.
            options: What the partition of that name needs, such as `alpha=0.3`; and `minimum`, the
                smallest number of samples per client.

        Example:
            >>> import tacit
            >>> digits = tacit.data.load("mnist-mini")
            >>> [len(labels) for _, labels in digits.train.parts("iid", clients=4)]
            [500, 500, 500, 500]
        """
        chosen: Any = division
        if isinstance(division, str):
            if clients is None:
                raise Misuse(
                    "The number of clients is not given.",
                    f'Give it: parts("{division}", clients=5).',
                )
            chosen = self.partition(division, clients, seed, **options)
        elif clients is not None or options:
            given = "clients" if clients is not None else next(iter(options))
            raise Misuse(
                f"{given} is given with a partition that is made already.",
                'Leave it out, or give a name: parts("iid", clients=5).',
            )
        indices = chosen.indices if isinstance(chosen, Partition) else chosen
        rows = torch.arange(len(self))
        return [ClientPart.of(self, rows[index]) for index in indices]

    def partition(self, name: str, clients: int, seed: int = 0, **options: Any) -> Partition:
        """Divide the samples among clients by the name of a partition: see `parts`."""
        if self.numeric and name not in WITHOUT_CLASSES:
            raise Misuse(
                f"The partition {name!r} divides classes, but the label is a number.",
                'Choose "iid" or "quantity".',
            )
        # Numbers to predict count as one class.
        labels = np.zeros(len(self), np.int64) if self.numeric else self.y.numpy()
        return partition(name, labels, clients, seed=seed, **options)


class ClientPart(tuple[Tensor, Tensor]):
    """One client's inputs and labels, a pair that knows which rows of which data it holds.

    Attributes:
        source: The inputs [n, …] of all clients.
        rows: The client's rows of them, int64 [k].
        disclosure: What clients told each other to prepare the data.
    """

    source: Tensor
    rows: Tensor
    disclosure: str

    @classmethod
    def of(cls, split: Split, rows: Tensor) -> ClientPart:
        """These rows of a split."""
        part = cls((split.x[rows], split.y[rows]))
        part.source, part.rows, part.disclosure = split.x, rows, split.disclosure
        return part


def join(pairs: Sequence[tuple[Tensor, Tensor]]) -> tuple[Split, tuple[Tensor, ...]]:
    """One split of several clients' inputs and labels, and the rows of each client."""
    y = torch.cat([y for _, y in pairs])
    split = Split(torch.cat([x for x, _ in pairs]), y, y.is_floating_point())
    ends = np.cumsum([len(y) for _, y in pairs])[:-1].tolist()
    return split, torch.arange(len(split)).tensor_split(ends)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A training set and a test set, of the clients that have them or still to be divided.

    Attributes:
        note: Printed with results, such as "RCV1 (subset)".
        clients: The clients' names, if the samples have owners.
        owners: The training samples of each client; empty if the samples have no owners.
        test_owners: The test samples of each client; None if all have the same.
        disclosure: What clients told each other to prepare the data, in words.
        preprocessing: How columns of tables became inputs, as plain values.
        target: The number to predict in a regression; there are no classes then.
    """

    name: str
    train: Split
    test: Split
    classes: int
    class_names: tuple[str, ...] = ()
    note: str = ""
    clients: tuple[str, ...] = ()
    owners: tuple[Tensor, ...] = ()
    test_owners: tuple[Tensor, ...] | None = None
    disclosure: str = ""
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    target: Target | None = None

    def __post_init__(self) -> None:
        # Parts of a split may be all that a task gets: what was told goes with them.
        if self.disclosure:
            for name in ("train", "test"):
                split = replace(getattr(self, name), disclosure=self.disclosure)
                object.__setattr__(self, name, split)

    @property
    def client_parts(self) -> list[ClientPart]:
        """Inputs and classes of each client, to train on; empty if samples have no owners."""
        return self.train.parts(self.owners)

    @property
    def client_tests(self) -> list[ClientPart] | None:
        """Inputs and classes of each client, to test on; None if all have the same."""
        return None if self.test_owners is None else self.test.parts(self.test_owners)

    def __repr__(self) -> str:
        sizes = f"{len(self.train):,} training and {len(self.test):,} test samples"
        shape = tuple(self.train.x.shape[1:])
        what = f"{self.classes} classes" if self.target is None else f"target {self.target.name}"
        return f"Dataset({self.name}: {sizes} of shape {shape}, {what})"

    def with_validation(self, share: float, seed: int = 0) -> Dataset:
        """Evaluate on a random share of the training samples, and train on the others.

        It is the same share of each class, and if the samples have owners, of each client's own.
        The test samples stay unseen: choose options so, then measure once without.
        """
        kept: list[tuple[Tensor, Tensor]] = []
        held: list[tuple[Tensor, Tensor]] = []
        every = self.owners or (torch.arange(len(self.train)),)
        for rows, name in zip(every, self.clients or map(str, range(len(every))), strict=True):
            if not (is_number(share) and 0 < round(share * len(rows)) < len(rows)):
                whose = "training samples of a client" if self.owners else "training samples"
                raise Misuse(
                    f"validation is {share!r} of {len(rows):,} {whose}.",
                    "Give a share between 0 and 1, such as 0.2.",
                )
            labels = self.train.y[rows].numpy()
            out = torch.from_numpy(held_out(labels, share, seed, f"validation of {name}"))
            for pairs, part in ((kept, rows[~out]), (held, rows[out])):
                pairs.append((self.train.x[part], self.train.y[part]))
        (train, owners), (test, test_owners) = join(kept), join(held)
        note = f"evaluated on {len(test):,} validation samples, not on the test samples"
        note = f"{self.note}; {note}" if self.note else note
        divided = replace(self, train=train, test=test, note=note)
        if not self.owners:
            return divided
        return replace(divided, owners=owners, test_owners=test_owners)

    def _repr_html_(self) -> str:
        """How many samples each class has, or the target's mean and deviation, for notebooks."""
        splits = (("training", self.train), ("test", self.test))
        if self.target is not None:
            header = ["", "samples", f"mean {self.target.name}", "standard deviation"]
            numbers = [
                [name, f"{len(split):,}", f"{split.y.mean():.4g}", f"{split.y.std(0, False):.4g}"]
                for name, split in splits
            ]
            return html_table(repr(self), header, numbers)
        names = self.class_names or tuple(map(str, range(self.classes)))
        rows = [
            [name, f"{len(split):,}", *torch.bincount(split.y, minlength=self.classes).tolist()]
            for name, split in splits
        ]
        # More columns are of no use to a reader.
        shown = min(len(names), 20)
        header = ["", "samples", *names[:shown]]
        return html_table(repr(self), header, [row[: shown + 2] for row in rows])


@dataclass(frozen=True)
class RemoteFile:
    """A file to download and its checksums, of which there must be at least one.

    Attributes:
        urls: Mirrors, in the order in which they are tried.
        sha256: SHA-256 of the file as downloaded.
        contents_sha256: SHA-256 of the decompressed contents, where gzip headers may differ.
        members_sha1: SHA-1 of members of a tar archive, by name.
    """

    name: str
    urls: tuple[str, ...]
    size: int | None = None
    sha256: str | None = None
    contents_sha256: str | None = None
    members_sha1: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.sha256 or self.contents_sha256 or self.members_sha1):
            raise ValueError(f"{self.name}: a download without any checksum cannot be trusted")


@dataclass(frozen=True)
class Layout:
    """One set of files that a dataset can consist of.

    Attributes:
        required: The names that each file may have, relative to the folder, by the file's role.
        parts: Further files; at least one must exist, and the dataset is complete with all.
    """

    name: str
    required: Mapping[str, tuple[str, ...]]
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class LocatedFiles:
    """The files of one layout of a dataset that exist: a path for each role."""

    layout: str
    paths: Mapping[str, Path]
    complete: bool


@dataclass(frozen=True)
class DatasetSource:
    """A dataset, described without opening it.

    A dataset has either files, which `read` reads, or a function `load`.

    Attributes:
        folder: Name of its folder below the data folder.
        shape: Shape of one sample; empty if only loading tells.
        counts: Numbers of training and test samples, in words.
        page: Web page where a person gets the files.
        layouts: Sets of files that `read` accepts.
        files: Files to download.
        options: Meaning of each option of `load`.
        unsafe_files: Files that are never read, and why.
        fallback: Makes the files in a folder if there is no mirror or all mirrors failed.
        read: Reads located files; takes `seed` if the split is random, and the options.
        load: Loads the dataset from the data folder (None is the default one); takes `seed` if it
            draws anything, and the options.
    """

    name: str
    title: str
    folder: str = ""
    shape: tuple[int, ...] = ()
    class_names: tuple[str, ...] = ()
    counts: str = ""
    licence: str = ""
    citation: str = ""
    page: str = ""
    layouts: tuple[Layout, ...] = ()
    files: tuple[RemoteFile, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    unsafe_files: Mapping[str, str] = field(default_factory=dict)
    fallback: Callable[[Path], list[Path]] | None = None
    read: Callable[..., RawDataset] | None = None
    load: Callable[..., Dataset] | None = None

    @classmethod
    def from_function(cls, name: str, load: Callable[..., Dataset]) -> DatasetSource:
        """Describe a plugin's function by its docstring and its keyword parameters."""
        _, *parameters = inspect.signature(load).parameters.values()
        options = {
            each.name: "required" if each.default is each.empty else f"default {each.default!r}"
            for each in parameters
            if each.name != "seed" and each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD)
        }
        title = (inspect.getdoc(load) or name).splitlines()[0]
        return cls(name, title, options=options, load=load)
