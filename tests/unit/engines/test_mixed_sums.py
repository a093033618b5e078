"""Mixing and the sum that follows it in one pass: the same bits as one after the other."""

import pytest
import torch

from tacit import DSGT, LPPA, Task, Topology, simulate
from tacit.core import native
from tacit.engines.lazy_rows import SMALL
from tacit.engines.stacked import StackedNetwork

pytestmark = pytest.mark.skipif(not native.is_compiled(), reason="there was no C compiler")

CLIENTS = 20
WIDTH = SMALL // CLIENTS + 7


def distance(theta, target):
    return (theta - target).square().sum()


def a_run(algorithm, dtype):
    generator = torch.Generator().manual_seed(0)
    targets = torch.randn(CLIENTS, WIDTH, generator=generator, dtype=dtype)
    task = Task.from_loss(distance, list(targets), torch.zeros(WIDTH, dtype=dtype))
    return simulate(algorithm, task, Topology.ring(CLIENTS).mixing("metropolis"), steps=4)


@pytest.fixture
def calls(monkeypatch):
    made, mix_sum_into = [], StackedNetwork.mix_sum_into

    def counted(network, out, x, terms):
        made.append(len(terms))
        mix_sum_into(network, out, x, terms)

    monkeypatch.setattr(StackedNetwork, "mix_sum_into", counted)
    return made


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("algorithm", [LPPA(lr=0.1), LPPA(lr=0.1, fresh=True), DSGT(lr=0.1)])
def test_sums_after_mixing_are_the_same(algorithm, dtype, calls, monkeypatch):
    together = a_run(algorithm, dtype)
    # Model and tracker of each iteration; a sum with masks is computed by itself.
    assert calls == [1, 2] * 4 if not getattr(algorithm, "fresh", False) else [1] * 4
    monkeypatch.setattr(StackedNetwork, "mixes_sums", False)
    apart = a_run(algorithm, dtype)
    assert len(calls) in (4, 8)
    assert torch.equal(together.theta, apart.theta)


@pytest.mark.parametrize("count", [1, 2])
def test_terms(count):
    begin, source = torch.tensor([0, 3, 6, 7, 7]), torch.tensor([3, 0, 1, 0, 1, 2, 1])
    weight, x = torch.rand(7), torch.randn(4, 30_001)
    terms = [(0.3, torch.randn(4, 30_001)), (-0.7, torch.randn(4, 30_001))][:count]
    out, expected = torch.empty_like(x), torch.empty_like(x)
    native.mix(begin, source, weight, x, out, slice(0, 4), terms=terms)
    native.mix(begin, source, weight, x, expected, slice(0, 4))
    second = (0.0, None) if count == 1 else terms[1]
    native.add(expected, *terms[0], *second, slice(0, 4))
    assert torch.equal(out, expected)
    # The sum may replace one of its terms.
    last = terms[-1][1]
    native.mix(begin, source, weight, x, last, slice(0, 4), terms=terms)
    assert torch.equal(last, expected)


def test_terms_that_do_not_fit_are_refused():
    begin, source, x = torch.tensor([0, 1]), torch.tensor([0]), torch.zeros(1, 4)
    for terms in ([(1.0, torch.zeros(1, 3))], 3 * [(1.0, x)]):
        with pytest.raises(ValueError, match="terms onto"):
            native.mix(begin, source, torch.ones(1), x, torch.zeros(1, 4), slice(0, 1), terms=terms)
