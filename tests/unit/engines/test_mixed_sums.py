"""Mixing and the sum that follows it in one pass: the same bits as one after the other."""

import math

import pytest
import torch

import tacit
from tacit import DSGT, LPPA, Task, Topology
from tacit.core import native
from tacit.core.errors import Diverged
from tacit.engines.lazy_rows import SMALL
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.engines.stacked import StackedNetwork
from tacit.engines.watchdog import Watchdog

pytestmark = pytest.mark.skipif(not native.is_compiled(), reason="there was no C compiler")

CLIENTS = 20
WIDTH = SMALL // CLIENTS + 7


def distance(theta, target):
    return (theta - target).square().sum()


def a_run(algorithm, dtype):
    generator = torch.Generator().manual_seed(0)
    targets = torch.randn(CLIENTS, WIDTH, generator=generator, dtype=dtype)
    task = Task(torch.zeros(WIDTH, dtype=dtype), list(targets), loss=distance)
    return tacit.run(task, algorithm, Topology.ring(CLIENTS).mixing("metropolis"), steps=4)


@pytest.fixture
def calls(monkeypatch):
    made, mix_sum_into = [], StackedNetwork.mix_sum_into

    def counted(network, out, x, terms, bad):
        made.append(len(terms))
        mix_sum_into(network, out, x, terms, bad)

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_rows_that_are_not_finite_are_found_while_mixing(value, dtype):
    begin, source = torch.tensor([0, 3, 6, 7, 7]), torch.tensor([3, 0, 1, 0, 1, 2, 1])
    weight, x = torch.full((7,), 0.5, dtype=dtype), torch.ones(4, 30_001, dtype=dtype)
    x[2, 30_000] = value
    added = torch.ones_like(x)
    added[3, 0] = value
    for terms, expected in (
        ([], [False, True, False, False]),
        ([(1.0, added)], [False, True, False, True]),
        ([(1.0, x), (-1.0, added)], [False, True, True, True]),
    ):
        bad, out = torch.ones(4, dtype=torch.bool), torch.empty_like(x)
        native.mix(begin, source, weight, x, out, slice(0, 4), terms=terms, bad=bad)
        assert bad.tolist() == expected == (~out.isfinite()).any(1).tolist()


def a_simulation(diverges):
    def loss(theta, target):
        value = distance(theta, target)
        return value + 1e30 * theta[0].square() if diverges else value

    targets = [torch.full((WIDTH,), float(client)) for client in range(CLIENTS)]
    task = Task(torch.zeros(WIDTH), targets, loss=loss)
    graph = Topology.ring(CLIENTS).mixing("metropolis")
    return Simulation(Setting(LPPA(lr=0.1), task, graph))


def steps(simulation, count):
    for _ in range(count):
        simulation.step()


def test_what_mixing_found_finite_is_not_read_again(monkeypatch):
    simulation, checked = a_simulation(diverges=False), []
    simulation.start()
    monkeypatch.setattr(Watchdog, "check", lambda _, t, tensors: checked.append((t, *tensors)))
    steps(simulation, 2)
    assert checked == [(1,), (2,)]


def test_divergence_is_found_in_the_same_place(monkeypatch):
    found = []
    for together in (True, False):
        monkeypatch.setattr(StackedNetwork, "mixes_sums", together)
        simulation = a_simulation(diverges=True)
        simulation.start()
        with pytest.raises(Diverged) as error:
            steps(simulation, 5)
        found.append(str(error.value))
    assert found[0] == found[1]


def test_terms_that_do_not_fit_are_refused():
    begin, source, x = torch.tensor([0, 1]), torch.tensor([0]), torch.zeros(1, 4)
    for terms in ([(1.0, torch.zeros(1, 3))], 3 * [(1.0, x)]):
        with pytest.raises(ValueError, match="terms onto"):
            native.mix(begin, source, torch.ones(1), x, torch.zeros(1, 4), slice(0, 1), terms=terms)
