import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

import tacit
from tacit.core.errors import Misuse
from tacit.privacy.clipping import Clip
from tacit.record.transcript import Keep

ORDER = {"l1": 1, "l2": 2}
RING = tacit.Topology.ring(4).mixing("metropolis", lazy=True)


def sizes(rows, norm):
    return torch.linalg.vector_norm(rows.double(), ord=ORDER[norm], dim=1)


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=60, deadline=None)
@given(
    bound=st.floats(1e-3, 1e3),
    norm=st.sampled_from(["l1", "l2"]),
    spread=st.integers(0, 6),
    width=st.integers(1, 50),
    seed=st.integers(0, 999),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_no_gradient_is_longer_than_the_bound_and_none_turns(
    bound, norm, spread, width, seed, dtype
):
    rows = (
        10.0 ** (draw(20, 1, seed=seed) * spread).clamp(-8, 8) * draw(20, width, seed=seed + 1)
    ).to(dtype)
    clipped = Clip(bound, norm).clipped(rows)
    assert clipped.dtype == dtype
    before, after = sizes(rows, norm), sizes(clipped, norm)
    eps = torch.finfo(dtype).eps
    assert (after <= bound).all()
    torch.testing.assert_close(
        after, before.clamp(max=bound), rtol=50 * eps + 2e-12, atol=0
    )  # no shorter than needed
    same = clipped.double() * before[:, None]  # the direction stays
    torch.testing.assert_close(same, rows.double() * after[:, None], rtol=50 * eps, atol=1e-30)


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_small_gradients_are_untouched_bit_for_bit(norm):
    for dtype in (torch.float32, torch.float64):
        rows = draw(50, 7, dtype=dtype)
        rows[3], rows[4] = 0.0, 1e-40
        bound = float(sizes(rows, norm).max()) * 1.0001
        assert torch.equal(Clip(bound, norm).clipped(rows), rows)


def test_only_the_long_ones_are_changed_and_not_in_place():
    rows = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [-6.0, 8.0]])
    copy = rows.clone()
    expected = torch.tensor([[0.6, 0.8], [0.3, 0.4], [0.0, 0.0], [-0.6, 0.8]])
    torch.testing.assert_close(Clip(1.0).clipped(rows), expected)
    assert torch.equal(rows, copy)
    torch.testing.assert_close(Clip(0.7, "l1").clipped(rows)[0], torch.tensor([0.3, 0.4]))
    at_bound = torch.tensor([[3.0, 4.0]])
    torch.testing.assert_close(Clip(5.0).clipped(at_bound), at_bound)


def test_zero_stays_zero_and_what_is_not_finite_becomes_zero():
    """A NaN that is sent would tell what the data made of the model."""
    rows = torch.tensor([[0.0, -0.0], [math.nan, 1.0], [0.1, 0.2], [math.inf, 1.0], [-math.inf, 0]])
    for norm in ("l1", "l2"):
        clipped = Clip(1.0, norm).clipped(rows)
        assert torch.equal(clipped[[0, 1, 3, 4]], torch.zeros(4, 2))
        assert torch.equal(clipped[2], rows[2])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("norm", "order"), [("l1", 1), ("l2", 2)])
def test_rounding_does_not_make_gradients_longer_than_the_bound(norm, order, dtype):
    rows = torch.randn(500, 1000, generator=torch.Generator().manual_seed(1), dtype=dtype)
    for bound in (1e-3, 1.0, 7.3):
        sizes = Clip(bound, norm).clipped(rows).double().norm(p=order, dim=1)
        assert float(sizes.max()) <= bound
        assert float(sizes.min()) > bound * (1 - 1e-5)
    # Just as long as the bound: rounding in the norm must not leave them longer.
    just = rows / rows.double().norm(p=order, dim=1, keepdim=True).to(dtype)
    assert float(Clip(1.0, norm).clipped(just).double().norm(p=order, dim=1).max()) <= 1.0


@settings(max_examples=30, deadline=None)
@given(norm=st.sampled_from(["l1", "l2"]), bound=st.floats(0.01, 10), seed=st.integers(0, 999))
def test_two_clipped_gradients_are_no_further_apart_than_the_sensitivity(norm, bound, seed):
    clip = Clip(bound, norm)
    one, other = (clip.clipped(100 * draw(30, 5, seed=seed + k)) for k in (0, 1))
    assert (sizes(one - other, norm) <= clip.sensitivity * (1 + 1e-12)).all()
    opposite = sizes(clip.clipped(one * 100) - clip.clipped(-one * 100), norm)
    torch.testing.assert_close(
        opposite, torch.full_like(opposite, clip.sensitivity)
    )  # and it is reached


@pytest.mark.parametrize("bound", [0, -1.0, math.nan, math.inf, True, "1", None])
def test_a_bound_that_is_none_is_refused(bound):
    with pytest.raises(Misuse, match=r"clipping bound is .*above 0"):
        Clip(bound)


@pytest.mark.parametrize("norm", ["L2", "linf", 2])
def test_another_norm_is_refused(norm):
    with pytest.raises(Misuse, match=r'clipping norm is .*"l1" or "l2"'):
        tacit.quadratic(torch.eye(2).repeat(2, 1, 1), torch.ones(2, 2)).clipped(1.0, norm)


# --- Tasks ---------------------------------------------------------------------------------------


def steep():
    """Full gradients of very different lengths."""
    return tacit.quadratic(
        torch.eye(3).double().repeat(4, 1, 1), 30 * draw(4, 3), theta0=draw(3, seed=5) / 100
    )


def logistic():
    """Batches, a module, float32."""
    parts = [
        (10 * draw(20, 6, seed=i, dtype=torch.float32), torch.arange(20) % 3) for i in range(4)
    ]
    return tacit.Task(torch.nn.Linear(6, 3), parts, batch_size=5)


@pytest.mark.parametrize("make", [steep, logistic])
@pytest.mark.parametrize("gradients", ["stacked", "looped"])
@pytest.mark.parametrize(("bound", "norm"), [(0.5, "l2"), (0.25, "l1")])
def test_every_gradient_of_a_run_is_bounded(make, gradients, bound, norm):
    torch.manual_seed(0)
    task = make()
    keep = Keep(insides=(0, 1, 2, 3))

    def taken(task):
        algorithm = tacit.DSGT(lr=0.05)
        run = tacit.run(task, algorithm, RING, steps=6, gradients=gradients, transcript=keep)
        return run, torch.stack(
            [row for name, row in run.transcript.held.items() if name.kind == "gradient"]
        )

    run, clipped = taken(task.clipped(bound, norm))
    _, plain = taken(task)
    assert len(clipped) == 4 * 7
    assert float(sizes(plain, norm).max()) > bound
    assert float(sizes(clipped, norm).max()) <= bound * (1 + 1e-6)
    assert torch.equal(run.transcript.of("gamma")[0].rows, clipped[:4])  # and nothing else is sent
    start = task.initial(0, range(4))
    assert not torch.equal(run.theta, start)


def test_a_clipped_task_trains_and_the_task_it_was_made_of_is_not_clipped():
    task = tacit.quadratic(torch.eye(3).double().repeat(4, 1, 1), 3 + draw(4, 3) / 10)
    clipped = task.clipped(0.5)
    assert task.clip is None
    assert clipped.clip == Clip(0.5)
    run = tacit.run(clipped, tacit.DSGT(lr=0.1), RING, steps=300)
    torch.testing.assert_close(run.theta, task.optimum.expand_as(run.theta), rtol=0, atol=1e-6)


def test_the_exact_solver_takes_no_gradients_to_clip():
    exact = tacit.PDMM(solver=tacit.ExactSolver())
    with pytest.raises(Misuse, match=r"nothing to clip.*quadratic, gradient or inner solver"):
        tacit.Simulation(tacit.Setting(exact, steep().clipped(1.0), RING))
    run = tacit.run(steep().clipped(1.0), tacit.PDMM(), RING, steps=2)
    assert run.theta.isfinite().all()


def test_a_gradient_whose_square_overflows_is_clipped_not_lost():
    assert float(Clip(1.0).clipped(torch.full((1, 4), 1e30)).norm()) == pytest.approx(1)


@pytest.mark.parametrize("tile", [1, 7, 10**6])
def test_shortening_in_place_is_the_same(tile, monkeypatch):
    monkeypatch.setattr("tacit.privacy.clipping.TILE", tile)
    rows = torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    expected = Clip(0.8).clipped(rows)
    assert Clip(0.8).clip_(rows) is rows
    assert torch.equal(rows, expected)
