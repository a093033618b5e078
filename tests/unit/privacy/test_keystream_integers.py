"""Integer noise from keystreams: the same mapping as the simulator's, from each client's secret."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from support.integer_noise import integers
from tacit.core import discrete_gaussian, native
from tacit.core.discrete_gaussian import DiscreteGaussian, Table, exact_draw
from tacit.privacy import keystreams
from tacit.privacy.keystreams import KeyRing, digest_of, keystream

RING = KeyRing.from_seed(4, 11)
LAW = DiscreteGaussian(7)


def drawn(ring=RING, source=(0, 1, 2, 3), tag="n", tick=2, law=LAW, width=9):
    here = ring.randomness(width, torch.float32)
    return integers(here, tag, law, tick, torch.tensor(source), width)


def added(rows, source=(0, 1, 2, 3), ring=RING):
    """The noise that rows get."""
    found = rows.clone()
    randomness = ring.randomness(rows.shape[-1], torch.float32)
    randomness.add_integers("n", LAW, 2, torch.tensor(source), found)
    return found - rows


def stream(purpose, client, words, width):
    """The words of noise that is added to zeros."""
    digest = digest_of(torch.zeros(width))
    return np.concatenate(list(keystream(RING.key(purpose, "n", 2, client, None, digest), words)))


@pytest.fixture(params=["compiled", "tensor operations"])
def either(request, monkeypatch):
    """With compiled loops, if there are any, and without them."""
    if request.param != "compiled":
        monkeypatch.setattr(native, "_library", lambda: None)


@pytest.mark.parametrize("block", [1, 2, 5])
def test_a_stream_can_begin_with_any_block(block):
    key = bytes(range(32))
    (whole,) = keystream(key, 16 * block + 20)
    (part,) = keystream(key, 20, block)
    assert part.tolist() == whole[16 * block :].tolist()


def test_numbers_are_those_of_two_words_each(either):
    table = discrete_gaussian.base_table(torch.device("cpu"))
    got = drawn(width=101)
    assert got.dtype == torch.int32
    for client in range(4):
        x, y = stream("integers", client, 202, 101).reshape(-1, 2).T.tolist()
        expected = [
            7 * exact_draw(one, (0, 0, 0), table) + exact_draw(two, (0, 0, 0), table)
            for one, two in zip(x, y, strict=True)
        ]
        assert got[client].tolist() == expected


def test_a_federation_that_starts_over_draws_other_samples():
    """Masks, noise and the words that choose samples are new with new salts."""
    one, other = (replace(RING, salts={i: bytes([i + k] * 16) for i in range(4)}) for k in (0, 9))
    words = [
        ring.randomness(8, torch.float32).words("n", 1, torch.tensor([0]), 8)
        for ring in (one, other)
    ]
    assert not (words[0] == words[1]).any()
    assert not (drawn(one, width=50) == drawn(other, width=50)).all()


def test_one_client_alone_draws_its_row_of_all():
    everyone = drawn()
    for client in range(4):
        alone = replace(RING, secrets={client: RING.secrets[client]})
        assert torch.equal(drawn(alone, source=[client])[0], everyone[client])
        with pytest.raises(ValueError, match=r"own noise of client '[0-3]'"):
            drawn(alone, source=[(client + 1) % 4])


@pytest.mark.parametrize("width", [0, 1, 8, 70])
def test_numbers_do_not_depend_on_the_size_of_chunks(width, monkeypatch, either):
    whole = drawn(width=width)
    monkeypatch.setattr(keystreams, "CHUNK", 64)
    got = integers(RING.randomness(200, torch.float32), "n", LAW, 2, torch.arange(4), width)
    assert torch.equal(got, whole)
    assert drawn(source=np.zeros(0, dtype=np.int64)).shape == (0, 9)


def test_every_part_of_the_address_changes_most_numbers():
    base = drawn(width=300)
    for other in (
        drawn(width=300, tag="m"),
        drawn(width=300, tick=3),
        drawn(replace(RING, generation=2), width=300),
        drawn(replace(RING, federation="banks"), width=300),
    ):
        assert float((base == other).double().mean()) < 0.01


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_noise_is_added_to_rows_and_to_their_sum(dtype):
    begin = torch.randint(-(2**31), 2**31, (1, 30), dtype=dtype).expand(4, 30).contiguous()
    noise = added(begin)
    assert torch.equal(added(begin[0]), noise.sum(0, dtype=dtype))
    assert torch.equal(noise.to(torch.int32), added(begin.to(torch.int32)))
    with pytest.raises(ValueError, match="integer noise of 4 clients onto"):
        added(begin[:3])


def test_the_same_row_gets_the_same_noise_and_another_row_independent_noise():
    width = 100_000
    one = torch.randint(-(2**20), 2**20, (1, width), dtype=torch.int32)
    other = one.clone()
    other[0, width // 2] += 1
    first, second = added(one, source=[1]), added(other, source=[1])
    assert torch.equal(first, added(one, source=[1]))
    # Among rows of other clients too.
    assert torch.equal(first[0], added(torch.cat((other, one)), source=[0, 1])[1])
    correlation = np.corrcoef(first[0].double().numpy(), second[0].double().numpy())[0, 1]
    # Five standard deviations of the correlation of independent numbers.
    assert abs(correlation) < 5 / width**0.5
    difference = (first - second)[0].double() / (2**0.5 * LAW.scale)
    assert stats.kstest(difference.numpy(), "norm").pvalue > 1e-4


def test_ties_are_decided_by_further_words(monkeypatch, either):
    """A table whose thresholds begin like the words that will be drawn: every word ties."""
    width, client = 60, 2
    first = stream("integers", client, 2 * width, width).tolist()
    rest = stream("integers/ties", client, 8 * width, width).reshape(-1, 4)[:, :3].tolist()
    joined = [
        (word & 0x7FFFFFFF) << 96 | sum(part << 64 - 32 * k for k, part in enumerate(further))
        for word, further in zip(first, rest, strict=True)
    ]
    # Equal to the number, one less and one more.
    table = Table.of(sorted(bits + at % 3 - 1 for at, bits in enumerate(joined)))
    monkeypatch.setattr(discrete_gaussian, "base_table", lambda device: table)
    monkeypatch.setattr(keystreams, "CHUNK", 32)
    draws = [exact_draw(*pair, table) for pair in zip(first, rest, strict=True)]
    expected = [7 * x + y for x, y in zip(draws[::2], draws[1::2], strict=True)]
    assert drawn(source=[client], width=width)[0].tolist() == expected
    assert len({abs(draw) for draw in draws}) > 70


def test_the_distribution_is_the_law():
    numbers = drawn(source=[0], width=200_000)[0].double() / LAW.scale
    assert stats.kstest(numbers.numpy(), "norm").pvalue > 1e-4
