"""Which samples each client gets: integer allocation, and label skew.

With label skew, each client has exactly k classes (#C = k), or all but k. For #C = k:

1. Each class gets holders in proportion to its samples, so that shards have similar sizes.
2. Classes go to clients in turn. No class has more holders than there are clients, so no client
   gets a class twice.
3. Random pairs of clients swap classes that only one of them has. These "curveball" trades keep the
   number of classes per client and the number of holders per class.
4. Each class is divided equally among its holders; the remainder goes to the smallest clients.
5. Clients below the minimum receive samples of classes they hold from the largest holders.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import Misuse

Counts = NDArray[np.int64]
Owners = NDArray[np.int64]

# Outside of these bounds a Dirichlet draw is practically equal or one-sided, and floats overflow.
_MIN_ALPHA, _MAX_ALPHA = 1e-5, 1e8
TRADES = 24
MAX_DRAWS = 20


def split_evenly(total: int, parts: int) -> Counts:
    """Divide `total` into `parts` that differ by at most one."""
    counts = np.full(parts, total // parts, dtype=np.int64)
    counts[: total % parts] += 1
    return counts


def split_dirichlet(total: int, parts: int, alpha: float, rng: np.random.Generator) -> Counts:
    """Divide `total` in proportions drawn from the symmetric Dirichlet distribution."""
    proportions = rng.dirichlet(np.full(parts, min(max(alpha, _MIN_ALPHA), _MAX_ALPHA)))
    ends = np.floor(np.cumsum(proportions) * total + 0.5).astype(np.int64)
    ends[-1] = total
    return np.diff(np.minimum(ends, total), prepend=0)


def split_proportionally(total: int, weights: Counts, most: Counts) -> Counts:
    """Divide `total` in proportion to `weights`, with at least 1 and at most `most` each.

    D'Hondt's method, because it maximises the smallest weight per share: here, the smallest shard.
    """
    total = int(min(total, most.sum()))

    def counts_at(rate: float) -> Counts:
        counts: Counts = np.clip(np.floor(rate * weights).astype(np.int64), 1, most)
        return counts

    # Weights are at least 1, so the upper rate gives everyone the most.
    low, high = 0.0, float(total + 1)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if counts_at(middle).sum() <= total else (low, middle)
    counts = counts_at(low)
    # What is left are ties, fewer than there are weights.
    while counts.sum() < total:
        claims = np.where(counts < most, weights / (counts + 1), -1.0)
        counts[int(claims.argmax())] += 1
    return counts


def take_from_largest(sizes: Counts, available: Counts, amount: int) -> Counts:
    """How many to take from each, `amount` in total, so that the largest sizes shrink first.

    All sizes above a common level shrink to it, as far as `available` allows.
    """

    def taken_above(level: int) -> Counts:
        return np.clip(sizes - level, 0, available)

    low, high = int(sizes.min(initial=0)) - 1, int(sizes.max(initial=0))
    while high - low > 1:
        level = (low + high) // 2
        low, high = (level, high) if taken_above(level).sum() >= amount else (low, level)
    taken = taken_above(low)
    # The last level takes one too many from some.
    surplus = int(taken.sum()) - amount
    taken[np.flatnonzero(taken > taken_above(low + 1))[:surplus]] -= 1
    return taken


def raise_to_minimum(sizes: Counts, minimum: int) -> Counts:
    """Sizes with the same sum that are all at least `minimum`; the largest sizes shrink."""
    lacking = np.maximum(minimum - sizes, 0)
    spare = np.maximum(sizes - minimum, 0)
    return sizes + lacking - take_from_largest(sizes, spare, int(lacking.sum()))


def fill_in_order(room: Counts, amount: int) -> Counts:
    """Distribute `amount` over the rooms, the first room first."""
    filled: Counts = np.clip(amount - (np.cumsum(room) - room), 0, room)
    return filled


def assign_k_classes(
    labels: NDArray[np.int64], clients: int, k: int, seed: int, minimum: int
) -> Owners:
    """The owner of each sample [n] if each client has k classes and at least `minimum` samples."""
    present, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    classes = len(present)
    if k < 1:
        raise Misuse(f"k is {k}.", "Give each client at least 1 class.")
    if k > classes:
        raise Misuse(
            f"k={k} classes per client, but the samples have only {classes} classes.",
            f"Set k to at most {classes}.",
        )
    if clients * k < classes:
        raise Misuse(
            f"{clients:,} clients with k={k} classes each hold at most {clients * k:,} of "
            f"{classes} classes, so some samples would belong to no client.",
            f"Raise k to {-(-classes // clients)}, or clients to {-(-classes // k)}.",
        )
    for draw in range(MAX_DRAWS):
        rng = np.random.default_rng([seed, draw])
        counts = _divide_classes(_draw_classes(sizes, clients, k, rng), sizes, rng)
        if _reach_minimum(counts, minimum):
            return _owners(counts, codes, rng)
    raise Misuse(
        f"k={k} classes per client with minimum={minimum}: {MAX_DRAWS} draws left some of "
        f"{clients:,} clients with less (the rarest of {classes} classes has "
        f"{sizes.min():,} samples).",
        "Lower minimum (the batch size) or the number of clients, or raise k.",
    )


def assign_all_but_k_classes(labels: NDArray[np.int64], clients: int, k: int, seed: int) -> Owners:
    """The owner of each sample [n] when client i lacks the k classes from number i·k on, modulo."""
    present, codes, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    classes = len(present)
    if not 1 <= k < classes:
        raise Misuse(
            f"k={k} classes are missing at each client, but the samples have {classes} classes.",
            f"Set k from 1 to {classes - 1}." if classes > 1 else "Use data of several classes.",
        )
    rows = np.arange(clients)[:, None]
    holds = np.ones((clients, classes), dtype=bool)
    holds[rows, (rows * k + np.arange(k)) % classes] = False
    unheld = np.flatnonzero(~holds.any(axis=0))
    if len(unheld):
        raise Misuse(
            f"With k={k} classes missing at each of {clients:,} clients, no client would hold "
            f"class {present[unheld[0]]}.",
            "Lower k or use more clients.",
        )
    rng = np.random.default_rng(seed)
    return _owners(_divide_classes(holds, sizes, rng), codes, rng)


def _draw_classes(
    sizes: Counts, clients: int, k: int, rng: np.random.Generator
) -> NDArray[np.bool_]:
    """Which client holds which class, [N, classes]."""
    holders = split_proportionally(clients * k, sizes, np.minimum(sizes, clients))
    order = rng.permutation(len(sizes))
    assigned = np.repeat(order, holders[order])
    holds = np.zeros((clients, len(sizes)), dtype=bool)
    holds[rng.permutation(clients)[np.arange(len(assigned)) % clients], assigned] = True
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


def _divide_classes(holds: NDArray[np.bool_], sizes: Counts, rng: np.random.Generator) -> Counts:
    """How many samples of each class each client gets, [N, classes]."""
    holders = holds.sum(axis=0)
    counts: Counts = holds * (sizes // holders)
    for label in rng.permutation(len(sizes)):
        clients = rng.permutation(np.flatnonzero(holds[:, label]))
        smallest_first = clients[np.argsort(counts[clients].sum(axis=1), kind="stable")]
        counts[smallest_first[: sizes[label] % holders[label]], label] += 1
    return counts


def _reach_minimum(counts: Counts, minimum: int) -> bool:
    """Move samples in place until every client has the minimum; return whether that succeeded.

    Holders keep at least one sample of each class they hold.
    """
    while True:
        moved = 0
        for label in range(counts.shape[1]):
            totals = counts.sum(axis=1)
            holders = np.flatnonzero(counts[:, label])
            lacking = np.maximum(minimum - totals[holders], 0)
            spare = np.minimum(counts[holders, label] - 1, np.maximum(totals[holders] - minimum, 0))
            amount = int(min(lacking.sum(), spare.sum()))
            if amount:
                counts[holders, label] += fill_in_order(lacking, amount)
                counts[holders, label] -= take_from_largest(totals[holders], spare, amount)
                moved += amount
        if not moved:
            return bool((counts.sum(axis=1) >= minimum).all())


def _owners(counts: Counts, codes: NDArray[np.int64], rng: np.random.Generator) -> Owners:
    """Assign the shuffled samples of each class to its holders."""
    owners = np.empty(len(codes), dtype=np.int64)
    for label in range(counts.shape[1]):
        members = rng.permutation(np.flatnonzero(codes == label))
        owners[members] = np.repeat(np.arange(len(counts)), counts[:, label])
    return owners
