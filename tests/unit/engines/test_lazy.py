"""Lazy rows give the numbers of plain tensors, and leave memory alone that others can see."""

import copy
import threading
import weakref
from dataclasses import dataclass, fields, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from tacit import Laplace, Setting, Simulation, Task, Topology, quadratic
from tacit.algorithms.algorithm import Algorithm, tensors_of
from tacit.core.errors import Misuse
from tacit.core.hosted_clients import HostedClients
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.rows import is_shared, shared
from tacit.engines import lazy_rows
from tacit.engines.buffers import Buffers
from tacit.engines.execution import Execution

N, P, LOCAL, STEPS = 6, 3, 3, 3
LARGE = lazy_rows.SMALL // N + 1  # parameters with which sums are computed by compiled loops
LAW = Laplace(0.1)


@dataclass(frozen=True)
class State:
    theta: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor


class Written(Algorithm):
    """An algorithm from functions."""

    name = "written"
    requires = ()

    def __init__(self, step, start=None):
        self._step, self._start = step, start

    @property
    def gradients_per_step(self):
        return LOCAL

    def start(self, here) -> State:
        if self._start is not None:
            return self._start(here)
        return State(here.theta0, here.grad(here.theta0), here.theta0)

    def step(self, s, here):
        return self._step(s, here)


def simulation(algorithm, width=P, dtype=torch.float64, task=None, gradients="stacked"):
    if task is None:
        rng = torch.Generator().manual_seed(3)
        half = torch.rand(N, 1, 1, generator=rng, dtype=dtype)
        b, theta0 = torch.randn(2, N, width, generator=rng, dtype=dtype)
        if width > P:
            parts = [(half[i, 0], b[i]) for i in range(N)]
            loss = lambda theta, h, b: (h * (theta * theta) / 2 - b * theta).sum()  # noqa: E731
            task = Task(theta0, parts, loss=loss)
        else:
            task = quadratic(half * torch.eye(width, dtype=dtype), b, theta0=theta0)
    graph = Topology.ring(N).mixing("metropolis", lazy=True)
    return Simulation(Setting(algorithm, task, graph, seed=1, gradients=gradients))


def plain(here):
    """The same clients without laziness."""
    graph = {one.name: getattr(here.graph, one.name) for one in fields(Neighbourhood)}
    net, parts = here.net.network, (here.objective, here.randomness, here.gradients_per_step)
    return HostedClients(Neighbourhood(**graph), net, *parts)


def plain_states(algorithm, here, steps=STEPS):
    states = [algorithm.start(here)]
    for t in range(steps):
        states.append(algorithm.step(states[-1], here.at(t)))
    return states


def lazy_states(algorithm, run, steps=STEPS, keep=()):
    """Copies of the states; those of the iterations in `keep` are kept and must not change."""
    execution = Execution(algorithm, run.here, run.device, run._watchdog, capture=False)
    execution.start()
    states, kept = [], []
    for t in range(steps + 1):
        state = execution.state
        states.append(State(**{name: rows.clone() for name, rows in tensors_of(state).items()}))
        if t in keep:
            kept.append((state, states[-1]))
        del state
        if t < steps:
            execution.step()
    run._watchdog.clear()
    for state, before in kept:
        assert_equal(state, before)
    return states


def assert_equal(one, other):
    for x, y in zip(tensors_of(one).values(), tensors_of(other).values(), strict=True):
        assert torch.equal(x, y)


def assert_close(one, other, scale=1.0, tolerance=1e-12):
    for x, y in zip(tensors_of(one).values(), tensors_of(other).values(), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        torch.testing.assert_close(x, y, rtol=tolerance, atol=tolerance * scale)


def assert_same_numbers(step, start=None, **options):
    algorithm = Written(step, start)
    run = simulation(algorithm, **options)
    tolerance = 1e-5 if options.get("dtype") == torch.float32 else 1e-12
    expected = plain_states(algorithm, plain(run.here))
    for one, other in zip(lazy_states(algorithm, run), expected, strict=True):
        assert_close(one, other, tolerance=tolerance)


def net_noise(here):
    return here.graph.net_out(*here.edge_noise("delta", LAW))


def product(x, y):
    return torch.tanh(x) * torch.tanh(y)


class Program:
    """A random step: instructions that each append to a list of values, which starts with s."""

    def __init__(self, instructions, results):
        self.instructions, self.results = instructions, results
        self.kept = []
        self.scale = 1.0  # of the largest number seen

    def __repr__(self):
        return f"Program({self.instructions}, {self.results})"

    def __call__(self, s, here):
        values = [s.theta, s.a, s.b]
        for kind, i, j, c in self.instructions:
            x, y = values[i % len(values)], values[j % len(values)]
            values += self._computed(kind, x, y, c, i, here)
            if isinstance(values[-1], torch.Tensor):
                self.scale = max(self.scale, float(values[-1].abs().max()))
        return State(*(values[i % len(values)] for i in self.results))

    def _computed(self, kind, x, y, c, i, here):
        match kind:
            case "add":
                return [x + y]
            case "subtract":
                return [x - y]
            case "combine":
                return [c * x - y * (1 - c)]
            case "scale":
                return [c * x]
            case "scale by a tensor":
                return [torch.tensor(c, dtype=torch.float64) * x]
            case "scale by a number of numpy":
                return [np.float64(c) * x]
            case "negate":
                return [-x / 2]
            case "mix":
                return list(here.net.mix(x=x, y=y))
            case "grad":
                return [here.grad(x, i % LOCAL)]
            case "net_out":
                return [net_noise(here)]
            case "noise":
                return [here.noise("own", LAW)]
            case "edges":
                sent = c * here.graph.lift(x)
                received = here.net.send("edges", sent)
                return [here.graph.net_out(sent, received)]
            case "value":
                return [x[:]]
            case "halves":
                return [torch.cat([x[: N // 2], y[N // 2 :]])]
            case "share":
                return [shared(x[i % N][None], N)]
            case "tanh":
                return [here.nonlinear("tanh", torch.tanh, x, deterministic=True)]
            case "product":
                return [here.nonlinear("product", product, x, y, deterministic=True)]
            case "keep":
                self.kept.append(x)
                return [self.kept[i % len(self.kept)]]
        raise AssertionError(kind)


KINDS = [
    *("add", "subtract", "combine", "scale", "scale by a tensor", "scale by a number of numpy"),
    *("negate", "mix", "grad", "net_out", "noise", "edges", "value", "halves", "keep"),
    *("share", "share", "tanh", "product"),
]
places = st.integers(0, 30)
coefficients = st.sampled_from([0.0, 1.0, -1.0, 0.5, 0.3, -0.7])
instructions = st.tuples(st.sampled_from(KINDS), places, places, coefficients)
programs = st.tuples(st.lists(instructions, max_size=12), st.tuples(*[st.integers(-6, 30)] * 3))
SIMULATIONS = {}


def shared_simulation(width):
    if width not in SIMULATIONS:
        SIMULATIONS[width] = simulation(Written(None), width)
    return SIMULATIONS[width]


@settings(max_examples=50, deadline=None)
@given(programs, st.sets(st.integers(0, STEPS)))
def test_linear_programs_give_the_numbers_of_plain_tensors(program, keep):
    run = shared_simulation(P)
    slow, fast = Program(*program), Program(*program)
    expected = plain_states(Written(slow), plain(run.here))
    for one, other in zip(lazy_states(Written(fast), run, keep=keep), expected, strict=True):
        assert_close(one, other, slow.scale)


@pytest.mark.parametrize("width", [P, LARGE])
@settings(max_examples=15, deadline=None)
@given(program=programs, keep=st.sets(st.integers(0, STEPS)))
def test_reference_counts_change_no_bits(width, program, keep):
    run = shared_simulation(width)
    reused = lazy_states(Written(Program(*program)), run)
    watched = lazy_states(Written(Program(*program)), run, keep=keep)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lazy_rows, "is_only_in", lambda rows: False)
        patch.setattr(lazy_rows, "is_only_reference", lambda *parts: False)
        fresh = lazy_states(Written(Program(*program)), run)
    for one, two, three in zip(reused, watched, fresh, strict=True):
        assert_equal(one, two)
        assert_equal(one, three)


@pytest.mark.parametrize("gradients", ["looped", "stacked"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [P, LARGE])
def test_types_sizes_and_backends(gradients, dtype, width):
    def step(s, here):
        x, y = here.net.mix(x=s.theta, y=s.a)
        x = x - 0.1 * y + net_noise(here)
        gradient = here.grad(x)
        return State(x, y + gradient - s.b, gradient)

    assert_same_numbers(step, dtype=dtype, width=width, gradients=gradients)


@pytest.mark.parametrize(
    "step",
    {
        "rotation": lambda s, here: State(s.a - 0.1 * s.b, s.theta, s.a),
        "equal": lambda s, here: State((s.theta == s.b) * s.a + s.b, s.a, s.theta),
        "unequal": lambda s, here: State((s.theta != s.b) * s.a + s.b, s.a, s.theta),
        "greater": lambda s, here: State(torch.where(s.theta > 0, s.a, s.b), s.a, s.b),
        "power": lambda s, here: State((0.1 * s.theta) ** 2, s.a, abs(s.b)),
        "reciprocal": lambda s, here: State(1 / (s.theta + 50), s.a, s.b),
        "a list": lambda s, here: State(torch.stack([s.theta, s.a]).mean(0), s.a, s.b),
        "a tuple": lambda s, here: State(torch.cat((s.theta, 2 * s.a))[N:], s.a, s.b),
        "by name": lambda s, here: State(torch.sub(s.theta, other=0.1 * s.a), s.a, s.b),
        "numbers of numpy": lambda s, here: State(np.sqrt(0.5) * s.theta, s.a, s.b),
        "more precision": lambda s, here: State(here.theta0.float() + 0.3 * s.theta, s.a, s.b),
        "less precision": lambda s, here: State(s.theta + 0.3 * here.theta0.float(), s.a, s.b),
        "the rows": lambda s, here: State(torch.stack(list(s.theta * 0.5)), s.a, s.b),
    }.items(),
    ids=lambda item: item[0],
)
def test_operations_of_tensors(step):
    assert_same_numbers(step[1])


# --- rows that are one row in memory ---


def own_row(row):
    """Equal rows, each in memory of its own."""
    return row.repeat(N, 1)


def expanded(row):
    return shared(row, N)


@pytest.mark.parametrize("width", [P, lazy_rows.SMALL + 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shared_rows_give_the_bits_of_rows_of_their_own_and_stay_shared(width, dtype):
    def step_of(rows):
        def step(s, here):
            draw = torch.Generator().manual_seed(here.t)
            drawn = torch.randn(2, 1, width, generator=draw, dtype=dtype)
            x, y = (lazy_rows.Known(rows(row), here.workspace) for row in drawn)
            theta = s.theta - 0.3 * x + 0.7 * s.a - y
            square = here.nonlinear("square", torch.square, theta, deterministic=True)
            return State(theta, 0.9 * s.a + 0.1 * square, -s.b + 2 * s.b)

        return step

    def start_of(rows):
        def start(here):
            row = torch.linspace(-1, 1, width, dtype=dtype)[None]
            return State(rows(row), rows(2 * row), rows(row - 1))

        return start

    one, dense = (
        lazy_run(Written(step_of(rows), start_of(rows)), width, dtype)
        for rows in (expanded, own_row)
    )
    assert_equal(one, dense)
    for name, rows in tensors_of(one).items():
        assert is_shared(rows), name
    assert not any(map(is_shared, tensors_of(dense).values()))


def lazy_run(algorithm, width, dtype, steps=STEPS):
    """The last state, not copied."""
    run = simulation(algorithm, width, dtype)
    execution = Execution(algorithm, run.here, run.device, run._watchdog, capture=False)
    execution.start()
    for _ in range(steps):
        execution.step()
    return execution.state


def test_shared_rows_plus_others_are_rows_of_their_own():
    def step(s, here):
        row = shared(s.theta[2][None], N)
        return State(row + s.a, s.b - row, row)

    def start(here):
        return State(here.theta0, 0.1 * here.theta0, here.theta0)

    state = lazy_run(Written(step, start), P, torch.float64, steps=1)
    assert [is_shared(rows) for rows in tensors_of(state).values()] == [False, False, True]
    assert_same_numbers(step, start)


def test_a_recorded_step_sees_every_row():
    """A transcript keeps the result of each client, so it is computed for each."""
    seen = []

    def step(s, here):
        return State(here.nonlinear("tanh", torch.tanh, s.theta, deterministic=True), s.a, s.b)

    def start(here):
        return State(shared(here.theta0[:1], N), here.theta0, here.theta0)

    def apply(declared, *rows):
        seen.append([len(one) for one in rows])
        return declared.function(*rows)

    run = simulation(Written(step, start))
    plain = lazy_states(Written(step, start), run, steps=1)
    run.here = replace(run.here, apply=apply)
    recorded = lazy_states(Written(step, start), run, steps=1)
    assert seen == [[N]]
    assert_equal(plain[-1], recorded[-1])


def test_a_condition_on_rows_is_refused_as_on_tensors():
    run = simulation(Written(lambda s, here: s.theta and s))
    run.start()
    with pytest.raises(RuntimeError, match="ambiguous"):
        run.step()


def test_many_local_steps():
    def step(s, here):
        theta = total = s.theta
        for k in range(100):
            theta = theta - 0.001 * here.grad(theta, k % LOCAL)
            total = 0.001 * theta - total
        return State(theta, total, s.b)

    assert_same_numbers(step)


def test_a_tensor_changed_in_place_after_use_is_an_error():
    def step(s, here):
        noise = here.noise("own", LAW)
        theta = s.theta + noise
        noise *= -1
        return State(theta, noise, s.b)

    run = simulation(Written(step))
    run.start()
    first = run.checkpoint("mark")
    before = first.state.theta.clone()
    with pytest.raises(Misuse, match="written into"):
        run.step()
    run.restore(replace(first, state=State(before, before, before)))
    assert torch.equal(run.state.theta, before)


def test_edges_changed_in_place_after_use_are_an_error():
    def step(s, here):
        sent = here.graph.lift(s.theta)
        total = here.graph.net_out(sent, here.net.send("edges", sent).tensor())
        sent *= 2
        return State(s.theta + total, s.a, s.b)

    run = simulation(Written(step))
    run.start()
    with pytest.raises(Misuse, match="written into"):
        run.step()


def test_writing_into_rows_is_refused():
    def step(s, here):
        (theta,) = here.net.mix(theta=s.theta)
        gradient = here.grad(theta)
        theta.mul_(0.5)  # The gradient has not been computed yet.
        return State(theta, gradient, s.b)

    run = simulation(Written(step))
    run.start()
    with pytest.raises(Misuse, match="mul_ would write"):
        run.step()


@pytest.mark.parametrize(
    ("factor", "size", "dtype"),
    [
        (1e200, 1e-300, torch.float64),
        (1e-200, 1e300, torch.float64),
        (1e30, 1e-35, torch.float32),
        (1e-30, 1e35, torch.float32),
    ],
)
def test_factors_whose_product_is_out_of_range(factor, size, dtype):
    rows = torch.full((N, P), size, dtype=dtype)
    scaled = factor * (factor * lazy_rows.Known(rows, lazy_rows.Workspace()))
    torch.testing.assert_close(scaled.tensor(), factor * (factor * rows), rtol=1e-5, atol=0)


def test_a_run_begun_in_inference_mode():
    run, usual = simulation(Written(decay)), simulation(Written(decay))
    with torch.inference_mode():
        run.start()
        run.step()
    usual.start()
    usual.step()
    for one in (run, usual):
        one.step()
        one.step()
    assert_equal(run.state, usual.state)


def decay(s, here):
    """In place if nothing else sees the state."""
    return State(s.theta + 0.5 * s.a, s.a + 0.5 * s.b, s.b + 0.1 * net_noise(here))


@pytest.mark.parametrize("seen_as", [torch.from_numpy, torch.from_dlpack])
def test_arrays_that_a_state_was_made_of_are_never_written_into(seen_as):
    arrays = [np.ones((N, P)) for _ in range(3)]
    run = simulation(Written(decay, lambda here: State(*map(seen_as, arrays))))
    run.start()
    for _ in range(3):
        run.step()
    assert all((one == 1).all() for one in arrays)


def test_memory_shared_with_other_processes_is_never_written_into():
    shared = [torch.ones(N, P, dtype=torch.float64).share_memory_() for _ in range(3)]
    # Another process maps the same memory: here a second mapping stands for it.
    handles = [one.untyped_storage()._share_filename_cpu_() for one in shared]
    others = [
        torch.empty(0, dtype=torch.float64).set_(
            torch.UntypedStorage._new_shared_filename_cpu(*handle), 0, (N, P)
        )
        for handle in handles
    ]
    run = simulation(Written(decay, lambda here: State(*(shared.pop() for _ in range(3)))))
    run.start()
    for _ in range(3):
        run.step()
    assert all((one == 1).all() for one in others)


def test_tensors_with_weak_references_are_never_written_into():
    run = simulation(Written(decay))
    run.start()
    run.step()
    seen = [(weakref.ref(rows), rows.clone()) for rows in tensors_of(run.state).values()]
    for _ in range(3):
        run.step()
        assert all(ref() is None or torch.equal(ref(), before) for ref, before in seen)


def overlapping(here, width):
    """Rows that are one row in memory, and no view of anything: as a loaded checkpoint has them."""
    return copy.deepcopy(here.theta0[:1].expand(N, width))


@pytest.mark.parametrize("width", [P, LARGE])
def test_rows_that_overlap_in_memory(width):
    def start(here):
        return State(overlapping(here, width), here.theta0, overlapping(here, width))

    assert_same_numbers(decay, start, width=width)


def test_what_a_loss_keeps_is_never_written_into():
    kept = []

    def loss(theta, x):
        kept.append((theta.detach(), theta.detach().clone()))
        return (theta - x).square().sum()

    def step(s, here):
        gradient = here.grad(s.theta - 0.1 * s.a)  # at models that are used nowhere else
        (mixed,) = here.net.mix(theta=s.theta)
        return State(mixed - 0.1 * gradient, gradient + s.a - s.b, gradient)

    parts = [torch.full((P,), float(client)) for client in range(N)]
    task = Task(torch.zeros(P), parts, loss=loss)
    run = simulation(Written(step), task=task, gradients="looped")
    kept.clear()
    run.start()
    for _ in range(4):
        run.step()
    assert kept
    assert all(torch.equal(seen, before) for seen, before in kept)


def test_interleaved_simulations_in_threads():
    step = Program([("mix", 0, 1, 0.5), ("grad", 3, 0, 0.5), ("combine", 3, 5, 0.3)], (6, 5, 4))
    expected = lazy_states(Written(step), simulation(Written(step)), steps=20)
    results = [None] * 4

    def work(place):
        results[place] = lazy_states(Written(step), simulation(Written(step)), steps=20)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(results))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for states in results:
        for one, other in zip(states, expected, strict=True):
            assert_equal(one, other)


def test_buffers_of_another_device_are_not_taken():
    buffers, elsewhere = Buffers(), torch.empty(2, 3, device="meta")
    buffers.give(elsewhere)
    assert buffers.take(torch.zeros(2, 3)) is not elsewhere
