from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import tacit
from tacit.engines.setting import Setting
from tacit.engines.simulation import Simulation
from tacit.gradients.workspace import WORKSPACE

RING = tacit.Topology.ring(6).mixing("metropolis")


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(dtype)


def squares(clients=6, batch_size=4, dtype=torch.float64):
    """Mini-batch least squares with parts of unequal sizes."""
    sizes = [8 + 3 * (k % 3) for k in range(clients)]
    xs = [draw(size, 3, seed=k, dtype=dtype) for k, size in enumerate(sizes)]
    ys = [draw(size, seed=k + 40, dtype=dtype) for k, size in enumerate(sizes)]
    return tacit.least_squares(xs, ys, batch_size=batch_size)


def network_task(dtype=torch.float32):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 2)).to(dtype)
    parts = [(draw(9, 3, seed=k, dtype=dtype), torch.arange(9) % 2) for k in range(6)]
    test = (draw(20, 3, seed=99, dtype=dtype), torch.arange(20) % 2)
    return tacit.Task(module, parts, batch_size=3, test=test, init="independent")


def explosive():
    """Client 2's loss is so steep that any step size is too large; the others' are harmless."""
    A = torch.eye(2, dtype=torch.float64).repeat(6, 1, 1)
    A[2] *= 1e150
    return tacit.quadratic(A, draw(6, 2))


ALGORITHMS = [
    tacit.DSGT(lr=0.05),
    tacit.DPDSGT(lr=0.05, inject="every"),
    tacit.LPPA(lr=0.05, noise=tacit.Gaussian(0.5), fresh=True, local_steps=2),
    tacit.LPPA(lr=0.05, masks="sent"),
]


def same_state(a, b):
    return all(torch.equal(getattr(a, f), getattr(b, f)) for f in ("theta", "gamma", "grad"))


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=["dsgt", "dp-dsgt", "lppa", "lppa-sent"])
@pytest.mark.parametrize("task", [squares, network_task])
def test_the_same_seed_gives_the_same_bits(algorithm, task):
    one = tacit.run(task(), algorithm, RING, steps=12, seed=4)
    torch.manual_seed(12345)  # the global stream plays no part
    again = tacit.run(task(), algorithm, RING, steps=12, seed=4)
    assert same_state(one.state, again.state)
    assert one.history.column("loss.mean") == again.history.column("loss.mean")
    other = tacit.run(task(), algorithm, RING, steps=12, seed=5)
    assert not torch.equal(one.theta, other.theta)


def test_a_simulation_leaves_the_global_stream_alone():
    torch.manual_seed(3)
    tacit.run(network_task(), ALGORITHMS[2], RING, steps=3, seed=0)
    drawn = torch.rand(4)
    torch.manual_seed(3)
    assert torch.equal(drawn, torch.rand(4))


def test_a_run_holds_models_state_and_history():
    run = tacit.run(squares(), tacit.DSGT(lr=0.05), RING, steps=20)
    assert run.theta is run.state.theta
    assert run.theta.shape == (6, 3)
    assert run.diverged is None
    assert run.gradients.strategy in ("stacked", "looped")
    assert run.history[-1].loss.mean < run.history[0].loss.mean


@pytest.mark.parametrize(
    ("steps", "every", "recorded"),
    [
        (10, 3, [0, 3, 6, 9, 10]),
        (10, 5, [0, 5, 10]),
        (4, 100, [0, 4]),
        (40, None, list(range(0, 41, 4))),
        (3, None, [0, 1, 2, 3]),
        (0, None, [0]),
    ],
)
def test_records_are_kept_at_the_start_every_so_often_and_at_the_end(steps, every, recorded):
    run = tacit.run(squares(), tacit.DSGT(lr=0.01), RING, steps=steps, record_every=every)
    assert run.history.column("step") == recorded


def test_records_count_rounds_and_bytes():
    task = squares()  # 11 samples on average in batches of 4: two iterations are a round
    run = tacit.run(task, tacit.DSGT(lr=0.01), RING, steps=6, record_every=1)
    assert run.history.column("round") == [0, 0, 1, 1, 2, 2, 3]
    per_step = 12 * 2 * 3 * 8  # directed edges, θ and γ, parameters, bytes of a double
    assert run.history.column("bytes_sent") == [k * per_step for k in range(7)]


def test_masks_that_are_sent_cost_bytes_and_change_nothing():
    derived = tacit.run(squares(), tacit.LPPA(lr=0.05, fresh=True), RING, steps=5)
    sent = tacit.run(squares(), tacit.LPPA(lr=0.05, fresh=True, masks="sent"), RING, steps=5)
    assert same_state(derived.state, sent.state)
    assert sent.history[-1].bytes_sent - derived.history[-1].bytes_sent == 6 * 12 * 3 * 8


def test_progress_is_called_after_every_iteration():
    seen = []
    tacit.run(squares(), tacit.DSGT(lr=0.01), RING, steps=4, progress=lambda s: seen.append(s.t))
    assert seen == [1, 2, 3, 4]


def test_a_run_that_diverges_is_stopped_naming_iteration_and_client():
    with pytest.raises(
        tacit.Diverged, match=r"of client \d+ is not finite at iteration \d+.*smaller step"
    ) as stop:
        tacit.run(explosive(), tacit.DSGT(lr=0.1), RING, steps=50, record_every=1)
    where = stop.value.args[0].split(" at iteration ")[1].split(".")[0]
    steps = stop.value.history.column("step")
    assert steps == list(range(int(where)))
    assert len(steps) > 1


def test_the_first_client_that_is_not_finite_is_the_one_named():
    x = torch.ones(6, 1)
    x[4:] = torch.inf
    task = tacit.Task(torch.ones(1), list(x), loss=lambda theta, x: (theta * x).sum())
    with pytest.raises(tacit.Diverged, match="gamma of client 4 is not finite at iteration 0"):
        tacit.run(task, tacit.DSGT(lr=0.1), RING, steps=5)


def test_a_run_may_be_allowed_to_diverge_and_says_where():
    run = tacit.run(
        explosive(), tacit.DSGT(lr=0.1), RING, steps=10, allow_divergence=True, record_every=1
    )
    assert run.history.column("step") == list(range(11))
    with pytest.raises(tacit.Diverged, match=run.diverged):
        tacit.run(explosive(), tacit.DSGT(lr=0.1), RING, steps=10)
    assert not torch.isfinite(run.theta).all()


def test_large_numbers_whose_sum_overflows_are_not_a_divergence():
    half = torch.finfo(torch.float32).max / 2
    task = tacit.Task(
        torch.full((1,), half), list(torch.zeros(6, 1)), loss=lambda theta, x: (theta * x).sum()
    )
    run = tacit.run(task, tacit.DSGT(lr=0.1), RING, steps=1)
    assert torch.isfinite(run.theta).all()


def test_a_device_that_is_not_here_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(tacit.Misuse, match="no CUDA device"):
        tacit.run(squares(), tacit.DSGT(lr=0.1), RING, steps=1, device="cuda")


def begun(workspace=None, threads=None, steps=0):
    """A simulation on float32 after some steps, with chunks and threads of its own."""
    before = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        if workspace is not None:
            patch.setitem(WORKSPACE, "cpu", workspace)
        if threads is not None:
            torch.set_num_threads(threads)
        try:
            simulation = Simulation(
                Setting(ALGORITHMS[2], network_task(), RING, seed=2, gradients="stacked")
            )
            simulation.start()
            for _ in range(steps):
                simulation.step()
        finally:
            torch.set_num_threads(before)
    return simulation


@pytest.mark.parametrize("how", [{"workspace": 1}, {"workspace": 2000}, {"threads": 1}])
def test_chunks_and_threads_change_nothing_but_rounding(how):
    plain, other = begun(steps=6), begun(**how, steps=6)
    torch.testing.assert_close(other.state.theta, plain.state.theta, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(other.state.gamma, plain.state.gamma, rtol=1e-4, atol=1e-5)
    noise = [s.here.at(3).noise("zeta", tacit.Laplace(1.0)) for s in (plain, other)]
    assert torch.equal(*noise)
    edge_noise = [
        s.here.at(3).edge_noise("delta", tacit.Laplace(1.0))[0].tensor() for s in (plain, other)
    ]
    assert torch.equal(*edge_noise)
    for number in range(8):
        batches = [s.here.objective.loader.indices(number) for s in (plain, other)]
        assert torch.equal(*batches)


def test_a_restored_simulation_goes_on_as_if_never_stopped():
    whole = begun(steps=7)
    first, second = begun(steps=3), begun()
    second.restore(replace(first.checkpoint("mark"), wall_seconds=1.5))
    for _ in range(4):
        second.step()
    assert same_state(second.state, whole.state)
    assert (second.t, second.net.bytes_sent) == (whole.t, whole.net.bytes_sent)
    assert second.wall_seconds > 1.5


def test_a_step_size_may_follow_a_schedule():
    scheduled = tacit.run(squares(), tacit.DSGT(lr=lambda t: 0.05), RING, steps=5)
    plain = tacit.run(squares(), tacit.DSGT(lr=0.05), RING, steps=5)
    assert torch.equal(scheduled.theta, plain.theta)
    seen = []

    def rate(t):
        seen.append(t)
        return 0.01

    tacit.run(squares(), tacit.DSGT(lr=rate), RING, steps=4)
    assert seen == [0, 1, 2, 3]


IMPOSSIBLE = {
    "no task": ({"task": None}, "task is a NoneType"),
    "the name of a task": ({"task": "task"}, "task is a str"),
    "a number as graph": ({"graph": 4}, "graph is a int"),
    "another number of clients": ({"task": squares(5)}, "task has 5 clients, the graph 6"),
    "negative steps": ({"steps": -1}, "steps is"),
    "real steps": ({"steps": 2.0}, "steps is"),
    "steps as text": ({"steps": "3"}, "steps is"),
    "no steps": ({"steps": None}, "steps is"),
    "records of no steps": ({"record_every": 0}, "record_every is"),
    "records of real steps": ({"record_every": 1.5}, "record_every is"),
    "a real seed": ({"seed": 1.5}, "seed is"),
    "a seed as text": ({"seed": "0"}, "seed is"),
    "no seed": ({"seed": None}, "seed is"),
    "a seed that is a flag": ({"seed": True}, "seed is"),
    "an unknown device": ({"device": "gpu7"}, r"'gpu7'.*\"cpu\""),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_what_makes_no_run_is_refused(name):
    options, words = IMPOSSIBLE[name]
    arguments = {"task": squares(), "algorithm": tacit.DSGT(lr=0.1), "graph": RING, "steps": 1}
    with pytest.raises(tacit.Misuse, match=words):
        tacit.run(**{**arguments, **options})


def test_an_algorithm_needs_a_name():
    class Nameless(tacit.Algorithm):
        def start(self, here): ...

        def step(self, s, here): ...

    with pytest.raises(tacit.Misuse, match=r"Nameless has no name\..*Add one to the class"):
        tacit.run(squares(), Nameless(), RING, steps=1)


def test_numpy_seeds_are_seeds():
    runs = [
        tacit.run(squares(), tacit.LPPA(lr=0.1), RING, steps=2, seed=s) for s in (7, np.int64(7))
    ]
    assert torch.equal(runs[0].theta, runs[1].theta)


def test_results_are_described_in_a_line():
    run = tacit.run(squares(), tacit.DSGT(lr=0.1), RING, steps=2)
    for thing in (run, run.history, squares(), RING, RING.topology):
        assert "\n" not in repr(thing)
        assert len(repr(thing)) < 120
    assert "2" in repr(run.history)


def test_divergence_names_client_and_iteration_however_seldom_one_asks():
    """On a GPU the finding is read only now and then; it must still be the first one."""

    def advance(simulation):
        for _ in range(50):
            simulation.step()

    simulation = tacit.Simulation(tacit.Setting(tacit.DSGT(lr=1e200), squares(), RING))
    simulation._check_every = 1000
    simulation.start()
    plain = tacit.Simulation(tacit.Setting(tacit.DSGT(lr=1e200), squares(), RING))
    plain.start()
    with pytest.raises(tacit.Diverged) as at_once:
        advance(plain)
    advance(simulation)
    with pytest.raises(tacit.Diverged) as later:
        simulation.check()
    assert str(later.value) == str(at_once.value)


@pytest.mark.parametrize(("local_steps", "jump"), [(1, 6), (2, 3), (4, 2)])
def test_deviations_are_from_the_optimum_of_the_last_gradients_batch(local_steps, jump):
    """Batch 6 is the first after the flip; with g gradients a step, step t ends with batch t·g."""
    task, still = (tacit.adaptive_filtering(6, exact=True, flip_at=at) for at in (6, None))
    simulation = Simulation(Setting(tacit.DSGT(lr=0.001, local_steps=local_steps), task, RING))
    simulation.start()
    for t in range(8):
        sign = 1 if t < jump else -1
        theta, seen = simulation.state.theta, simulation.observe()
        deviation = (theta - sign * still.optimum).square().sum(1).mean()
        assert seen.msd == pytest.approx(float(deviation), rel=1e-9)
        losses = still.evaluation.models(sign * theta, range(6)).loss
        assert seen.loss.mean == pytest.approx(float(losses.mean()), rel=1e-9)
        simulation.step()


def test_deviations_are_recorded_only_if_the_optimum_is_known():
    run = tacit.run(squares(batch_size=None), tacit.DSGT(lr=0.05), RING, steps=40)
    deviations = run.history.column("msd")
    assert deviations[-1] < deviations[0]
    optimum = squares(batch_size=None).optimum
    assert deviations[-1] == pytest.approx(
        float((run.theta - optimum).square().sum(1).mean()), rel=1e-9
    )
    other = tacit.run(network_task(), tacit.DSGT(lr=0.05), RING, steps=2)
    assert other.history[-1].msd is None
