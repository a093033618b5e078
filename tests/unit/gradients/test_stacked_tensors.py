"""Gradients of all clients in one pass are those of a loop over the clients."""

import pytest
import torch
from gradient_cases import CASES, Case, gradients_apart, gradients_together, largest_error
from torch import nn
from torch.nn import functional

from tacit.gradients.passes import losses, write_one, write_stacked
from tacit.gradients.rules import RULES
from tacit.gradients.stacked import NotStackable, Stack, Stacked

CLIENTS = 3
pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")


@pytest.mark.parametrize("clients", [1, CLIENTS, 4])
@pytest.mark.parametrize("name", CASES)
def test_one_pass_is_a_loop(name, clients):
    """4 is also the size of the batches, and of some buffers."""
    case = CASES[name](torch.float64, clients)
    assert largest_error(gradients_together(case), gradients_apart(case)) < 1e-10


@pytest.mark.parametrize("name", CASES)
def test_one_pass_is_a_loop_in_single_precision(name):
    case = CASES[name](torch.float32, CLIENTS)
    assert largest_error(gradients_together(case), gradients_apart(case)) < 1e-5


@pytest.mark.parametrize("name", CASES)
def test_a_client_does_not_change_the_gradients_of_others(name):
    case = CASES[name](torch.float64, CLIENTS)
    before = gradients_together(case)
    for rows in (*case.parameters, *case.arrays):
        rows[0] = rows[0].flip(0) if rows[0].dim() else 2 * rows[0]
    after = gradients_together(case)
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one[1:], other[1:], rtol=1e-12, atol=1e-14)


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        return 2 * dy


def hooked(x):
    x.register_hook(lambda gradient: 2 * gradient)
    return x


PLAIN = torch.zeros(4, 6)
REFUSED = {
    "item": lambda x: x * x.sum().item(),
    "float": lambda x: x * float(x.sum()),
    "branch": lambda x: x if x.sum() > 0 else -x,
    "numpy": lambda x: x + torch.from_numpy(x.detach().numpy()),
    "mask": lambda x: x[x > 0].sum() * x,
    "nonzero": lambda x: x * len(x.nonzero()),
    "own function": lambda x: Own.apply(x),
    "hook": hooked,
    "into a plain tensor": lambda x: PLAIN.clone().copy_(x),
    "add to a plain tensor": lambda x: PLAIN.clone().add_(x),
    "random": lambda x: functional.dropout(x, 0.5),
    "equal": lambda x: x if torch.equal(x, 2 * x) else -x,
    "backward": lambda x: x.sum().backward(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_stacked_raises(name):
    def loss(models, arrays):
        return (REFUSED[name](arrays[0] * models[0]) ** 2).sum()

    theta, x, out = (torch.ones(CLIENTS, *shape) for shape in ((6,), (4, 6), (6,)))
    with pytest.raises((NotStackable, RuntimeError)):
        write_stacked(loss, [theta], [x], [out])


def test_an_operation_below_torch_functions_raises():
    x = Stacked(torch.ones(CLIENTS, 2), Stack(CLIENTS, RULES))
    with torch._C.DisableTorchFunctionSubclass(), pytest.raises(NotStackable, match="relu"):
        torch.relu(x)


def test_tensors_of_two_passes_do_not_meet():
    before, now = (Stacked(torch.ones(CLIENTS, 2), Stack(CLIENTS, RULES)) for _ in range(2))
    with pytest.raises(NotStackable, match="earlier call"):
        before + now


def test_a_module_sees_logical_shapes():
    seen = []

    class Looks(nn.Module):
        def forward(self, x):
            seen.append((x.shape, x.dim(), len(x), x.numel(), x.dtype, x.requires_grad, repr(x)))
            assert x.size(-1) == x.shape[1] == 6
            return x

    x = Stacked(torch.ones(CLIENTS, 4, 6), Stack(CLIENTS, RULES))
    Looks()(x)
    assert seen[0][:6] == (torch.Size([4, 6]), 2, 4, 24, torch.float32, False)


def test_parameters_without_influence_have_no_gradient():
    theta = [torch.ones(CLIENTS, 2), torch.ones(CLIENTS, 5)]
    out = [torch.full_like(rows, torch.nan) for rows in theta]
    write_stacked(lambda models, arrays: models[0].sum(), theta, [], out)
    assert torch.equal(out[0], torch.ones(CLIENTS, 2))
    assert torch.equal(out[1], torch.zeros(CLIENTS, 5))


def test_the_loss_must_be_one_number():
    theta = torch.ones(CLIENTS, 2)
    with pytest.raises(NotStackable, match="shape"):
        write_stacked(lambda models, arrays: models[0], [theta], [], [theta.clone()])
    with pytest.raises(NotStackable, match="depend"):
        write_stacked(lambda models, arrays: torch.ones(()), [theta], [], [theta.clone()])


DTYPES = (torch.float32, torch.float64, torch.int64, torch.bool)


@pytest.mark.parametrize("left", [(), (2,), (3, 2)], ids=str)
@pytest.mark.parametrize("right", [(), (2,), (3, 1)], ids=str)
@pytest.mark.parametrize("plain", [False, True])
def test_types_are_promoted_as_in_each_row(left, right, plain):
    """Tensors without dimensions count less, in rows as elsewhere."""
    stack = Stack(2, RULES)
    for one in DTYPES:
        for other in DTYPES:
            a = torch.ones((2, *left), dtype=one)
            b = torch.ones(right if plain else (2, *right), dtype=other)
            found = Stacked(a, stack) * (b if plain else Stacked(b, stack))
            expected = a[0] * (b if plain else b[0])
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            assert torch.equal(found.rows[0], expected)


def test_torch_func_inside_of_a_loss():
    def loss(models, arrays):
        def energy(w, x):
            return (w * x).square().sum()

        slopes = torch.vmap(torch.func.grad(energy), (None, 0))(models[0], arrays[0])
        return slopes.square().mean()

    case = Case(loss, [torch.randn(CLIENTS, 6).double()], [torch.randn(CLIENTS, 4, 6).double()])
    assert largest_error(gradients_together(case), gradients_apart(case)) < 1e-12


def test_torch_func_and_hooks_are_refused():
    def loss(models, arrays):
        x = torch.vmap(torch.square)(arrays[0] * models[0])
        x.register_hook(lambda gradient: 2 * gradient)
        return x.sum()

    rows = torch.ones(CLIENTS, 6)
    with pytest.raises(NotStackable):
        write_stacked(loss, [rows], [rows], [rows.clone()])


@pytest.mark.parametrize("shapes", [((4,), (4,)), ((4,), (4, 5)), ((5, 4), (4,)), ((2, 5, 4), (4,)),
                                    ((4,), (2, 4, 5)), ((2, 5, 4), (4, 3))], ids=str)  # fmt: skip
@pytest.mark.parametrize("which", ["left", "right", "both"])
def test_products_with_vectors_need_no_vmap(shapes, which):
    """As torch.matmul defines them, whichever side the clients have in common."""
    stack = Stack(CLIENTS, RULES)
    draw = torch.Generator().manual_seed(1)
    left, right = (torch.randn(CLIENTS, *s, generator=draw, dtype=torch.float64) for s in shapes)
    a = Stacked(left, stack) if which != "right" else left[0]
    b = Stacked(right, stack) if which != "left" else right[0]
    expected = torch.stack(
        [(x if which != "right" else left[0]) @ (y if which != "left" else right[0])
         for x, y in zip(left, right, strict=True)]
    )  # fmt: skip
    found = RULES[torch.matmul](a, b)
    assert found.shape == expected.shape[1:]
    torch.testing.assert_close(found.rows, expected, rtol=1e-14, atol=1e-14)


def test_a_client_whose_classes_are_all_ignored_has_the_gradient_zero():
    scores, labels = torch.randn(3, 6, 4), torch.randint(4, (3, 6))
    labels[1], labels[2, :3] = -100, -100

    def loss(models, arrays):
        return functional.cross_entropy(models[0], arrays[0])

    found, expected = torch.empty_like(scores), torch.empty_like(scores)
    write_stacked(loss, [scores], [labels], [found])
    for client in range(3):
        write_one(loss, [scores[client]], [labels[client]], [expected[client]])
    assert torch.equal(found[1], torch.zeros(6, 4))
    torch.testing.assert_close(found, expected)
    values = losses(loss, [scores], [labels])
    assert values.isnan().tolist() == [False, True, False]
