import numpy as np
import pytest
import torch

from tacit import Topology
from tacit.core.fixed_point import MODULUS, IntegerRows
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.randomness import Philox
from tacit.graph.spanning_tree import SpanningTree
from tacit.record.masked_sums import tree_messages, unit_of

# The middle client, 2, is the root; 0 and 4 are leaves.
PATH = Topology.from_edges([(0, 1), (1, 2), (2, 3), (3, 4)]).mixing("metropolis")
TREE = SpanningTree.of(PATH.edges, 5)
SCALE = 64.0


@pytest.fixture
def sent():
    hood = Neighbourhood.of(PATH.edges, np.arange(5))
    integers = torch.arange(15, dtype=torch.int32).reshape(5, 3) - 7

    def masks():
        return Philox(3, 3).masks("x", 1, *hood.edge_ends)

    return IntegerRows(
        tuple(integers.shape),
        lambda: integers,
        hood,
        masks,
        None,
        lambda total: total,
        MODULUS / SCALE,
    )


def test_clients_send_masked_sums_of_their_branch_to_their_parents(sent):
    up, _ = tree_messages("x", sent, TREE)
    assert up.tag == "x/up"
    assert up.source.tolist() == [0, 1, 3, 4]
    assert up.target.tolist() == [1, 2, 2, 3]
    masked = sent.masked().long()
    branches = {0: [0], 1: [0, 1], 3: [3, 4], 4: [4]}
    for row, client in zip(up.rows, up.source.tolist(), strict=True):
        expected = masked[branches[client]].sum(0)
        found = (row * SCALE).long()
        assert ((found - expected) % MODULUS == 0).all()
        assert (found.abs() <= 2**31).all()


def test_the_mask_of_the_edge_to_the_parent_hides_a_branch(sent):
    """All masks within a branch cancel."""
    up, _ = tree_messages("x", sent, TREE)
    integers, masks = sent.integers.long(), sent.masks().long()
    ends = list(zip(sent.graph.out_source.tolist(), sent.graph.out_target.tolist(), strict=True))
    branch = (up.rows[up.source.tolist().index(1)] * SCALE).long()
    rest = branch - integers[[0, 1]].sum(0)
    # Client 1 is the smaller end of the edge to its parent, client 2.
    assert ((rest - masks[ends.index((1, 2))]) % MODULUS == 0).all()
    assert not (rest % MODULUS == 0).any()


def test_parents_send_the_total_down(sent):
    _, down = tree_messages("x", sent, TREE)
    assert down.tag == "x/down"
    assert down.source.tolist() == [1, 2, 2, 3]
    assert down.target.tolist() == [0, 1, 3, 4]
    total = sent.integers.double().sum(0) / SCALE
    assert torch.equal(down.rows, total.expand(4, 3))


def test_rows_are_left_as_they_are(sent):
    before = sent.integers.clone()
    tree_messages("x", sent, TREE)
    assert torch.equal(sent.integers, before)


def test_the_unit_is_the_number_that_one_stands_for(sent):
    assert unit_of(sent) == 1 / SCALE
