"""A node whose folder is restored from a backup may send another row under the same mask."""

import hashlib
import shutil
from dataclasses import replace

import numpy as np
import torch

from tacit.core.discrete_gaussian import DiscreteGaussian
from tacit.peer.node.fresh_keys import FreshKeys
from tacit.peer.wire.messages import ExchangeId
from tacit.privacy.keystreams import KeyRing

NOISE, WIDTH = DiscreteGaussian(50), 4000
ONE = torch.arange(WIDTH, dtype=torch.int32)[None]
OTHER = 3 * ONE
DATA = "a digest"


def sent(folder, plain):
    """What node 0 sends in iteration 7: the masked, noisy row, after the check of its records."""
    keys = FreshKeys(folder, 1)
    salts = {0: keys.own_salt("0", DATA), 1: b"1" * 16, 2: b"2" * 16}
    ring = replace(KeyRing.from_seed(3, 0), salts=salts)
    source, row = ring.randomness(WIDTH, torch.float32), plain.clone()
    source.add_integers("update", NOISE, 7, torch.tensor([0]), row)
    masks = source.masks("update", 7, torch.tensor([0, 0]), torch.tensor([1, 2]))
    row = (row + masks.sum(0, keepdim=True)).to(torch.int32)
    keys.check_sent(ExchangeId(1, 7, 0), hashlib.sha256(row.numpy().tobytes()).digest())
    return row


def sent_before_and_after_a_restore(folder, before, after):
    node, backup = folder / "node", folder / "backup"
    FreshKeys(node, 1).own_salt("0", DATA)
    shutil.copytree(node, backup)
    first = sent(node, before)
    shutil.rmtree(node)
    shutil.copytree(backup, node)
    return first, sent(node, after)


def test_the_difference_of_two_rows_has_the_noise_of_both(tmp_path):
    first, second = sent_before_and_after_a_restore(tmp_path, ONE, OTHER)
    noise = (second - first - (OTHER - ONE))[0].double().numpy()
    # The masks are the same and cancel: what is left has twice the variance of one client's noise.
    # A variance of 4000 numbers has a relative standard deviation of √(2/4000).
    expected = 2 * NOISE.scale**2
    assert abs(np.var(noise) / expected - 1) < 5 * (2 / WIDTH) ** 0.5


def test_the_same_row_is_the_same_message(tmp_path):
    first, second = sent_before_and_after_a_restore(tmp_path, ONE, ONE)
    assert torch.equal(first, second)
