import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import stats

from tacit.core.errors import Misuse
from tacit.core.randomness import Philox
from tacit.privacy.keystreams import KeyRing
from tacit.tasks import poisson
from tacit.tasks.parts import Parts
from tacit.tasks.poisson import PoissonSampler

PHILOX = Philox(seed=5, width=1)


def parts_of(sizes, seed=0):
    """Clients of these sizes whose samples lie scattered in the shared array."""
    total = sum(sizes)
    order = torch.randperm(total, generator=torch.Generator().manual_seed(seed))
    return Parts.split((torch.arange(total),), order.split(list(sizes)))


def words(tick=0, randomness=PHILOX):
    return lambda ids, width: randomness.words("sample", tick, ids, width)


def sampler(parts, clients=None):
    ids = torch.arange(parts.clients) if clients is None else torch.tensor(clients)
    return PoissonSampler.of(parts, ids, ids)


def drawn(sample):
    """The samples of each client."""
    return [part.tolist() for part in sample.index.split(sample.counts.tolist())]


def by_definition(parts, client, rate, draw):
    own = parts.order[parts.offsets[client] : parts.offsets[client + 1]]
    word = draw(torch.tensor([client]), len(own))[0]
    return own[word < math.floor(rate * 2**32)].tolist()


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 70), min_size=1, max_size=8),
    rate=st.one_of(st.just(1.0), st.floats(2**-33, 1.0)),
    tick=st.integers(0, 99),
)
def test_a_sample_is_included_if_its_word_is_small(sizes, rate, tick):
    parts = parts_of(sizes)
    found = drawn(sampler(parts).draw(rate, words(tick)))
    assert found == [by_definition(parts, i, rate, words(tick)) for i in range(len(sizes))]
    if rate == 1.0:
        assert [len(one) for one in found] == sizes


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 300), min_size=3, max_size=9),
    hosted=st.data(),
    rate=st.floats(0.05, 1.0),
)
def test_the_samples_of_a_client_do_not_depend_on_who_else_is_hosted(sizes, hosted, rate):
    parts = parts_of(sizes)
    everyone = drawn(sampler(parts).draw(rate, words()))
    some = hosted.draw(st.permutations(range(len(sizes))))[: hosted.draw(st.integers(1, 3))]
    assert drawn(sampler(parts, some).draw(rate, words())) == [everyone[i] for i in some]


def test_a_node_that_holds_its_own_part_only_draws_the_same():
    parts = parts_of([40, 50, 60])
    expected = drawn(sampler(parts).draw(0.3, words()))[2]
    alone = Parts.split(parts.arrays, [parts.order[parts.offsets[2] : parts.offsets[3]]])
    at_home = PoissonSampler.of(alone, torch.tensor([2]), torch.tensor([0]))
    assert drawn(at_home.draw(0.3, words())) == [expected]


def test_secret_keystreams_can_draw_the_samples():
    parts = parts_of([33, 5, 70_000])
    secret = KeyRing.from_seed(3, 1).randomness(1, torch.float32)
    draw = words(4, secret)
    found = drawn(sampler(parts).draw(0.01, draw))
    assert found == [by_definition(parts, i, 0.01, draw) for i in range(3)]


def test_few_words_are_drawn_where_sizes_are_skewed():
    parts = parts_of([1] * 500 + [3] * 200 + [20_000])
    count = 0

    def counted(ids, width):
        nonlocal count
        count += len(ids) * width
        return words()(ids, width)

    sampler(parts).draw(0.1, counted)
    assert count < 2 * 21_100


def test_words_are_drawn_some_clients_at_a_time(monkeypatch):
    parts = parts_of([7, 30, 7, 8, 31, 7])
    whole = drawn(sampler(parts).draw(0.4, words()))
    monkeypatch.setattr(poisson, "TILE", 16)
    assert drawn(sampler(parts).draw(0.4, words())) == whole


def test_nothing_may_be_drawn():
    sample = sampler(parts_of([3, 4])).draw(2**-33, words())
    assert sample.index.tolist() == []
    assert sample.counts.tolist() == [0, 0]
    assert sample.bounds.tolist() == [0, 0, 0]


def test_bounds_separate_the_clients():
    sample = sampler(parts_of([30, 1, 40])).draw(0.5, words(2))
    assert sample.bounds.tolist() == [0, *torch.cumsum(sample.counts, 0).tolist()]


@pytest.mark.parametrize("rate", [0.03, 0.5])
def test_every_sample_is_included_at_the_given_rate_and_independently(rate):
    """Chi-square tests with fixed seeds: of single samples, of pairs, and of the total."""
    sizes, ticks = [5, 12, 33], 1000
    parts = parts_of(sizes)
    draw = sampler(parts)
    included = torch.zeros(ticks, sum(sizes))
    for tick in range(ticks):
        included[tick, draw.draw(rate, words(tick)).index] = 1
    spread = ticks * rate * (1 - rate)
    single = ((included.sum(0) - ticks * rate) ** 2 / spread).sum()
    assert 0.001 < stats.chi2.sf(float(single), sum(sizes)) < 0.999
    centred = (included - rate) / math.sqrt(rate * (1 - rate))
    pairs = (centred.mT @ centred / math.sqrt(ticks)).triu(1)
    number = sum(sizes) * (sum(sizes) - 1) // 2
    assert 0.001 < stats.chi2.sf(float(pairs.square().sum()), number) < 0.999
    later = float((centred[1:] * centred[:-1]).sum() / math.sqrt(centred[1:].numel()))
    assert abs(later) < 4
    observed = torch.bincount(included.sum(1).long(), minlength=sum(sizes) + 1).numpy()
    expected = ticks * stats.binom.pmf(range(sum(sizes) + 1), sum(sizes), rate)
    common = expected > 5
    statistic = ((observed - expected) ** 2 / expected)[common].sum()
    assert 0.001 < stats.chi2.sf(statistic, int(common.sum()) - 1) < 0.999


def test_almost_all_draws_fit_into_the_capacity():
    draw = sampler(parts_of([500] * 4))
    samples = [draw.draw(0.1, words(tick)) for tick in range(300)]
    (capacity,) = {sample.capacity for sample in samples}
    assert capacity == math.ceil(200 + 4 * math.sqrt(2000 * 0.1 * 0.9))
    assert max(len(sample.index) for sample in samples) <= capacity
    assert draw.draw(1.0, words()).capacity == 2000


def test_almost_all_draws_of_one_client_fit_into_its_capacity():
    draw = sampler(parts_of([500, 20, 300]))
    samples = [draw.draw(0.1, words(tick)) for tick in range(300)]
    (capacity,) = {sample.client_capacity for sample in samples}
    assert capacity == math.ceil(50 + 4 * math.sqrt(500 * 0.1 * 0.9))
    assert max(int(sample.counts.max()) for sample in samples) <= capacity


@pytest.mark.parametrize("rate", [0, -0.1, 1.01, math.nan, True, "all"])
def test_a_rate_that_is_no_probability_is_refused(rate):
    with pytest.raises(Misuse, match=r"sampling rate is .*above 0 and at most 1"):
        sampler(parts_of([3])).draw(rate, words())
