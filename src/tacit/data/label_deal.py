"""Dealing classes, then samples: every client holds exactly k classes (#C = k), or all but k.

For #C = k:

1. Each class c gets d_c holders, in proportion to its samples, so that shards are of like size.
2. The classes' cards are laid round the table of clients: d_c ≤ N neighbours never include one twice.
3. Random pairs of clients then swap the classes that only one of them has ("curveball" trades, which
   keep both how many classes a client has and how many holders a class has), until all is mixed.
4. Each class is cut equally among its holders, and what is left over goes to the smallest clients.
5. Clients below the minimum receive samples of classes that they hold, from the largest holders.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import Misuse
from tacit.data.apportion import Counts, fill_in_order, proportional_shares, take_from_largest

TRADES = 24
REDRAWS = 20


def deal_labels(
    labels: NDArray[np.int64], clients: int, k: int, seed: int, minimum: int
) -> NDArray[np.int64]:
    """Return the owner of each sample, [n]."""
    present, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    _check(clients, k, len(present))
    for draw in range(REDRAWS):
        rng = np.random.default_rng([seed, draw])
        counts = _share_out(_deal_classes(sizes, clients, k, rng), sizes, rng)
        if _reach_minimum(counts, minimum):
            return _owners(counts, codes, rng)
    raise Misuse(
        f"k={k} classes per client with minimum={minimum}: {REDRAWS} draws left some of {clients:,} clients "
        f"with less (the rarest of {len(present)} classes has {sizes.min():,} samples).",
        "Lower minimum (the batch size) or the number of clients, or raise k.",
    )


def deal_all_but(labels: NDArray[np.int64], clients: int, k: int, seed: int) -> NDArray[np.int64]:
    """Return the owner of each sample, [n], where client i holds all classes but k: those from number i·k on, in turn.

    Each class is cut equally among its holders, and what is left over goes to the smallest of them.
    """
    present, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    classes = len(present)
    if not 1 <= k < classes:
        raise Misuse(
            f"k={k} classes are missing at each client, but the samples have {classes} classes.",
            f"Set k from 1 to {classes - 1}." if classes > 1 else "Use data of several classes.",
        )
    first = np.arange(clients)[:, None] * k
    holds = np.ones((clients, classes), dtype=bool)
    holds[np.arange(clients)[:, None], (first + np.arange(k)) % classes] = False
    nobodys = np.flatnonzero(~holds.any(axis=0))
    if len(nobodys):
        raise Misuse(
            f"With k={k} classes missing at each of {clients:,} clients, nobody would hold class "
            f"{present[nobodys[0]]}.",
            "Lower k or take more clients.",
        )
    rng = np.random.default_rng(seed)
    return _owners(_share_out(holds, sizes, rng), codes, rng)


def _check(clients: int, k: int, classes: int) -> None:
    if k < 1:
        raise Misuse(f"k is {k}.", "Give each client at least 1 class.")
    if k > classes:
        raise Misuse(
            f"k={k} classes per client, but the samples have only {classes} classes.",
            f"Set k to at most {classes}.",
        )
    if clients * k < classes:
        raise Misuse(
            f"{clients:,} clients with k={k} classes each hold at most {clients * k:,} of {classes} classes, "
            "so some samples would go to nobody.",
            f"Raise k to {-(-classes // clients)}, or clients to {-(-classes // k)}.",
        )


def _deal_classes(
    sizes: Counts, clients: int, k: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Return which client holds which class, [N, classes]."""
    holders = proportional_shares(clients * k, sizes, np.minimum(sizes, clients))
    order = rng.permutation(len(sizes))
    cards = np.repeat(order, holders[order])
    holds = np.zeros((clients, len(sizes)), dtype=bool)
    holds[rng.permutation(clients)[np.arange(len(cards)) % clients], cards] = True
    for _ in range(TRADES):
        pairs = rng.permutation(clients)[: clients // 2 * 2].reshape(2, -1)
        first, second = holds[pairs[0]], holds[pairs[1]]
        only_one = first != second
        keys = np.where(only_one, rng.random(only_one.shape), 2.0)
        rank = keys.argsort(axis=1).argsort(axis=1)
        to_first = only_one & (rank < (first & ~second).sum(axis=1, keepdims=True))
        holds[pairs[0]] = (first & second) | to_first
        holds[pairs[1]] = (first & second) | (only_one & ~to_first)
    return holds


def _share_out(holds: NDArray[np.bool_], sizes: Counts, rng: np.random.Generator) -> Counts:
    """Return how many samples of each class each client gets, [N, classes]."""
    holders = holds.sum(axis=0)
    counts: Counts = holds * (sizes // holders)
    for label in rng.permutation(len(sizes)):
        mine = rng.permutation(np.flatnonzero(holds[:, label]))
        smallest_first = mine[np.argsort(counts[mine].sum(axis=1), kind="stable")]
        counts[smallest_first[: sizes[label] % holders[label]], label] += 1
    return counts


def _reach_minimum(counts: Counts, minimum: int) -> bool:
    """Move samples in place until every client has the minimum; False where that gets stuck.

    Holders keep at least one sample of each class that they hold.
    """
    while True:
        moved = 0
        for label in range(counts.shape[1]):
            totals = counts.sum(axis=1)
            mine = np.flatnonzero(counts[:, label])
            lacking = np.maximum(minimum - totals[mine], 0)
            spare = np.minimum(counts[mine, label] - 1, np.maximum(totals[mine] - minimum, 0))
            amount = int(min(lacking.sum(), spare.sum()))
            if amount:
                counts[mine, label] += fill_in_order(lacking, amount)
                counts[mine, label] -= take_from_largest(totals[mine], spare, amount)
                moved += amount
        if not moved:
            return bool((counts.sum(axis=1) >= minimum).all())


def _owners(
    counts: Counts, codes: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Give each class's samples, shuffled, to its holders."""
    owner = np.empty(len(codes), dtype=np.int64)
    for label in range(counts.shape[1]):
        members = rng.permutation(np.flatnonzero(codes == label))
        owner[members] = np.repeat(np.arange(len(counts)), counts[:, label])
    return owner
