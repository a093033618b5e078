"""Modules as people write them give the same trajectories on every engine and backend."""

from dataclasses import replace

import pytest
import torch
from capturable import capture_on_cpu
from hosting import rows_of, run_apart, run_together
from rank_workers import Workers
from small_modules import CLIENTS, GRAPH, MODULES, SEED, STEPS, module_case

from tacit import Setting, Simulation
from tacit.algorithms.algorithm import tensors_of
from tacit.core import native
from tacit.engines.capture.iteration import CapturedStep, copied_state
from tacit.engines.watchdog import Watchdog

# Backends and engines sum in different orders.
CLOSE = {"rtol": 1e-9, "atol": 1e-9}
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
# Every module with gradients of clients and of samples, every way to communicate with one module.
CASES = [(label, name) for label in ("mix", "total") for name in MODULES]
CASES += [("mix, local steps", "transformer"), ("send", "resnet"), ("average", "encoder layer")]


@pytest.fixture(scope="module", params=CASES, ids=" ".join)
def case(request):
    return request.param


@pytest.fixture(scope="module")
def together(case):
    """The states of all clients in one process, gradients client by client, and the messages."""
    return run_together(*module_case(*case), GRAPH, STEPS, SEED)


def started(case, strategy, **options):
    algorithm, task = module_case(*case)
    setting = Setting(algorithm, task, GRAPH, seed=SEED, gradients=strategy, **options)
    simulation = Simulation(setting)
    simulation.start()
    return simulation


def advanced(simulation, steps=STEPS):
    for _ in range(steps):
        simulation.step()
    return simulation


def assert_close(state, expected):
    rows, expected = tensors_of(state), tensors_of(expected)
    assert rows.keys() == expected.keys()
    for field, others in expected.items():
        torch.testing.assert_close(rows[field], others, **CLOSE)


def test_all_clients_at_once(case, together):
    states, _ = together
    assert_close(advanced(started(case, "stacked")).state, states[-1])
    # The models learn something: otherwise everything would agree.
    assert float((states[-1].theta - states[0].theta).abs().max()) > 1e-4


def test_a_client_apart_from_the_others(case, together):
    """As a node hosts it; its neighbours' messages are replayed."""
    states, recording = together
    client = CLIENTS - 1
    apart = run_apart(*module_case(*case), GRAPH, STEPS, SEED, [client], recording)
    for ours, theirs in zip(apart, states, strict=True):
        for field, rows in rows_of([client], theirs, GRAPH).items():
            torch.testing.assert_close(tensors_of(ours)[field], rows, **CLOSE)


def test_a_captured_iteration(case, together, monkeypatch):
    """As a GPU replays it, here by the CPU."""
    monkeypatch.setattr(native, "_library", lambda: None)
    simulation = advanced(started(case, "stacked"), 1)
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


def test_ranks(ranks, case, together):
    first, _ = ranks.do("follow_module", *case, "stacked")
    for rows, state in zip(first, together[0], strict=True):
        expected = tensors_of(state)
        assert rows.keys() == expected.keys()
        for field, others in expected.items():
            torch.testing.assert_close(torch.from_numpy(rows[field]), others, **CLOSE)


@needs_gpu
def test_a_gpu(case, together):
    simulation = advanced(started(case, "auto", device="cuda"))
    assert simulation.captured, simulation.why_not_captured
    for field, rows in tensors_of(together[0][-1]).items():
        on_cpu = getattr(simulation.state, field).cpu()
        torch.testing.assert_close(on_cpu, rows, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("label", ["mix", "total"])
@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize(
    ("device", "precision", "strategy"),
    [
        ("cpu", "float32", "stacked"),
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
    first, second = states
    assert all(torch.equal(rows, second[field]) for field, rows in first.items())
