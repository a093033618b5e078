import itertools

import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import stats

from tacit.core import native, randomness
from tacit.core.noise import Gaussian, Laplace
from tacit.core.randomness import Philox, derive_key, permutations, philox, tiles, words

ONES = 0xFFFFFFFF

# Random123 (Salmon et al. 2011), kat_vectors: philox4x32 with 10 rounds.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def noise(
    seed=0,
    tag="delta",
    law=None,
    tick=0,
    source=(0, 1, 2),
    target=None,
    width=7,
    dtype=torch.float64,
):
    other = None if target is None else torch.tensor(target)
    return Philox(seed, width, dtype).rows(
        tag, law or Laplace(1.0), tick, torch.tensor(source), other
    )


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter, key, expected):
    c0, c1, c2, c3 = (torch.tensor([word]) for word in counter)
    assert philox((c0, c1, c2, c3), key[0] | key[1] << 32).tolist() == [list(expected)]


def test_philox_of_many_counters_is_philox_of_each():
    counter = [[word] * 3 for word in (5, 6, 7, 8)]
    for at, word in ((0, 1), (1, ONES), (2, 123456789)):
        counter[0][at] = word
    together = philox(tuple(torch.tensor(part) for part in counter), 99)
    for at in range(3):
        alone = philox(tuple(torch.tensor([part[at]]) for part in counter), 99)
        assert torch.equal(together[at], alone[0])


def test_philox_leaves_its_counters_alone():
    counter = tuple(torch.tensor([word]) for word in (1, 2, 3, 4))
    philox(counter, 7)
    assert [int(part) for part in counter] == [1, 2, 3, 4]


def test_words_are_addressed_by_block_source_target_and_tick():
    drawn = words(77, 9, torch.tensor([3]), torch.tensor([5]), range(8, 14))
    blocks = [philox(tuple(torch.tensor([c]) for c in (block, 3, 5, 9)), 77)[0] for block in (2, 3)]
    assert torch.equal(drawn[0], torch.cat(blocks)[:6])


def test_keys_differ_with_every_part_and_its_kind():
    keys = {
        derive_key(0, "a"),
        derive_key(1, "a"),
        derive_key(0, "b"),
        derive_key("0", "a"),
        derive_key(0),
        derive_key(0, "a", 0),
    }
    assert len(keys) == 6
    assert all(0 <= key < 1 << 64 for key in keys)


@settings(max_examples=40)
@given(picked=st.lists(st.integers(0, 9), min_size=1, max_size=12))
def test_a_row_does_not_depend_on_the_rows_drawn_with_it(picked):
    rows = noise(source=tuple(range(10)), target=tuple(range(3, 13)))
    assert torch.equal(rows[torch.tensor(picked)], rows.tensor()[picked])


@settings(max_examples=40)
@given(tile=st.integers(1, 9), width=st.integers(1, 23), count=st.integers(1, 7))
def test_chunking_does_not_change_what_is_drawn(tile, width, count):
    source = tuple(range(count))
    whole = noise(source=source, width=width).tensor()
    sizes = torch.arange(1, count + 1) * 3
    ordered = permutations(5, torch.zeros_like(sizes), torch.arange(count), sizes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(randomness, "TILE", tile)
        assert torch.equal(noise(source=source, width=width).tensor(), whole)
        again = permutations(5, torch.zeros_like(sizes), torch.arange(count), sizes)
    assert torch.equal(again, ordered)


@settings(max_examples=40)
@given(tile=st.integers(1, 6), rows=st.integers(1, 9), width=st.integers(1, 40))
def test_tiles_cover_everything_once_from_columns_divisible_by_four(tile, rows, width):
    covered = torch.zeros(rows, width, dtype=torch.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(randomness, "TILE", tile)
        for piece, columns in tiles(rows, width):
            assert columns.start % 4 == 0
            covered[piece, columns.start : columns.stop] += 1
    assert bool((covered == 1).all())


@pytest.mark.parametrize("narrow", [1, 3, 4, 5, 8])
def test_a_narrower_row_is_the_beginning_of_a_wider_one(narrow):
    assert torch.equal(noise(width=narrow).tensor(), noise(width=11).tensor()[:, :narrow])


def test_every_part_of_the_address_changes_every_row():
    base = noise(target=(5, 6, 7)).tensor()
    others = {
        "tag": noise(target=(5, 6, 7), tag="zeta").tensor(),
        "tick": noise(target=(5, 6, 7), tick=1).tensor(),
        "seed": noise(target=(5, 6, 7), seed=1).tensor(),
        "source": noise(target=(5, 6, 7), source=(10, 11, 12)).tensor(),
        "target": noise(target=(8, 9, 10)).tensor(),
        "own": noise().tensor(),
    }
    for what, other in others.items():
        assert not bool((base == other).any()), what


def test_an_edge_and_its_way_back_have_different_noise():
    there, back = noise(source=(1,), target=(2,)).tensor(), noise(source=(2,), target=(1,)).tensor()
    assert not bool((there == back).any())


def test_own_noise_is_not_the_noise_shared_with_client_zero():
    own, shared = noise(source=(3,)).tensor(), noise(source=(3,), target=(0,)).tensor()
    assert not bool((own == shared).any())


def test_both_ends_of_an_edge_draw_the_same():
    sender = noise(source=(4, 4, 4), target=(1, 2, 9), tick=6).tensor()
    receiver = noise(source=(0, 4, 8), target=(2, 2, 2), tick=6).tensor()
    assert torch.equal(sender[1], receiver[1])
    assert not torch.equal(sender[0], receiver[0])


@pytest.mark.parametrize("law", [Laplace(0.7), Gaussian(0.3)])
def test_float32_is_the_rounded_float64(law):
    double = noise(law=law, width=1001).tensor()
    single = noise(law=law, width=1001, dtype=torch.float32).tensor()
    assert single.dtype == torch.float32
    assert torch.equal(single, double.to(torch.float32))


def test_lazy_rows_know_their_shape():
    rows = noise(source=(1, 2), width=3, dtype=torch.float32)
    assert (len(rows), rows.width, rows.dtype) == (2, 3, torch.float32)
    assert rows.tensor().shape == (2, 3)


def test_words_are_the_middles_of_equal_cells():
    cells = randomness.uniform(torch.tensor([0, ONES, 1 << 31, (1 << 31) - 1]))
    assert cells.tolist() == [2.0**-33, 1 - 2.0**-33, 0.5 + 2.0**-33, 0.5 - 2.0**-33]


@pytest.mark.parametrize("law", [Laplace(0.5), Gaussian(2.0)])
def test_draws_are_finite_even_for_the_outermost_words(law, monkeypatch):
    extremes = torch.tensor([[0, ONES, 1 << 31, (1 << 31) - 1]])
    monkeypatch.setattr(randomness, "words", lambda *address: extremes)
    monkeypatch.setattr(randomness, "supports", lambda rows: False)
    drawn = noise(law=law, source=(0,), width=4).tensor()[0]
    assert bool(torch.isfinite(drawn).all())
    assert drawn[0] == -drawn[1] < 0
    assert drawn[2] == -drawn[3] > 0


def test_neighbouring_addresses_are_uncorrelated():
    field = noise(law=Gaussian(1.0), source=tuple(range(64)), width=4096).tensor()
    correlation = torch.corrcoef(field).fill_diagonal_(0).abs().max()
    assert float(correlation) < 6 / 4096**0.5
    columns = torch.corrcoef(field.T[:64]).fill_diagonal_(0).abs().max()
    assert float(columns) < 6 / 64**0.5


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    epoch=st.integers(0, 1000),
    key=st.integers(0, 2**64 - 1),
)
def test_permutations_are_permutations_and_independent_of_the_other_clients(sizes, epoch, key):
    clients = torch.arange(len(sizes)) + 2
    epochs = torch.full_like(clients, epoch)
    together = permutations(key, epochs, clients, torch.tensor(sizes))
    for row, mine in enumerate(together.split(sizes)):
        assert sorted(mine.tolist()) == list(range(sizes[row]))
        one = slice(row, row + 1)
        assert torch.equal(
            mine, permutations(key, epochs[one], clients[one], torch.tensor([sizes[row]]))
        )


def test_permutations_differ_by_key_epoch_and_client():
    size = torch.tensor([40])

    def drawn(key, epoch, client):
        return tuple(
            permutations(key, torch.tensor([epoch]), torch.tensor([client]), size).tolist()
        )

    assert len({drawn(1, 0, 0), drawn(2, 0, 0), drawn(1, 1, 0), drawn(1, 0, 1)}) == 4


def test_permutations_are_uniform():
    draws = 4800
    clients = torch.arange(draws)
    sizes = torch.full((draws,), 4)
    rows = permutations(
        derive_key(3, "batches"), torch.zeros(draws, dtype=torch.int64), clients, sizes
    )
    orders = list(itertools.permutations(range(4)))
    counts = [0] * len(orders)
    for row in rows.reshape(draws, 4).tolist():
        counts[orders.index(tuple(row))] += 1
    assert stats.chisquare(counts).pvalue > 1e-4


def test_words_of_a_client_are_its_own_and_do_not_depend_on_who_else_is_drawn_for():
    source = Philox(3, 5)
    everyone = source.words("rr", 4, torch.arange(6), 9)
    assert everyone.dtype == torch.int64
    assert int(everyone.min()) >= 0
    assert int(everyone.max()) < 2**32
    assert torch.equal(source.words("rr", 4, torch.tensor([2, 5]), 9), everyone[[2, 5]])
    assert len(everyone.unique()) == everyone.numel()
    for other in (
        source.words("rs", 4, torch.arange(6), 9),
        source.words("rr", 5, torch.arange(6), 9),
    ):
        assert not torch.equal(everyone, other)
    assert source.words("rr", 4, torch.arange(0), 9).shape == (0, 9)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("width", [5, 512, 1027])
def test_words_of_32_bits_are_those_of_64(width, compiled, monkeypatch):
    if not compiled:
        monkeypatch.setattr(native, "_library", lambda: None)
    source, clients = Philox(3, 7), torch.arange(3)
    narrow = source.words("rr", 4, clients, width, torch.uint32)
    assert narrow.dtype == torch.uint32
    assert torch.equal(narrow.to(torch.int64), source.words("rr", 4, clients, width))


def test_noise_can_be_wider_than_a_model():
    rows = Philox(3, 5, torch.float64).rows("M", Gaussian(1.0), 1, torch.arange(4), None, 25)
    assert rows.tensor().shape == (4, 25)
    assert rows.width == 25
