import dataclasses
import math
import struct
from importlib.metadata import EntryPoint

import numpy as np
import pytest
import torch

from tacit.compression import (
    CODECS,
    QSGD,
    Identity,
    RandK,
    SignBits,
    check_codec,
    for_signs,
    quantization,
)
from tacit.compression.quantization import euclidean, extremes, pack, packed_size, unpack
from tacit.compression.sign_bits import ExactSignBits
from tacit.compression.subsets import MAX_WIDTH, NARROW, _permuted, random_subset
from tacit.config.algorithms import make_algorithm
from tacit.core.errors import Misuse
from tacit.core.randomness import derive_key, words

ONES = 0xFFFFFFFF
EVERY_CODEC = [
    Identity(),
    SignBits(),
    *(QSGD(bits) for bits in (2, 4, 8, 16)),
    RandK(k=1),
    RandK(fraction=0.3),
    RandK(fraction=1),
    RandK(fraction=0.5, values=SignBits()),
    RandK(fraction=0.5, values=QSGD(4)),
    RandK(fraction=0.7, values=RandK(fraction=0.5, values=QSGD(16))),
]
FLOATS = [torch.float32, torch.float64]
every_codec = pytest.mark.parametrize("codec", EVERY_CODEC, ids=str)
both_floats = pytest.mark.parametrize("dtype", FLOATS, ids=str)


def drawing(source, seed=0, device="cpu"):
    """Words for the message rows `source`, or for that many rows, as the simulator draws them."""
    source = torch.arange(source, device=device) if isinstance(source, int) else source
    return lambda purpose, count: words(
        derive_key(seed, purpose), 3, source, torch.zeros_like(source), range(count)
    )


def never(purpose, count):
    raise AssertionError(f"drew {count} words for {purpose}")


def constant(word, rows=1):
    return lambda purpose, count: torch.full((rows, count), word)


def some_rows(count, width, dtype=torch.float64, seed=0):
    """Rows of many sizes, one of them zero where there are several, one of them of one size."""
    rng = np.random.default_rng((seed, count, width))
    rows = torch.tensor(
        rng.normal(size=(count, width)) * 10.0 ** rng.integers(-6, 6, size=(count, 1))
    )
    if count > 2:
        rows[1] = 0.0
        rows[2] = 0.3 * torch.where(rows[2] < 0, -1.0, 1.0)
    return rows.to(dtype)


def bits_of(tensor):
    return tensor.contiguous().view(torch.uint8)


def same_bits(left, right):
    return left.dtype == right.dtype and torch.equal(bits_of(left), bits_of(right))


# What is on the wire


@every_codec
@both_floats
@pytest.mark.parametrize("count", [1, 6])
def test_the_receiver_decodes_what_the_simulator_says_it_receives(codec, dtype, count):
    for width in (1, 2, 3, 7, 8, 9, 31, 257):
        rows = some_rows(count, width, dtype)
        draw = drawing(count)
        wire = codec.encode(rows, draw)
        assert wire.dtype == torch.uint8
        assert wire.shape == (count, codec.size(width, dtype))
        assert same_bits(codec.decode(wire, width, dtype), codec.received(rows, draw))


@every_codec
@both_floats
def test_a_row_does_not_depend_on_the_rows_beside_it(codec, dtype):
    rows = torch.cat([some_rows(5, 1031, dtype), torch.full((1, 1031), math.inf, dtype=dtype)])
    together, wire = codec.received(rows, drawing(6)), codec.encode(rows, drawing(6))
    for row in range(6):
        alone = drawing(torch.tensor([row]))
        assert same_bits(codec.received(rows[row : row + 1], alone), together[row : row + 1])
        assert torch.equal(codec.encode(rows[row : row + 1], alone), wire[row : row + 1])


@every_codec
@pytest.mark.parametrize("size", [120, 31])
def test_the_workspace_does_not_change_the_bytes(codec, size, monkeypatch):
    rows, draw = some_rows(7, 50), drawing(7)
    whole, received = codec.encode(rows, draw), codec.received(rows, draw)
    monkeypatch.setattr(quantization, "BLOCK", size)
    assert torch.equal(codec.encode(rows, draw), whole)
    assert same_bits(codec.received(rows, draw), received)
    assert same_bits(codec.decode(whole, 50, rows.dtype), received)


@every_codec
@both_floats
def test_no_rows_give_no_messages(codec, dtype):
    none = torch.empty(0, 5, dtype=dtype)
    wire = codec.encode(none, constant(0, rows=0))
    assert wire.shape == (0, codec.size(5, dtype))
    assert codec.decode(wire, 5, dtype).shape == (0, 5)
    assert codec.received(none, constant(0, rows=0)).shape == (0, 5)


@every_codec
def test_rows_and_messages_are_left_alone(codec):
    rows, draw = some_rows(4, 12), drawing(4)
    before, wire = rows.clone(), codec.encode(rows, draw)
    codec.received(rows, draw).fill_(7.0)
    sent = wire.clone()
    codec.decode(wire, 12, torch.float64).fill_(7.0)
    assert torch.equal(rows, before)
    assert torch.equal(wire, sent)


@every_codec
@both_floats
def test_rows_and_messages_may_lie_anywhere_in_memory(codec, dtype):
    rows, draw = some_rows(4, 12, dtype), drawing(4)
    wire = codec.encode(rows, draw)
    assert torch.equal(codec.encode(rows.T.contiguous().T, draw), wire)
    column = rows[:, :1].T.contiguous().T
    assert torch.equal(codec.encode(column, draw), codec.encode(column.clone(), draw))
    buffer = torch.zeros(4, wire.shape[1] + 5, dtype=torch.uint8)
    buffer[:, 3:-2] = wire
    assert same_bits(codec.decode(buffer[:, 3:-2], 12, dtype), codec.decode(wire, 12, dtype))
    assert same_bits(codec.decode(buffer[:1, 3:-2], 12, dtype), codec.decode(wire[:1], 12, dtype))
    again = torch.zeros_like(buffer)
    codec.write(rows, draw, again[:, 3:-2])
    assert torch.equal(again, buffer)


class Plugin:
    """A codec that only has the methods of the protocol."""

    def __init__(self, codec):
        self.codec = codec

    def __getattr__(self, name):
        if name == "write":
            raise AttributeError(name)
        return getattr(self.codec, name)


@pytest.mark.parametrize("values", [Identity(), QSGD(8)], ids=str)
def test_rand_k_contains_messages_of_plugins(values):
    rows, draw = some_rows(3, 40), drawing(3)
    own, plugin = RandK(k=9, values=values), RandK(k=9, values=Plugin(values))
    wire = plugin.encode(rows, draw)
    assert torch.equal(wire, own.encode(rows, draw))
    assert same_bits(plugin.decode(wire, 40, rows.dtype), own.received(rows, draw))


@pytest.mark.parametrize(
    ("codec", "single", "double"),
    [
        (Identity(), 8 + 4 * 1001, 8 + 8 * 1001),
        (SignBits(), 8 + 4 + 126, 8 + 8 + 126),
        (QSGD(2), 8 + 4 + 251, 8 + 8 + 251),
        (QSGD(4), 8 + 4 + 501, 8 + 8 + 501),
        (QSGD(8), 8 + 4 + 1001, 8 + 8 + 1001),
        (QSGD(16), 8 + 4 + 2002, 8 + 8 + 2002),
        (RandK(fraction=0.1), 16 + 8 + 4 * 100, 16 + 8 + 8 * 100),
        (RandK(k=7, values=SignBits()), 16 + 8 + 4 + 1, 16 + 8 + 8 + 1),
    ],
    ids=str,
)
def test_sizes(codec, single, double):
    assert codec.size(1001, torch.float32) == single
    assert codec.size(1001, torch.float64) == double


def test_identity_is_a_header_and_the_numbers():
    rows = torch.tensor([[1.5, -2.0, 3.25]])
    wire = Identity().encode(rows, never)
    assert bytes(wire[0].tolist()) == struct.pack("<BBBBI3f", 1, 0, 1, 1, 3, 1.5, -2.0, 3.25)
    assert bytes(Identity().encode(rows.double(), never)[0].tolist()[:3]) == b"\x01\x00\x02"


def test_sign_bits_are_a_header_a_scale_and_bits():
    rows = 0.5 * torch.tensor([[1.0, -1, 1, 1, -1, -1, -1, 1, 1]])
    wire = SignBits().encode(rows, never)
    # Nine bits in two bytes: even coordinates 1, 1, −, −, 1 in the first, odd ones in the second.
    assert bytes(wire[0].tolist()) == struct.pack("<BBBBIf2B", 4, 0, 1, 1, 9, 0.5, 0b10011, 0b1010)


@pytest.mark.parametrize("bits", [2, 4, 8, 16])
@pytest.mark.parametrize(("number", "column"), [(3.0, 0), (-3.0, 1), (0.0, 2)])
def test_qsgd_is_a_header_a_norm_and_integers(bits, number, column):
    """A row with one number that is not zero is exact, whatever is drawn: that number is ±s."""
    rows = torch.zeros(1, 3, dtype=torch.float64)
    rows[0, column] = number
    levels = [0, 0, 0]
    levels[column] = int(math.copysign(2 ** (bits - 1) - 1, number)) if number else 0
    wire = bytes(QSGD(bits).encode(rows, drawing(1))[0].tolist())
    assert wire[:16] == struct.pack("<BBBBId", 3, bits, 2, 1, 3, abs(number))
    if bits == 16:
        assert wire[16:] == struct.pack("<3h", *levels)
    else:
        assert wire[16:] == planes([level % 2**bits for level in levels], bits)


def planes(fields, bits):
    """The layout by hand: field i is in byte i mod Q, in its ⌊i/Q⌋-th place from below."""
    packed = [0] * packed_size(len(fields), bits)
    for at, value in enumerate(fields):
        packed[at % len(packed)] |= value << at // len(packed) * bits
    return bytes(packed)


def test_rand_k_is_a_header_a_seed_and_the_message_of_its_values():
    rows = torch.arange(10, dtype=torch.float32)[None]
    draw = drawing(1)
    wire = RandK(k=3).encode(rows, draw)
    low, high = draw("subset", 2)[0].tolist()
    columns = random_subset(draw("subset", 2), 10, 3)[0].tolist()
    head = struct.pack("<BBBBIII", 2, 0, 1, 1, 10, low, high)
    assert bytes(wire[0].tolist()) == head + struct.pack("<BBBBI3f", 1, 0, 1, 1, 3, *columns)
    expected = torch.zeros(1, 10)
    expected[0, columns] = torch.tensor(columns) * (10 / 3)
    assert torch.equal(RandK(k=3).received(rows, draw), expected)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("width", [1, 2, 3, 5, 8, 9, 17, 63, 64, 65])
def test_packing_is_undone_by_unpacking(bits, width):
    fields = torch.randint(0, 1 << bits, (3, width), generator=torch.Generator().manual_seed(width))
    fields = fields.to(torch.uint8)
    packed = pack(fields, bits)
    signed = torch.where(fields < 1 << bits - 1, fields.int(), fields.int() - (1 << bits))
    assert torch.equal(unpack(packed.view(torch.int8), bits, width).int(), signed)
    assert packed.shape == (3, packed_size(width, bits))
    assert torch.equal(unpack(packed, bits, width), fields)
    assert bytes(packed[0].tolist()) == planes(fields[0].tolist(), bits)


# What is drawn


def test_only_what_is_needed_is_drawn():
    asked = []

    def recorded(purpose, count):
        asked.append((purpose, count))
        return drawing(2)(purpose, count)

    def asks(codec, rows):
        asked.clear()
        codec.received(rows, recorded)
        simulated = list(asked)
        asked.clear()
        codec.encode(rows, recorded)
        assert asked == simulated
        return simulated

    rows = some_rows(2, 20)
    assert asks(Identity(), rows) == []
    assert asks(QSGD(), rows) == [("levels", 20)]
    assert asks(SignBits(), rows) == [("signs", 20)]
    assert asks(SignBits(), rows.sign()) == []
    assert asks(RandK(k=5), rows) == [("subset", 2)]
    assert asks(RandK(k=5, values=QSGD()), rows) == [("subset", 2), ("values/levels", 5)]
    nested = RandK(k=5, values=RandK(k=2, values=SignBits()))
    assert asks(nested, rows) == [("subset", 2), ("values/subset", 2), ("values/values/signs", 2)]


@both_floats
def test_sign_vectors_arrive_exactly_with_and_without_words(dtype):
    signs = torch.where(some_rows(3, 77, dtype) < 0, -0.7, 0.7).to(dtype)
    assert same_bits(SignBits().received(signs, never), signs)
    beside = torch.cat([signs, some_rows(1, 77, dtype)])  # now words are drawn, for all of them
    for draw in (drawing(4), constant(0, 4), constant(ONES, 4)):
        assert same_bits(SignBits().received(beside, draw)[:3], signs)
    half = RandK(fraction=0.5, values=SignBits()).received(signs, drawing(3))
    assert sorted(half.abs().unique().tolist()) == pytest.approx([0, 0.7 * 77 / 38])


@pytest.mark.parametrize("word", [0, ONES])
@pytest.mark.parametrize("bits", [2, 4, 8, 16])
@both_floats
def test_no_level_is_beyond_the_last(bits, word, dtype):
    """The rounded norm is never smaller than the largest number, even next to tiny ones."""
    rows = torch.full((40, 30), 1e-9, dtype=dtype)
    rows[:, 0] = torch.linspace(0.1, 1.0, 40, dtype=dtype) * torch.tensor([1, -1]).repeat(20)
    out = QSGD(bits).received(rows, constant(word, 40))
    assert bool((euclidean(rows) >= extremes(rows)[1]).all())
    assert bool((out.abs() <= euclidean(rows)).all())
    assert torch.equal(out[:, 0].sign(), rows[:, 0].sign())


def test_rounding_goes_up_or_down_with_the_word():
    rows = torch.tensor([[0.6, -0.8]], dtype=torch.float64)  # norm 1, one level: 0 or ±1
    assert QSGD(2).received(rows, constant(0)).tolist() == [[0.0, -1.0]]
    assert QSGD(2).received(rows, constant(ONES)).tolist() == [[1.0, 0.0]]
    assert SignBits().received(rows, constant(ONES)).tolist() == [[0.8, -0.8]]
    assert SignBits().received(rows, constant(0)).tolist() == [[-0.8, -0.8]]
    at = int((0.6 / 0.8 + 1) / 2 * 2**32)  # where the probability of + ends
    assert SignBits().received(rows, constant(2**32 - at + 1))[0, 0] == 0.8
    assert SignBits().received(rows, constant(2**32 - at - 2))[0, 0] == -0.8


# Rows that are not ordinary


@every_codec
@both_floats
@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zero_arrives_as_zero(codec, dtype, zero):
    rows = torch.full((2, 9), zero, dtype=dtype)
    rows = torch.cat([rows, some_rows(1, 9, dtype)])
    assert not codec.received(rows, drawing(3))[:2].any()
    assert not codec.received(rows[:2], drawing(2)).any()


@pytest.mark.parametrize("codec", [codec for codec in EVERY_CODEC if codec != Identity()], ids=str)
@both_floats
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_row_that_is_not_finite_does_not_arrive_as_finite(codec, dtype, bad):
    rows = some_rows(4, 9, dtype)
    rows[3] = bad
    draw = drawing(4)
    received = codec.received(rows, draw)
    assert not received[3].isfinite().all()
    assert received[:3].isfinite().all()
    assert same_bits(codec.decode(codec.encode(rows, draw), 9, dtype), received)


@pytest.mark.parametrize("codec", [SignBits(), QSGD(4), QSGD(16)], ids=str)
@both_floats
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_number_that_is_not_finite_spoils_all_of_its_row(codec, dtype, bad):
    rows = some_rows(4, 9, dtype)
    rows[3, 5] = bad
    received = codec.received(rows, drawing(4))
    assert received[3].isnan().all()
    assert received[:3].isfinite().all()


@both_floats
def test_identity_and_rand_k_send_numbers_that_are_not_finite_as_they_are(dtype):
    rows = torch.tensor([[math.nan, math.inf, -math.inf, 1.0]], dtype=dtype)
    assert same_bits(Identity().decode(Identity().encode(rows, never), 4, dtype), rows)
    assert same_bits(RandK(k=4).received(rows, drawing(1)), rows)


@every_codec
@both_floats
def test_the_largest_and_the_smallest_numbers_are_as_good_as_others(codec, dtype):
    kind = torch.finfo(dtype)
    rows = some_rows(1, 9, dtype).sign()
    for size in (kind.max / 32, kind.tiny, kind.smallest_normal * 2.0**-10):
        sent = rows * size
        scaled = codec.received(rows, drawing(1)) * size
        torch.testing.assert_close(codec.received(sent, drawing(1)), scaled, rtol=1e-2, atol=0)


def test_a_norm_that_overflows_is_seen():
    rows = torch.full((1, 9), 3e38)
    assert QSGD().received(rows, drawing(1)).isnan().all()
    assert QSGD().received(rows.double(), drawing(1)).isfinite().all()


@both_floats
@pytest.mark.parametrize("width", [1, 2, 3, 1000, 100_003, 300_007])
def test_magnitudes_are_those_of_numpy_and_of_each_row_alone(dtype, width):
    rows = some_rows(5, width, dtype)
    norm = euclidean(rows)
    exact = np.linalg.norm(rows.double().numpy(), axis=1, keepdims=True)
    np.testing.assert_allclose(norm.numpy(), exact, rtol=1e-6 if dtype == torch.float32 else 1e-14)
    assert torch.equal(extremes(rows)[1], rows.abs().max(dim=1, keepdim=True).values)
    for row in range(5):
        assert same_bits(euclidean(rows[row : row + 1]), norm[row : row + 1])


# The random subset


WIDTHS_OF_SUBSETS = [
    (2, 1),
    (100, 30),
    (255, 254),
    (256, 1),
    (256, 128),
    (257, 129),
    (1000, 999),
    (65_537, 9000),
]


@pytest.mark.parametrize(("width", "k"), WIDTHS_OF_SUBSETS)
def test_a_subset_has_k_different_columns(width, k):
    seeds = torch.tensor([[0, 0], [1, 0], [0, 1], [ONES, ONES], [ONES, 0]])
    columns = random_subset(seeds, width, k)
    assert columns.shape == (5, k)
    assert columns.dtype == torch.int64
    in_order = columns.sort(dim=1).values
    assert bool((in_order.diff(dim=1) > 0).all())
    assert columns.min() >= 0
    assert columns.max() < width
    if width < NARROW or 2 * k > width:
        assert torch.equal(columns, in_order)
    assert torch.equal(random_subset(seeds[3:4], width, k), columns[3:4])


@pytest.mark.parametrize(("width", "k"), [(100, 30), (1000, 300), (1000, 700), (MAX_WIDTH, 1000)])
def test_a_subset_depends_on_the_whole_seed(width, k):
    seeds = torch.tensor(
        [[0, 0], [1, 0], [0, 1], [ONES, ONES], [ONES, 0], [1 << 31, 0], [0, 1 << 31]]
    )
    assert len({tuple(sorted(row)) for row in random_subset(seeds, width, k).tolist()}) == len(
        seeds
    )


def test_a_subset_of_all_columns_is_all_of_them():
    for width in (1, 6, 1000):
        assert torch.equal(
            random_subset(torch.zeros(5, 2, dtype=torch.int64), width, width)[4],
            torch.arange(width),
        )


@pytest.mark.parametrize(
    "width", [1, 2, 3, 5, 6, 7, 16, 17, 255, 256, 257, 1000, 1024, 1025, 100_003]
)
def test_every_seed_permutes_the_columns(width):
    """From the smallest to one where b·2^s is far from the width: all columns, each once."""
    seeds = torch.tensor([[0, 0], [123, 456], [ONES, ONES]])
    assert torch.equal(
        _permuted(seeds, width, width).sort(dim=1).values, torch.arange(width).expand(3, -1)
    )


@pytest.mark.parametrize("width", [MAX_WIDTH, MAX_WIDTH - 1, (1 << 30) + 1])
def test_the_widest_rows_have_columns_everywhere(width):
    columns = _permuted(torch.tensor([[1, 2]]), width, 100_000)[0]
    assert len(columns.unique()) == 100_000
    assert int(columns.min()) >= 0
    assert width - 1_000_000 < int(columns.max()) < width
    assert abs(float(columns.double().mean()) / width - 0.5) < 6 / math.sqrt(12 * 100_000)


@pytest.mark.parametrize(("width", "k"), [(1000, 300), (1000, 700)])
def test_the_workspace_does_not_change_the_subset(width, k, monkeypatch):
    seeds = torch.arange(14).view(7, 2)
    whole = random_subset(seeds, width, k)
    monkeypatch.setattr(quantization, "BLOCK", 120)
    assert torch.equal(random_subset(seeds, width, k), whole)


def test_a_subset_of_few_columns_has_the_smallest_words():
    seed = torch.tensor([[123456, 789]])
    drawn = words(derive_key("rand-k"), 0, seed[:, 0], seed[:, 1], range(50))[0]
    expected = drawn.argsort(stable=True)[:20].sort().values
    assert torch.equal(random_subset(seed, 50, 20)[0], expected)


def test_equal_words_are_told_apart_by_their_columns(monkeypatch):
    monkeypatch.setattr(
        "tacit.compression.subsets.words", lambda *address: torch.full((2, 7), ONES)
    )
    assert random_subset(torch.zeros(2, 2, dtype=torch.int64), 7, 3).tolist() == [[0, 1, 2]] * 2


@pytest.mark.parametrize(
    ("fraction", "width", "k"), [(0.1, 100, 10), (0.001, 100, 1), (1, 7, 7), (0.25, 10, 2)]
)
def test_a_fraction_is_at_least_one_number(fraction, width, k):
    assert RandK(fraction=fraction).kept(width) == k
    received = RandK(fraction=fraction).received(torch.ones(1, width), drawing(1))
    assert int(received.count_nonzero()) == k


# Bounds and choices


def test_variance_bounds():
    assert Identity().variance_bound(100) == 0
    assert SignBits().variance_bound(100) == 99
    assert QSGD(4).variance_bound(16) == pytest.approx(16 / 49)
    assert QSGD(4).variance_bound(10_000) == pytest.approx(100 / 7)
    assert RandK(k=5).variance_bound(20) == pytest.approx(3)
    assert RandK(k=5, values=SignBits()).variance_bound(20) == pytest.approx(4 * 5 - 1)
    assert RandK(k=5, values=QSGD(8)).variance_bound(20) == pytest.approx(4 * (1 + 5 / 127**2) - 1)


def test_codecs_for_sign_vectors():
    assert for_signs(Identity()) == ExactSignBits()
    assert for_signs(RandK(k=3)) == RandK(k=3, values=ExactSignBits())
    assert for_signs(RandK(fraction=0.5, values=RandK(k=1))) == RandK(
        fraction=0.5, values=RandK(k=1, values=ExactSignBits())
    )
    for codec in (QSGD(8), SignBits(), RandK(k=3, values=QSGD(2))):
        assert for_signs(codec) == codec


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_of_one_size_travel_as_other_signs_do(dtype):
    rows = torch.tensor(
        [[1.5, -1.5, -1.5, 1.5, 1.5], [0.0, -0.0, 0.0, 0.0, -0.0], [2.0, math.nan, -2.0, 2.0, 2.0]]
    )
    rows = rows.to(dtype)

    def draw(purpose, count):
        return torch.full((len(rows), count), 7)

    known, looked = ExactSignBits(), SignBits()
    received = known.received(rows, draw)
    assert torch.equal(received.nan_to_num(9.0), looked.received(rows, draw).nan_to_num(9.0))
    assert not received[1].signbit().any()
    arrived = looked.decode(known.encode(rows, draw), 5, dtype)
    assert torch.equal(arrived.nan_to_num(9.0), received.nan_to_num(9.0))
    assert received[2].isnan().all()


def test_sign_vectors_cost_a_bit_per_number():
    assert SignBits().size(1_000_000, torch.float32) <= 1_000_000 / 8 + 64
    assert for_signs(RandK(fraction=0.1)).size(1_000_000, torch.float32) <= 100_000 / 8 + 64


def test_a_package_can_register_a_codec(monkeypatch):
    """The registered class is usable by its name in a configuration."""
    monkeypatch.setattr(
        "tacit.core.plugins.entry_points",
        lambda group: [EntryPoint("coarse", "tacit.compression.qsgd:QSGD", group)],
    )
    monkeypatch.setitem(CODECS.__dict__, "_plugins", None)
    del CODECS._plugins
    options = {"lr": 0.1, "codec": {"codec": "coarse", "bits": 2}}
    assert make_algorithm("defl-vp", options, round_length=1, steps=1).codec == QSGD(bits=2)
    assert [*CODECS] == ["identity", "rand-k", "qsgd", "sign", "coarse"]


def test_every_codec_is_registered_frozen_and_can_be_compared():
    assert {"identity": Identity, "rand-k": RandK, "qsgd": QSGD, "sign": SignBits} == CODECS
    for codec in EVERY_CODEC:
        assert codec == dataclasses.replace(codec)
        assert hash(codec) == hash(dataclasses.replace(codec))
        with pytest.raises(dataclasses.FrozenInstanceError):
            codec.k = 3


# Errors


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "neither of fraction and k"),
        ({"fraction": 0.5, "k": 3}, "both of fraction and k"),
        *(
            ({"fraction": bad}, "fraction of RandK is")
            for bad in (0, -0.1, 1.01, math.nan, "0.5", True)
        ),
        *(({"k": bad}, "k of RandK is") for bad in (0, -1, 2.0, "3", True)),
        *(({"k": 1, "values": bad}, "`values` of RandK is") for bad in ("qsgd", None, Identity, 8)),
    ],
)
def test_rand_k_refuses_bad_settings(arguments, says):
    with pytest.raises(Misuse, match=says):
        RandK(**arguments)


@pytest.mark.parametrize("bits", [0, 1, 3, 32, -4, True, "4", None])
def test_qsgd_refuses_bad_bits(bits):
    with pytest.raises(Misuse, match=r"bits of QSGD are .*2, 4, 8 or 16"):
        QSGD(bits)


def test_k_beyond_the_width_is_refused_wherever_it_is_met():
    rows, codec = torch.ones(1, 4), RandK(k=5)
    for refused in (
        lambda: codec.check_width(4),
        lambda: codec.size(4, torch.float32),
        lambda: codec.variance_bound(4),
        lambda: codec.received(rows, drawing(1)),
        lambda: codec.encode(rows, drawing(1)),
        lambda: codec.decode(torch.zeros(1, 30, dtype=torch.uint8), 4, torch.float32),
        lambda: RandK(fraction=1, values=codec).check_width(4),
    ):
        with pytest.raises(Misuse, match=r"k = 5 of rows with 4 numbers.*k up to 4"):
            refused()
    codec.check_width(5)


@every_codec
def test_rows_that_cannot_be_encoded_are_refused(codec):
    for dtype in (torch.int64, torch.bool, torch.float16, torch.complex64):
        with pytest.raises(Misuse, match="convert them"):
            codec.encode(torch.ones(2, 3, dtype=dtype), drawing(2))
        with pytest.raises(Misuse, match="convert them"):
            codec.received(torch.ones(2, 3, dtype=dtype), drawing(2))
    with pytest.raises(Misuse, match="one message per row"):
        codec.encode(torch.ones(3), drawing(1))
    for width in (0, 1 << 32):
        with pytest.raises(Misuse, match=f"have {width} numbers"):
            codec.check_width(width)
    with pytest.raises(Misuse, match="have 0 numbers"):
        codec.received(torch.ones(2, 0), drawing(2))


def test_what_is_no_codec_is_refused():
    for wrong in ("identity", QSGD, 4, None):
        with pytest.raises(Misuse, match=r"codec is .*Give a codec"):
            check_codec(wrong)
    check_codec(QSGD())


def corrupted(wire, at, value):
    wire = wire.clone()
    wire[1, at] = value
    return wire


WIRE = QSGD(4).encode(some_rows(2, 20), drawing(2))


@pytest.mark.parametrize(
    ("codec", "wire", "width", "dtype", "says"),
    [
        (Identity(), WIRE, 20, torch.float64, "Message 0 is of codec qsgd, not identity"),
        (QSGD(8), WIRE, 20, torch.float64, "Message 0 has the parameter 4, not 8"),
        (QSGD(4), WIRE, 20, torch.float32, "Message 0 carries torch.float64, not torch.float32"),
        (QSGD(4), WIRE, 21, torch.float64, "Message 0 carries 20 numbers, not 21"),
        (QSGD(4), corrupted(WIRE, 0, 99), 20, torch.float64, "Message 1 is of codec 99, not qsgd"),
        (
            QSGD(4),
            corrupted(WIRE, 2, 7),
            20,
            torch.float64,
            "Message 1 carries numbers of kind 7, not",
        ),
        (
            QSGD(4),
            corrupted(WIRE, 3, 2),
            20,
            torch.float64,
            "Message 1 has format 2, where this .* format 1",
        ),
        (QSGD(4), WIRE[:, :-1], 20, torch.float64, "have 25 bytes, where qsgd has 26"),
        (QSGD(4), WIRE.repeat(1, 2), 20, torch.float64, "have 52 bytes, where qsgd has 26"),
        (QSGD(4), WIRE[:, :5], 20, torch.float64, "have 5 bytes, less than a header"),
        (QSGD(4), WIRE[0], 20, torch.float64, "one message per row"),
        (QSGD(4), WIRE.to(torch.int32), 20, torch.float64, "matrix of torch.uint8"),
        (QSGD(4), WIRE, 20, torch.int64, "convert them"),
    ],
)
def test_bytes_of_another_codec_are_refused(codec, wire, width, dtype, says):
    with pytest.raises(Misuse, match=says):
        codec.decode(wire, width, dtype)


@every_codec
def test_every_other_codecs_bytes_are_refused(codec):
    for other in EVERY_CODEC:
        wire = other.encode(some_rows(2, 20), drawing(2))
        if other != codec:
            with pytest.raises(Misuse):
                codec.decode(wire, 20, torch.float64)


# Devices


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@both_floats
def test_the_gpu_sends_the_same_bytes(dtype):
    rows = torch.cat([some_rows(5, 1031, dtype), torch.full((1, 1031), math.nan, dtype=dtype)])
    for codec in EVERY_CODEC:
        here, there = drawing(6), drawing(6, device="cuda")
        wire = codec.encode(rows.cuda(), there)
        assert torch.equal(wire.cpu(), codec.encode(rows, here)), codec
        received = codec.received(rows.cuda(), there)
        assert same_bits(codec.decode(wire, 1031, dtype), received), codec
        torch.testing.assert_close(
            received.cpu(), codec.received(rows, here), rtol=0, atol=0, equal_nan=True
        )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("width", "k"), WIDTHS_OF_SUBSETS)
def test_the_gpu_chooses_the_same_subset(width, k):
    seeds = torch.arange(14).view(7, 2)
    assert torch.equal(random_subset(seeds.cuda(), width, k).cpu(), random_subset(seeds, width, k))
