"""Who gets which samples: divisions of a training set among clients.

Every division gives every sample to exactly one client and every client at least `minimum` samples. It
is a pure function of its arguments; indices are ascending within a client.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from tacit.core.errors import Misuse, unknown
from tacit.data.apportion import Counts, dirichlet_shares, equal_shares, raise_to
from tacit.data.label_deal import deal_all_but, deal_labels


@dataclass(frozen=True, eq=False)
class Partition:
    """One int64 index tensor per client, and how they came about."""

    indices: tuple[torch.Tensor, ...]
    kind: str
    description: str

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def sizes(self) -> Counts:
        """Samples of each client, [N]."""
        return np.array([len(part) for part in self.indices], dtype=np.int64)

    def counts(self, labels: ArrayLike, classes: int) -> Counts:
        """Samples of each client and class, [N, classes]."""
        mine = np.asarray(labels)[torch.cat(self.indices).numpy()]
        if len(mine) and not 0 <= mine.min() <= mine.max() < classes:
            raise Misuse(
                f"labels go from {mine.min()} to {mine.max()}, but classes is {classes}.",
                "Give the number of classes of the dataset.",
            )
        cells = np.repeat(np.arange(len(self)), self.sizes) * classes + mine
        return np.bincount(cells, minlength=len(self) * classes).reshape(len(self), classes)


def iid(n: int, clients: int, seed: int = 0, minimum: int = 1) -> Partition:
    """Deal the samples out at random, in equal numbers."""
    _check(n, clients, seed, minimum)
    owner = np.empty(n, dtype=np.int64)
    owner[_rng(seed).permutation(n)] = np.repeat(np.arange(clients), equal_shares(n, clients))
    return _from_owners(
        owner, clients, "iid", f"{n:,} samples at random, equally, over {clients:,} clients"
    )


def quantity(n: int, clients: int, alpha: float, seed: int = 0, minimum: int = 1) -> Partition:
    """Deal the samples out at random, in unequal numbers: sizes follow a Dirichlet law of `alpha`."""
    _check(n, clients, seed, minimum)
    _check_alpha(alpha)
    rng = _rng(seed)
    sizes = raise_to(dirichlet_shares(n, clients, alpha, rng), minimum)
    owner = np.empty(n, dtype=np.int64)
    owner[rng.permutation(n)] = np.repeat(np.arange(clients), sizes)
    return _from_owners(
        owner, clients, "quantity", f"sizes from Dirichlet({alpha:g}), {_over(n, clients, minimum)}"
    )


def dirichlet(
    labels: ArrayLike, clients: int, alpha: float, seed: int = 0, minimum: int = 1
) -> Partition:
    """Skew the labels: the shares of each class over the clients follow a Dirichlet law of `alpha`.

    Clients below `minimum` get random samples of the largest ones.
    """
    labels = _labels(labels)
    _check(len(labels), clients, seed, minimum)
    _check_alpha(alpha)
    rng = _rng(seed)
    owner = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        owner[members] = np.repeat(
            np.arange(clients), dirichlet_shares(len(members), clients, alpha, rng)
        )
    sizes = np.bincount(owner, minlength=clients)
    _move_surplus(owner, sizes, raise_to(sizes, minimum), rng)
    return _from_owners(
        owner,
        clients,
        "dirichlet",
        f"classes from Dirichlet({alpha:g}), {_over(len(labels), clients, minimum)}",
    )


def classes_per_client(
    labels: ArrayLike, clients: int, k: int, seed: int = 0, minimum: int = 1
) -> Partition:
    """Give each client samples of exactly `k` classes (#C = k), and every class to at least one client.

    Classes are dealt in proportion to their size. Only where a class has fewer samples than there would
    be clients holding it can a client have less than `k`.
    """
    labels = _labels(labels)
    _check(len(labels), clients, seed, minimum)
    owner = deal_labels(labels, clients, k, seed, minimum)
    return _from_owners(
        owner,
        clients,
        "classes",
        f"#C = {k}: {k} classes each, {_over(len(labels), clients, minimum)}",
    )


def missing_classes(
    labels: ArrayLike, clients: int, k: int, seed: int = 0, minimum: int = 1
) -> Partition:
    """Let each client miss `k` classes: client i those from number i·k on, counted round (dual-protection paper).

    The samples of a class are dealt out at random, in equal numbers, among the clients that do not miss it.
    """
    labels = _labels(labels)
    _check(len(labels), clients, seed, minimum)
    owner = deal_all_but(labels, clients, k, seed)
    sizes = np.bincount(owner, minlength=clients)
    if sizes.min() < minimum:
        raise Misuse(
            f"k={k} missing classes leave client {sizes.argmin()} with {sizes.min():,} samples; minimum is {minimum}.",
            "Lower minimum (the batch size) or the number of clients, or use more data.",
        )
    return _from_owners(
        owner,
        clients,
        "missing",
        f"{k} classes missing each, {_over(len(labels), clients, minimum)}",
    )


def explicit(indices: Sequence[ArrayLike], n: int, minimum: int = 0) -> Partition:
    """Take the user's own division, if it gives each of the n samples to exactly one client."""
    parts = tuple(
        torch.from_numpy(_index_array(part, client)) for client, part in enumerate(indices)
    )
    _check(n, len(parts), 0, minimum)
    everything = torch.cat(parts).numpy()
    if len(everything) and not 0 <= everything.min() <= everything.max() < n:
        outside = everything[(everything < 0) | (everything >= n)][0]
        raise Misuse(f"indices name sample {outside}.", f"Use numbers from 0 to {n - 1}.")
    times = np.bincount(everything, minlength=n)
    for wrong, what in (
        (times > 1, "to more than one client, or twice to one"),
        (times == 0, "to nobody"),
    ):
        if wrong.any():
            raise Misuse(
                f"indices give {int(wrong.sum()):,} of {n:,} samples {what} (the first is {wrong.argmax()}).",
                "Give every sample to exactly one client.",
            )
    small = [client for client, part in enumerate(parts) if len(part) < minimum]
    if small:
        raise Misuse(
            f"indices give client {small[0]} only {len(parts[small[0]])} samples; minimum is {minimum}.",
            "Give it more, or lower minimum (the batch size).",
        )
    return Partition(parts, "explicit", f"given by the user, {_over(n, len(parts), minimum)}")


_KINDS: Mapping[str, tuple[Callable[..., Partition], str | None]] = {
    "iid": (lambda labels, *rest: iid(len(labels), *rest), None),
    "quantity": (lambda labels, *rest: quantity(len(labels), *rest), "alpha"),
    "dirichlet": (dirichlet, "alpha"),
    "classes": (classes_per_client, "k"),
    "missing": (missing_classes, "k"),
    "explicit": (explicit, "indices"),
}


def partition(
    kind: str, labels: ArrayLike, clients: int, *, seed: int = 0, minimum: int = 1, **options: Any
) -> Partition:
    """Divide by its name: iid, quantity (alpha), dirichlet (alpha), classes (k), missing (k), explicit (indices).

    >>> [len(part) for part in partition("quantity", [0] * 100, 4, alpha=0.5, minimum=5).indices]
    [24, 5, 50, 21]
    """
    if kind not in _KINDS:
        raise unknown(f"there is no partition {kind!r}.", kind, _KINDS)
    divide, option = _KINDS[kind]
    strange = sorted(set(options) - {option})
    if strange:
        has = f"its only option is {option}" if option else "it has none"
        raise Misuse(f"partition {kind} has no option {strange[0]!r}.", f"Leave it out; {has}.")
    if option is not None and option not in options:
        raise Misuse(f"partition {kind} needs {option}.", f"Set {option}.")
    labels = _labels(labels)
    if kind == "explicit":
        given = len(options["indices"])
        if given != clients:
            raise Misuse(
                f"indices divide the samples among {given:,} clients, but clients is {clients:,}.",
                "Give one list of indices per client.",
            )
        return explicit(options["indices"], len(labels), minimum)
    return divide(labels, clients, *options.values(), seed, minimum)


def _check(n: int, clients: int, seed: int, minimum: int) -> None:
    if clients < 1:
        raise Misuse(f"clients is {clients}.", "Give at least 1 client.")
    if minimum < 0:
        raise Misuse(
            f"minimum is {minimum}.", "Give 0 or more samples per client (the batch size)."
        )
    if seed < 0:
        raise Misuse(f"seed is {seed}.", "Give a seed of 0 or more.")
    if n < clients * minimum:
        raise Misuse(
            f"{clients:,} clients need at least {clients * minimum:,} samples ({minimum:,} each, the batch "
            f"size), but there are {n:,}.",
            "Lower the number of clients or the batch size, or use more data.",
        )


def _check_alpha(alpha: float) -> None:
    if not (alpha > 0 and math.isfinite(alpha)):
        raise Misuse(
            f"alpha is {alpha}.",
            "Give a finite number above 0 (0.1 is very uneven, 100 nearly even).",
        )


def _labels(labels: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(labels)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise Misuse(
            f"labels are {array.dtype} with shape {array.shape}.",
            "Give one whole class number per sample.",
        )
    return array.astype(np.int64, copy=False)


def _index_array(part: ArrayLike, client: int) -> NDArray[np.int64]:
    array = np.asarray(part)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise Misuse(
            f"indices of client {client} are {array.dtype}, {array.ndim}-dimensional.",
            "List integers.",
        )
    return array.astype(np.int64)


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _over(n: int, clients: int, minimum: int) -> str:
    return f"{n:,} samples over {clients:,} clients, at least {minimum} each"


def _move_surplus(
    owner: NDArray[np.int64], sizes: Counts, wanted: Counts, rng: np.random.Generator
) -> None:
    """Change owners in place so that client i has wanted[i] samples; which ones move is random."""
    order = rng.permutation(len(owner))
    order = order[np.argsort(owner[order], kind="stable")]
    rank = np.arange(len(owner)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    surplus = order[rank >= np.repeat(wanted, sizes)]
    owner[surplus] = np.repeat(np.arange(len(sizes)), np.maximum(wanted - sizes, 0))


def _from_owners(owner: NDArray[np.int64], clients: int, kind: str, description: str) -> Partition:
    by_client = torch.from_numpy(np.argsort(owner, kind="stable"))
    sizes = np.bincount(owner, minlength=clients).tolist()
    return Partition(torch.split(by_client, sizes), kind, description)
