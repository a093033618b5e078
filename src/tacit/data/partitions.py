"""Partitions of a training set among clients.

Every partition gives each sample to exactly one client and each client at least `minimum` samples.
It depends on its arguments only. Indices ascend within a client, except in `explicit` partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from tacit.core.checks import check_count, check_number
from tacit.core.errors import Misuse, unknown_name
from tacit.data.allocation import (
    Counts,
    Owners,
    assign_all_but_k_classes,
    assign_k_classes,
    raise_to_minimum,
    split_dirichlet,
    split_evenly,
)


@dataclass(frozen=True, eq=False)
class Partition:
    """One int64 index tensor per client, and a description of how they were made."""

    indices: tuple[torch.Tensor, ...]
    kind: str
    description: str

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def sizes(self) -> Counts:
        """Number of samples of each client, [N]."""
        return np.array([len(part) for part in self.indices], dtype=np.int64)

    def counts(self, labels: ArrayLike, classes: int) -> Counts:
        """Number of samples of each client and class, [N, classes]."""
        ordered = np.asarray(labels)[torch.cat(self.indices).numpy()]
        if len(ordered) and not 0 <= ordered.min() <= ordered.max() < classes:
            raise Misuse(
                f"labels go from {ordered.min()} to {ordered.max()}, but classes is {classes}.",
                "Give the number of classes of the dataset.",
            )
        cells = np.repeat(np.arange(len(self)), self.sizes) * classes + ordered
        return np.bincount(cells, minlength=len(self) * classes).reshape(len(self), classes)


def iid(n: int, clients: int, seed: int = 0, minimum: int = 1) -> Partition:
    """Assign n samples at random, in equal numbers."""
    _check(n, clients, seed, minimum)
    owners = _shuffled_owners(split_evenly(n, clients), np.random.default_rng(seed))
    return _partition("iid", owners, clients, minimum, "equal random shares")


def quantity(n: int, clients: int, alpha: float, seed: int = 0, minimum: int = 1) -> Partition:
    """Quantity skew: assign samples at random, in numbers that follow a Dirichlet distribution.

    Args:
        n: Number of samples.
        clients: Number of clients.
        alpha: Concentration: 0.1 is very uneven, 100 is nearly even.
        seed: Seed of the draws.
        minimum: Smallest number of samples per client.
    """
    _check(n, clients, seed, minimum)
    _check_alpha(alpha)
    rng = np.random.default_rng(seed)
    sizes = raise_to_minimum(split_dirichlet(n, clients, alpha, rng), minimum)
    owners = _shuffled_owners(sizes, rng)
    return _partition("quantity", owners, clients, minimum, f"sizes from Dirichlet({alpha:g})")


def dirichlet(
    labels: ArrayLike, clients: int, alpha: float, seed: int = 0, minimum: int = 1
) -> Partition:
    """Label skew: the clients' shares of each class follow a Dirichlet distribution.

    Clients below `minimum` get random samples of the largest clients.

    Args:
        labels: Class of each sample, [n].
        clients: Number of clients.
        alpha: Concentration: 0.1 is very uneven, 100 is nearly even.
        seed: Seed of the draws.
        minimum: Smallest number of samples per client.
    """
    labels = _integers("labels", labels)
    _check(len(labels), clients, seed, minimum)
    _check_alpha(alpha)
    rng = np.random.default_rng(seed)
    owners = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        shares = split_dirichlet(len(members), clients, alpha, rng)
        owners[members] = np.repeat(np.arange(clients), shares)
    sizes = np.bincount(owners, minlength=clients)
    _resize(owners, sizes, raise_to_minimum(sizes, minimum), rng)
    return _partition("dirichlet", owners, clients, minimum, f"classes from Dirichlet({alpha:g})")


def classes_per_client(
    labels: ArrayLike, clients: int, k: int, seed: int = 0, minimum: int = 1
) -> Partition:
    """Label skew: each client has samples of exactly k classes (#C = k).

    Every class has at least one client, and larger classes have more. A client can have fewer than
    k classes only if some class has fewer samples than it would have clients.

    Args:
        labels: Class of each sample, [n].
        clients: Number of clients.
        k: Number of classes per client.
        seed: Seed of the draws.
        minimum: Smallest number of samples per client.
    """
    labels = _integers("labels", labels)
    _check(len(labels), clients, seed, minimum)
    owners = assign_k_classes(labels, clients, k, seed, minimum)
    return _partition("classes", owners, clients, minimum, f"{k} classes each (#C = {k})")


def missing_classes(
    labels: ArrayLike, clients: int, k: int, seed: int = 0, minimum: int = 1
) -> Partition:
    """Label skew: client i lacks the k classes from number i·k on, modulo (dual-protection paper).

    The other clients get equal random shares of a class.

    Args:
        labels: Class of each sample, [n].
        clients: Number of clients.
        k: Number of missing classes per client.
        seed: Seed of the draws.
        minimum: Smallest number of samples per client.
    """
    labels = _integers("labels", labels)
    _check(len(labels), clients, seed, minimum)
    owners = assign_all_but_k_classes(labels, clients, k, seed)
    sizes = np.bincount(owners, minlength=clients)
    if sizes.min() < minimum:
        raise Misuse(
            f"k={k} missing classes leave client {sizes.argmin()} with {sizes.min():,} samples; "
            f"minimum is {minimum}.",
            "Lower minimum (the batch size) or the number of clients, or use more data.",
        )
    return _partition("missing", owners, clients, minimum, f"{k} classes missing each")


def explicit(indices: Sequence[ArrayLike], n: int, minimum: int = 0) -> Partition:
    """Use given indices, one list per client; they must contain each of n samples exactly once."""
    parts = tuple(
        torch.tensor(_integers(f"indices of client {client}", part))
        for client, part in enumerate(indices)
    )
    _check(n, len(parts), 0, minimum)
    everything = torch.cat(parts).numpy()
    if len(everything) and not 0 <= everything.min() <= everything.max() < n:
        outside = everything[(everything < 0) | (everything >= n)][0]
        raise Misuse(f"indices name sample {outside}.", f"Use numbers from 0 to {n - 1}.")
    times = np.bincount(everything, minlength=n)
    for wrong, where in (
        (times > 1, "to more than one client, or twice to one"),
        (times == 0, "to no client"),
    ):
        if wrong.any():
            raise Misuse(
                f"indices give {int(wrong.sum()):,} of {n:,} samples {where} "
                f"(the first is {wrong.argmax()}).",
                "Give every sample to exactly one client.",
            )
    for client, part in enumerate(parts):
        if len(part) < minimum:
            raise Misuse(
                f"indices give client {client} only {len(part)} samples; minimum is {minimum}.",
                "Give it more, or lower minimum (the batch size).",
            )
    return Partition(parts, "explicit", _describe("given indices", n, len(parts), minimum))


# Each kind with the function that makes it and its option.
_KINDS: Mapping[str, tuple[Callable[..., Partition], str | None]] = {
    "iid": (lambda labels, *rest: iid(len(labels), *rest), None),
    "quantity": (lambda labels, *rest: quantity(len(labels), *rest), "alpha"),
    "dirichlet": (dirichlet, "alpha"),
    "classes": (classes_per_client, "k"),
    "missing": (missing_classes, "k"),
    "explicit": (explicit, "indices"),
}

# Kinds of partitions that also divide samples with numbers to predict.
WITHOUT_CLASSES = ("iid", "quantity", "explicit")


def option_of(kind: str) -> str | None:
    """The name of the only option of a kind of partition, if it has one."""
    return _KINDS[kind][1]


def partition(
    kind: str, labels: ArrayLike, clients: int, *, seed: int = 0, minimum: int = 1, **options: Any
) -> Partition:
    """Make a partition by the name of its kind.

    Args:
        kind: "iid", "quantity", "dirichlet", "classes", "missing" or "explicit".
        labels: Class of each sample, [n].
        clients: Number of clients.
        seed: Seed of the draws.
        minimum: Smallest number of samples per client.
        options: `alpha` for quantity and dirichlet, `k` for classes and missing, `indices` for
            explicit.

    >>> [len(part) for part in partition("quantity", [0] * 100, 4, alpha=0.5, minimum=5).indices]
    [24, 5, 50, 21]
    """
    if kind not in _KINDS:
        raise unknown_name(f"There is no partition {kind!r}.", kind, _KINDS)
    make, option = _KINDS[kind]
    superfluous = sorted(set(options) - {option})
    if superfluous:
        known = f"its only option is {option}" if option else "it has none"
        raise Misuse(
            f"partition {kind} has no option {superfluous[0]!r}.", f"Leave it out; {known}."
        )
    if option is not None and option not in options:
        raise Misuse(f"partition {kind} needs {option}.", f"Set {option}.")
    labels = _integers("labels", labels)
    if kind != "explicit":
        return make(labels, clients, *options.values(), seed, minimum)
    given = len(options["indices"])
    if given != clients:
        raise Misuse(
            f"indices divide the samples among {given:,} clients, but clients is {clients:,}.",
            "Give one list of indices per client.",
        )
    return explicit(options["indices"], len(labels), minimum)


def _check(n: int, clients: int, seed: int, minimum: int) -> None:
    for name, value, least in (("clients", clients, 1), ("minimum", minimum, 0), ("seed", seed, 0)):
        check_count(name, value, least)
    if n < clients * minimum:
        raise Misuse(
            f"{clients:,} clients need at least {clients * minimum:,} samples ({minimum:,} each, "
            f"the batch size), but there are {n:,}.",
            "Lower the number of clients or the batch size, or use more data.",
        )


def _check_alpha(alpha: float) -> None:
    check_number("alpha", alpha, above=0, hint="0.1 is very uneven, 100 is nearly even")


def _integers(name: str, values: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise Misuse(
            f"{name} are {array.dtype} with shape {array.shape}.", "Give a list of integers."
        )
    return array.astype(np.int64, copy=False)


def _shuffled_owners(sizes: Counts, rng: np.random.Generator) -> Owners:
    """Owners of sizes.sum() samples in random order, such that client i owns sizes[i]."""
    owners = np.empty(sizes.sum(), dtype=np.int64)
    owners[rng.permutation(len(owners))] = np.repeat(np.arange(len(sizes)), sizes)
    return owners


def _resize(owners: Owners, sizes: Counts, new_sizes: Counts, rng: np.random.Generator) -> None:
    """Change owners of random samples in place so that client i owns new_sizes[i]."""
    order = rng.permutation(len(owners))
    order = order[np.argsort(owners[order], kind="stable")]
    rank = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    surplus = order[rank >= np.repeat(new_sizes, sizes)]
    owners[surplus] = np.repeat(np.arange(len(sizes)), np.maximum(new_sizes - sizes, 0))


def _partition(kind: str, owners: Owners, clients: int, minimum: int, how: str) -> Partition:
    by_client = torch.from_numpy(np.argsort(owners, kind="stable"))
    sizes = np.bincount(owners, minlength=clients).tolist()
    description = _describe(how, len(owners), clients, minimum)
    return Partition(torch.split(by_client, sizes), kind, description)


def _describe(how: str, n: int, clients: int, minimum: int) -> str:
    least = f", at least {minimum:,} each" if minimum > 1 else ""
    return f"{n:,} samples divided among {clients:,} clients, {how}{least}"
