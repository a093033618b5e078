"""Sums of columns among nodes: masked, exact, and passed on under later rosters."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import tacit
from tacit.core.errors import Misuse
from tacit.core.neighbourhood import Neighbourhood
from tacit.data.own.statistics import ColumnSums
from tacit.peer.federation import signing
from tacit.peer.node import column_sums
from tacit.peer.node.column_sums import agree_on_columns, load_columns, save_columns
from tacit.privacy.keystreams import KeyRing

NAMES = ["a", "b", "c", "d"]
GRAPH = tacit.Topology.ring(4).mixing("metropolis")
SUMS = [ColumnSums.of(np.random.default_rng(k).normal(-5, 9, size=(30, 3))) for k in range(4)]


class FakeNetwork:
    """Records the masked row, and answers with a total."""

    def __init__(self, number=1, total=None, known=None):
        members = [SimpleNamespace(name=name) for name in NAMES]
        self.manifest = SimpleNamespace(
            number=number, graph=GRAPH, names=NAMES, out_neighbours=lambda name: members[1:2]
        )
        self.name, self.masked, self._total, self._known = "a", None, total, known

    def total_before_start(self, columns):
        self.masked = columns.masked()
        total = self.masked if self._total is None else self._total
        return (columns.decode(total),)

    def exchange(self, messages, like):
        has = torch.tensor([self._known is not None], dtype=torch.uint8)
        words = like["columns"] if self._known is None else torch.from_numpy(self._known.to_words())
        return [{"known": has, "columns": words}]


SECRETS = [signing.generate_mask_key() for _ in NAMES]


def keys_of(position):
    publics = [signing.mask_public_key(one) for one in SECRETS]
    salts = {at: bytes([at + 1]) * 16 for at in range(4)}
    return KeyRing("f", 1, NAMES, publics, {position: SECRETS[position]}, salts)


def edges_of(position):
    return Neighbourhood.of(GRAPH.edges, np.array([position]), "cpu", GRAPH.weights)


def masked_rows():
    rows = []
    for position, own in enumerate(SUMS):
        network = FakeNetwork(total=torch.zeros(1, len(own.to_words()), dtype=torch.int32))
        agree_on_columns(network, edges_of(position), keys_of(position), own, None)
        rows.append(network.masked)
    return rows


def test_masks_cancel_and_hide():
    rows = masked_rows()
    total = torch.stack(rows).sum(0, dtype=torch.int64).to(torch.int32)[0]
    want = sum(SUMS[1:], start=SUMS[0])
    assert ColumnSums.from_words(total.to(torch.int64).numpy()) == want
    for row, own in zip(rows, SUMS, strict=True):
        assert int(np.abs(own.to_words()).max()) < 2**16
        # Uniform numbers of 32 bits: most are far larger than the words that they hide.
        assert float((row.double().abs() > 2**20).double().mean()) > 0.95


def test_a_later_roster_passes_on_what_is_known():
    total = sum(SUMS[1:], start=SUMS[0])
    known = FakeNetwork(number=2, known=total)
    assert agree_on_columns(known, edges_of(0), keys_of(0), SUMS[0], None) == total
    assert known.masked is None
    # Its own knowledge counts before that of others.
    assert agree_on_columns(known, edges_of(0), keys_of(0), SUMS[0], SUMS[2]) == SUMS[2]
    unknown = FakeNetwork(number=2, total=torch.from_numpy(total.to_words())[None])
    assert agree_on_columns(unknown, edges_of(0), keys_of(0), SUMS[0], None) == total
    assert unknown.masked is not None


def test_impossible_totals_are_refused():
    words = SUMS[0].to_words()
    words[0] += 1
    network = FakeNetwork(total=torch.from_numpy(words)[None])
    with pytest.raises(Misuse, match="impossible"):
        agree_on_columns(network, edges_of(0), keys_of(0), SUMS[0], None)


def test_totals_are_stored_for_their_data(tmp_path):
    assert load_columns(tmp_path, "x") is None
    save_columns(tmp_path, "x", SUMS[0])
    assert load_columns(tmp_path, "x") == SUMS[0]
    assert load_columns(tmp_path, "y") is None
    assert (tmp_path / column_sums.FILE).exists()
