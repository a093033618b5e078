"""A node whose disk is restored from a backup sends a second row under the same mask and noise."""

import shutil
from dataclasses import replace

import torch

from tacit.core.discrete_gaussian import DiscreteGaussian
from tacit.peer.node.fresh_keys import FreshKeys
from tacit.peer.wire.messages import ExchangeId
from tacit.privacy.keystreams import KeyRing

NOISE = DiscreteGaussian(50)


def sent(folder, plain):
    """What a node sends in iteration 7: the masked, noisy row, after the check of fresh_keys."""
    keys = FreshKeys(folder, 1)
    salts = {0: keys.own_salt("0"), 1: b"1" * 16, 2: b"2" * 16}
    source = replace(KeyRing.from_seed(3, 0), salts=salts).randomness(4, torch.float32)
    row = plain + source.integers("update", NOISE, 7, torch.tensor([0]))
    masks = source.masks("update", 7, torch.tensor([0, 0]), torch.tensor([1, 2]))
    row = (row + masks.sum(0, keepdim=True)).to(torch.int32)
    keys.check_row(ExchangeId(1, 7, 0), row)
    return row


def test_noise_of_another_row_is_other_noise(tmp_path):
    one, other = torch.tensor([[5, 6, 7, 8]]), torch.tensor([[50, 60, 70, 80]])
    node = tmp_path / "node"
    FreshKeys(node, 1).own_salt("0")
    shutil.copytree(node, tmp_path / "backup")
    first = sent(node, one)
    shutil.rmtree(node)
    shutil.copytree(tmp_path / "backup", node)  # or: rm masked-*.log
    second = sent(node, other)  # a malicious parent sent another total before
    assert not torch.equal(second - first, (other - one).to(torch.int32))
