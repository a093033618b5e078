"""How nodes learn means and deviations of columns over all members: by one masked sum.

Under the first roster, nodes add up the words of their `ColumnSums` before the algorithm starts.
Masks that neighbours share hide every node's words, so that nodes learn the totals only, unless
all neighbours of a node collude. A node that starts over masks the same words, or has another salt
if its data have changed: no mask covers two different rows.

Under a later roster, nodes that know the totals pass them on: what a number means stays the same
for the whole run, also for members that join later.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tacit.core import storage
from tacit.core.errors import Misuse
from tacit.core.fixed_point import RESERVED, IntegerRows
from tacit.core.neighbourhood import Neighbourhood
from tacit.data.own.statistics import FRACTION_BITS, ColumnSums
from tacit.peer.node.network import PeerNetwork
from tacit.peer.node.roster_context import diameter
from tacit.privacy.keystreams import KeyRing

TAG = f"{RESERVED} columns"
FILE = "columns.json"


def agree_on_columns(
    network: PeerNetwork,
    graph: Neighbourhood,
    keys: KeyRing,
    own: ColumnSums,
    known: ColumnSums | None,
) -> ColumnSums:
    """The sums of all members.

    Args:
        network: The network under a new roster, after the salts are agreed on.
        graph: This node's edges.
        keys: This node's keys, with the salts of all members.
        own: The sums of this node's training rows.
        known: The totals that this node knows from an earlier roster.

    Raises:
        Misuse: The totals are impossible, so a member has added something else.
    """
    total = None
    if network.manifest.number > 1:
        total = _passed_on(network, own.to_words(), known)
    if total is None:
        total = _masked_total(network, graph, keys, own.to_words())
    sums = ColumnSums.from_words(total)
    k = own.columns
    whole = all(count % (1 << FRACTION_BITS) == 0 for count in sums.values[:k])
    if not whole or min(sums.values[:k] + sums.values[2 * k :], default=0) < 0:
        raise Misuse(
            "The sums of the columns over all members are impossible: a member added wrong ones.",
            "Find out which; or agree on means and deviations in [data.schema].",
        )
    return sums


def _masked_total(
    network: PeerNetwork, graph: Neighbourhood, keys: KeyRing, own: np.ndarray
) -> np.ndarray:
    words = torch.from_numpy(own).to(graph.edge_ends[0].device, torch.int32)[None]
    randomness = keys.randomness(words.shape[1], torch.float64)
    rows = IntegerRows(
        (1, words.shape[1]),
        compute=lambda: words,
        graph=graph,
        masks=partial(randomness.masks, TAG, 0, *graph.edge_ends),
        noise=None,
        decode=lambda total: total.to(torch.int64),
        modulus=float(1 << 32),
    )
    (total,) = network.total_before_start(columns=rows)
    return total[0].cpu().numpy()


def _passed_on(
    network: PeerNetwork, like: np.ndarray, known: ColumnSums | None
) -> np.ndarray | None:
    """The totals that some member knows; None if no member knows them."""
    receivers = network.manifest.out_neighbours(network.name)
    total: Tensor | None = None if known is None else torch.from_numpy(known.to_words())
    empty = torch.zeros(len(like), dtype=torch.int64)
    for _ in range(diameter(network.manifest.graph)):
        ours = {
            "known": torch.tensor([total is not None], dtype=torch.uint8),
            "columns": empty if total is None else total,
        }
        theirs = network.exchange({member.name: ours for member in receivers}, ours)
        if total is None:
            total = next((one["columns"] for one in theirs if int(one["known"])), None)
    return None if total is None else total.numpy()


def save_columns(folder: Path, digest: str, sums: ColumnSums) -> None:
    """Store the totals, durably, and for which data they are."""
    text = json.dumps({"data": digest, "sums": [str(value) for value in sums.values]})
    storage.write_text(folder / FILE, text, durable=True)


def load_columns(folder: Path, digest: str) -> ColumnSums | None:
    """The totals that were stored for these data; None if there are none."""
    if not (folder / FILE).exists():
        return None
    stored = storage.read_json(folder / FILE, "Remove the folder of the run and join again.")
    if stored.get("data") != digest:
        return None
    return ColumnSums(tuple(int(value) for value in stored["sums"]))
