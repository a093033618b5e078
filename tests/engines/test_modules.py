"""Modules as people write them give the same trajectories on every engine and backend."""

from dataclasses import replace

import pytest
import torch
from capturable import capture_on_cpu
from hosting import rows_of, run_apart, run_together
from rank_workers import Workers
from small_modules import ALGORITHMS, CLIENTS, GRAPH, MODULES, SEED, STEPS, module_case

from tacit import Setting, Simulation
from tacit.algorithms.algorithm import tensors_of
from tacit.core import native
from tacit.engines.capture.iteration import CapturedStep, copied_state
from tacit.engines.gradients.client_passes import PASSES
from tacit.engines.watchdog import Watchdog

# Backends and engines sum in different orders.
CLOSE = {"rtol": 1e-9, "atol": 1e-9}
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


@pytest.fixture(scope="module", params=MODULES)
def name(request):
    return request.param


@pytest.fixture(scope="module", params=ALGORITHMS)
def label(request):
    return request.param


@pytest.fixture(scope="module")
def together(label, name):
    """The states of all clients in one process, gradients client by client, and the messages."""
    return run_together(*module_case(label, name), GRAPH, STEPS, SEED)


def started(label, name, strategy):
    algorithm, task = module_case(label, name)
    simulation = Simulation(Setting(algorithm, task, GRAPH, seed=SEED, gradients=strategy))
    simulation.start()
    return simulation


def advanced(simulation, steps=STEPS):
    for _ in range(steps):
        simulation.step()
    return simulation


def assert_close(found, expected):
    found, expected = tensors_of(found), tensors_of(expected)
    assert found.keys() == expected.keys()
    for field, rows in expected.items():
        torch.testing.assert_close(found[field], rows, **CLOSE)


@pytest.mark.parametrize("strategy", [one for one in PASSES if one != "looped"])
def test_every_backend(label, name, strategy, together):
    states, _ = together
    assert_close(advanced(started(label, name, strategy)).state, states[-1])
    # The models learn something: otherwise everything would agree.
    assert float((states[-1].theta - states[0].theta).abs().max()) > 1e-4


def test_a_client_apart_from_the_others(label, name, together):
    """As a node hosts it; its neighbours' messages are replayed."""
    states, recording = together
    client = CLIENTS - 1
    found = run_apart(*module_case(label, name), GRAPH, STEPS, SEED, [client], recording)
    for ours, theirs in zip(found, states, strict=True):
        for field, rows in rows_of([client], theirs, GRAPH).items():
            torch.testing.assert_close(tensors_of(ours)[field], rows, **CLOSE)


def test_a_captured_iteration(label, name, together, monkeypatch):
    """As a GPU replays it, here by the CPU."""
    monkeypatch.setattr(native, "_library", lambda: None)
    simulation = advanced(started(label, name, "stacked"), 1)
    state = [copied_state(simulation.state)]
    replayed = CapturedStep(simulation.algorithm, simulation.here, state.pop(), Watchdog())
    capture_on_cpu(replayed)
    for t in range(1, STEPS):
        replayed.replay(t)
    assert_close(replayed.state, together[0][-1])


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    workers = Workers(2, tmp_path_factory.mktemp("ranks") / "store")
    yield workers
    workers.close()


@pytest.mark.parametrize("strategy", ["looped", "stacked"])
def test_ranks(ranks, label, name, strategy, together):
    first, _ = ranks.do("follow_module", label, name, strategy)
    for found, state in zip(first, together[0], strict=True):
        expected = tensors_of(state)
        assert found.keys() == expected.keys()
        for field, rows in expected.items():
            torch.testing.assert_close(torch.from_numpy(found[field]), rows, **CLOSE)


@needs_gpu
def test_a_gpu(label, name, together):
    algorithm, task = module_case(label, name)
    simulation = Simulation(Setting(algorithm, task, GRAPH, seed=SEED, device="cuda"))
    simulation.start()
    advanced(simulation)
    assert simulation.captured, simulation.why_not_captured
    for field, rows in tensors_of(together[0][-1]).items():
        found = getattr(simulation.state, field).cpu()
        torch.testing.assert_close(found, rows, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("label", ["mix", "total"], indirect=True)
@pytest.mark.parametrize(
    ("device", "precision", "strategy"),
    [
        ("cpu", "float32", "stacked"),
        ("cpu", "float32", "looped"),
        ("cpu", "bf16", "stacked"),
        *(
            pytest.param("cuda", precision, strategy, marks=needs_gpu)
            for precision in ("float32", "tf32", "bf16")
            for strategy in ("stacked", "looped")
        ),
    ],
)
def test_the_same_bits_twice(label, name, device, precision, strategy):
    """Gradients of clients, and clipped sums of gradients of single samples."""
    states = []
    for _ in range(2):
        algorithm, task = module_case(label, name, torch.float32)
        setting = Setting(algorithm, task, GRAPH, seed=SEED, gradients=strategy, device=device)
        simulation = Simulation(replace(setting, precision=precision))
        simulation.start()
        states.append(tensors_of(advanced(simulation).state))
    one, two = states
    assert all(torch.equal(rows, two[field]) for field, rows in one.items())
