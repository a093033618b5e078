import pytest
import torch

from support.gradient_ways import looped
from tacit.core.errors import Misuse
from tacit.tasks import least_squares, quadratic


def draw(*shape, seed=0, dtype=torch.float64):
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(dtype)


def spd(clients, width):
    A = draw(clients, width, width)
    return A @ A.mT


def total_gradient(task):
    theta = task.optimum[None]
    return sum(
        looped(task.loss, theta, tuple(array[None] for array in part)) for part in task.parts
    )


def test_the_total_gradient_is_zero_at_the_optimum_of_quadratics():
    task = quadratic(spd(4, 3), draw(4, 3, seed=1))
    torch.testing.assert_close(
        total_gradient(task), torch.zeros(1, 3, dtype=torch.float64), rtol=0, atol=1e-10
    )


def test_no_client_alone_is_at_its_optimum_there():
    task = quadratic(spd(4, 3), draw(4, 3, seed=1))
    theta = task.optimum[None]
    for part in task.parts:
        assert float(looped(task.loss, theta, tuple(array[None] for array in part)).norm()) > 1e-3


@pytest.mark.parametrize("sizes", [(6, 6, 6), (1, 9, 4)])
def test_the_total_gradient_is_zero_at_the_optimum_of_least_squares(sizes):
    xs = [draw(size, 3, seed=k) for k, size in enumerate(sizes)]
    task = least_squares(xs, [draw(size, seed=k + 50) for k, size in enumerate(sizes)])
    torch.testing.assert_close(
        total_gradient(task), torch.zeros(1, 3, dtype=torch.float64), rtol=0, atol=1e-10
    )


def test_exact_data_are_fitted_exactly_with_batches_too():
    truth = draw(3, seed=8)
    x = draw(4, 10, 3)
    task = least_squares(x, x @ truth, batch_size=5)
    torch.testing.assert_close(task.optimum, truth, rtol=1e-9, atol=1e-9)
    assert task.batch_size == 5
    assert task.steps_per_epoch == 2


def test_a_start_is_zero_or_as_given():
    A, b = spd(3, 2), draw(3, 2, seed=1)
    assert torch.equal(quadratic(A, b).initial(0, [0, 2]), torch.zeros(2, 2, dtype=torch.float64))
    each = draw(3, 2, seed=5)
    assert torch.equal(quadratic(A, b, theta0=each).initial(0, [0, 2]), each[[0, 2]])
    one = draw(2, seed=6)
    x, y = draw(3, 4, 2), draw(3, 4)
    assert torch.equal(least_squares(x, y, theta0=one).initial(0, [1]), one[None])


def test_types_are_kept():
    single = quadratic(spd(2, 2).float(), draw(2, 2).float())
    assert single.dtype == torch.float32
    assert least_squares(draw(2, 5, 3).float(), draw(2, 5).float()).dtype == torch.float32
    assert quadratic(spd(2, 2), draw(2, 2)).dtype == torch.float64


@pytest.mark.parametrize(
    ("A", "b"),
    [
        ((3, 2), (3, 2)),
        ((3, 2, 4), (3, 2)),
        ((3, 2, 2), (2, 2)),
        ((3, 2, 2), (3, 3)),
        ((3, 2, 2), (3,)),
    ],
)
def test_other_shapes_of_quadratics_are_refused(A, b):
    with pytest.raises(Misuse, match=r"Give A \[N, P, P\] and b \[N, P\]"):
        quadratic(torch.zeros(A), torch.zeros(b))


@pytest.mark.parametrize(
    ("x", "y"),
    [
        ([], []),
        ([(4, 2)], [(3,)]),
        ([(4, 2)], [(4, 1)]),
        ([(4,)], [(4,)]),
        ([(4, 2), (4, 2, 1)], [(4,), (4,)]),
        ([(4, 2), (0, 2)], [(4,), (0,)]),
        ([(4, 2), (4, 3)], [(4,), (4,)]),
    ],
)
def test_other_shapes_of_least_squares_are_refused(x, y):
    with pytest.raises(Misuse, match=r"matrices \[nᵢ, P\]"):
        least_squares([torch.zeros(shape) for shape in x], [torch.zeros(shape) for shape in y])
