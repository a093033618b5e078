"""Measure of training on label skew by other readings of "p ~ Dir(α)"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tacit.config.loading import make_config
from tacit.config.sections import Config
from tacit.core.errors import Misuse
from tacit_papers.framework.cells import FieldDescription, MeasureContext, Values
from tacit_papers.measures.training import Training

Labels = NDArray[np.int64]
Parts = list[list[int]]  # the samples of each client
MAX_DRAWS = 1_000


@dataclass(frozen=True)
class PartitionedTraining(FieldDescription):
    """`Training` with the configuration's partition replaced by one of `READINGS`."""

    label = ("training", "config")
    config: Config
    reading: str
    alpha: float

    def __call__(self, seed: int, context: MeasureContext) -> Values:
        dataset = context.dataset(self.config)
        if dataset is None:
            raise Misuse("A task that generates its data has no partition.", "Name a dataset.")
        plain = self.config.as_dict()
        labels = np.asarray(dataset.train.y, dtype=np.int64)
        clients, least = plain["graph"]["clients"], self.config.run.batch_size
        parts = READINGS[self.reading](labels, clients, self.alpha, seed, least)
        plain["partition"] = {"kind": "explicit", "indices": parts}
        return Training(make_config(plain))(seed, context)


def capped_shares(labels: Labels, clients: int, alpha: float, seed: int, minimum: int) -> Parts:
    """Clients' shares of each class are drawn; a client with n/N samples gets no further class.

    Drawn again until every client has the minimum (Li et al. 2022, "noniid-labeldir").
    """
    rng = np.random.default_rng(seed)
    for _ in range(MAX_DRAWS):
        parts: Parts = [[] for _ in range(clients)]
        for label in np.unique(labels):
            members = rng.permutation(np.flatnonzero(labels == label))
            wants = [len(part) < len(labels) / clients for part in parts]
            shares = rng.dirichlet(np.full(clients, alpha)) * wants
            if shares.sum() == 0:
                break
            ends = np.floor(np.cumsum(shares / shares.sum())[:-1] * len(members) + 0.5).astype(int)
            for part, more in zip(parts, np.split(members, ends), strict=True):
                part.extend(more.tolist())
        if sum(map(len, parts)) == len(labels) and min(map(len, parts)) >= minimum:
            return parts
    raise Misuse(f"No draw of Dirichlet({alpha:g}) fits.", "Lower the minimum, or raise alpha.")


def client_mixtures(labels: Labels, clients: int, alpha: float, seed: int, minimum: int) -> Parts:
    """Each client draws shares of the classes and has as many samples as the others.

    Where a class is used up, the client's other classes stand in, and at the end any other.
    """
    rng, classes = np.random.default_rng(seed), np.unique(labels)
    left = [rng.permutation(np.flatnonzero(labels == label)).tolist() for label in classes]
    sizes = [len(part) for part in np.array_split(labels, clients)]
    parts: Parts = [[] for _ in range(clients)]
    for part, size in zip(parts, sizes, strict=True):
        mixture = rng.dirichlet(np.full(len(classes), alpha))
        while len(part) < size:
            there = np.array([len(pool) for pool in left])
            weights = mixture * (there > 0)
            if weights.sum() < 1e-9:
                weights = there.astype(float)
            wanted = rng.multinomial(size - len(part), weights / weights.sum())
            for pool, count in zip(left, np.minimum(wanted, there), strict=True):
                part.extend(pool.pop() for _ in range(count))
    assert min(sizes) >= minimum
    return parts


READINGS: dict[str, Callable[[Labels, int, float, int, int], Parts]] = {
    "shares of each class, capped": capped_shares,
    "classes of each client": client_mixtures,
}
