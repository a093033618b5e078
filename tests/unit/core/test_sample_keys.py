"""Keys of samples and the words drawn from them."""

import numpy as np
import pytest
import torch
from scipy import stats
from torch.func import vmap

from tacit.core.sample_keys import below, fold, sample_keys, words


def test_numbers_are_those_of_splitmix64():
    """The first outputs for seed 0 of Vigna's public implementation."""
    found = [int(number) % 2**64 for number in fold(torch.tensor(0), torch.arange(3))]
    assert found == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_a_key_depends_on_seed_client_and_sample_and_on_nothing_else():
    keys = torch.stack([sample_keys(s, c, 50) for s in (0, 1) for c in (0, 1, 2)])
    assert len(torch.unique(keys)) == keys.numel()
    assert torch.equal(sample_keys(0, 1, 20), keys[1, :20])


def test_words_do_not_depend_on_how_many_are_drawn_or_in_which_shape():
    keys = sample_keys(3, 0, 6)
    all_words = words(keys, 7)
    assert torch.equal(words(keys, 4), all_words[:, :4])
    assert torch.equal(words(keys.view(2, 3), 7), all_words.view(2, 3, 7))
    assert torch.equal(vmap(lambda own: words(own, 7))(keys.view(2, 3)), all_words.view(2, 3, 7))


def test_a_number_on_the_device_gives_the_same_keys():
    keys = sample_keys(3, 0, 6).view(2, 3)
    assert torch.equal(fold(keys, torch.full((2, 1), 9)), fold(keys, 9))


@pytest.mark.parametrize("bound", [2, 9, 1000])
def test_whole_numbers_are_uniform(bound):
    drawn = below(sample_keys(1, 2, 40_000), (bound, bound))
    assert all(int(one.min()) >= 0 and int(one.max()) < bound for one in drawn)
    for one in drawn:
        assert stats.chisquare(np.bincount(one, minlength=bound)).pvalue > 1e-4
    assert abs(np.corrcoef(drawn[0], drawn[1])[0, 1]) < 0.02


def test_bits_of_nearby_keys_are_independent():
    """Each bit flips with probability one half when client, sample, batch or word moves by one."""
    keys = sample_keys(0, 0, 4000)
    neighbours = [
        (words(keys, 1), words(sample_keys(0, 1, 4000), 1)),
        (words(keys[:-1], 1), words(keys[1:], 1)),
        (words(fold(keys, 5), 1), words(fold(keys, 6), 1)),
        (words(keys, 2)[:, :1], words(keys, 2)[:, 1:]),
        (words(keys, 3)[:, :1], words(keys, 3)[:, 2:]),
    ]
    for one, other in neighbours:
        bits = (((one ^ other)[:, 0, None] >> torch.arange(32)) & 1).double().mean(0)
        # Five deviations of the mean of 4000 fair coins.
        assert float((bits - 0.5).abs().max()) < 5 * 0.5 / 4000**0.5
