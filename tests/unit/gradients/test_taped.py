"""Gradients of single samples in one pass are those of each sample alone, and apart to the bit."""

import gc
import warnings
import weakref

import pytest
import torch
from gradient_cases import CASES as OTHERS
from hypothesis import given, settings, strategies as st
from taped_modules import CASES, inputs, made
from torch import nn
from torch.func import functional_call
from torch.nn import functional

from tacit.core.rounded_sums import rounding_share
from tacit.engines.gradients.sample_passes import SampleBackend
from tacit.gradients.passes import write_one
from tacit.gradients.products import (
    Lookups,
    OuterProducts,
    PositionProducts,
    position_products,
    write_clipped_sums,
)
from tacit.gradients.samples import sample_products
from tacit.gradients.stacked import NotStackable
from tacit.tasks import Task

SAMPLES = 6
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}
# Whose loss is not defined for a batch of one sample.
OF_BATCHES = ("cross-entropy, some ignored", "batch norm without weights")
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)


def loss_of(module):
    """A loss of any output, which differs for each of its numbers, and the parameters."""
    named = {name: p.detach() for name, p in module.named_parameters()}

    def loss(parameters, arrays):
        output = functional_call(module, dict(zip(named, parameters, strict=True)), tuple(arrays))
        y = output.flatten(1)
        weights = torch.linspace(-1, 2, y.shape[1], dtype=y.dtype)
        return (y.tanh() * weights + 0.1 * y * y).sum(1).mean()

    return loss, list(named.values())


def together(loss, parameters, arrays):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of vmap, where it has no rule of its own
        return sample_products(loss, parameters, arrays)


def rows(products):
    return torch.cat([block.rows() for block in products], 1)


def apart(loss, parameters, arrays):
    """The gradients [B, P], sample by sample."""
    gradients = []
    for k in range(len(arrays[0])):
        out = [torch.empty_like(p) for p in parameters]
        write_one(loss, parameters, [array[k : k + 1] for array in arrays], out)
        gradients.append(torch.cat([piece.flatten() for piece in out]))
    return torch.stack(gradients)


def assert_exact(loss, parameters, arrays):
    """Gradients and norms of all samples are those of autograd, parameter by parameter."""
    products = together(loss, parameters, arrays)
    expected = apart(loss, parameters, arrays)
    tolerance = TOLERANCE[expected.dtype]
    sizes = [p.numel() for p in parameters]
    # Gradients that are zero but for rounding have no digits of their own.
    least = 0.01 * float(expected.norm())
    for block, own in zip(products, expected.split(sizes, 1), strict=True):
        assert block.rows().shape == own.shape
        assert float((block.rows() - own).norm()) <= tolerance * (float(own.norm()) + least)
    norms = sum(block.squared_norms() for block in products).sqrt()
    torch.testing.assert_close(norms, expected.double().norm(dim=1), rtol=tolerance, atol=0)


@DTYPES
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_each_sample_alone(name, dtype):
    module, shape = made(name, dtype)
    loss, parameters = loss_of(module)
    assert_exact(loss, parameters, (inputs(shape, SAMPLES, dtype),))


@pytest.mark.parametrize("name", [name for name in OTHERS if name not in OF_BATCHES])
def test_losses_and_modules_of_clients_are_those_of_samples(name):
    case = OTHERS[name](torch.float64, 2)
    arrays = [array.flatten(0, 1) for array in case.arrays]
    assert_exact(case.loss, [rows[0] for rows in case.parameters], arrays)


@settings(max_examples=60, deadline=None)
@given(
    dims=st.integers(1, 3),
    groups=st.sampled_from([1, 2]),
    transposed=st.booleans(),
    options=st.data(),
    images=st.integers(1, 3),
)
def test_convolutions_of_any_shape(dims, groups, transposed, options, images):
    def pick(low, high):
        return tuple(options.draw(st.integers(low, high)) for _ in range(dims))

    kernel, stride, dilation, padding = pick(1, 3), pick(1, 3), pick(1, 2), pick(0, 2)
    sizes = pick(5, 7)
    common = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    channels = groups * options.draw(st.integers(1, 2))
    if transposed:
        common["output_padding"] = tuple(
            options.draw(st.integers(0, max(s, d) - 1))
            for s, d in zip(stride, dilation, strict=True)
        )
        # What is cut off may be all there is.
        common["padding"] = tuple(min(p, k - 1) for p, k in zip(padding, kernel, strict=True))
    kind = getattr(nn, f"Conv{'Transpose' if transposed else ''}{dims}d")
    bias = options.draw(st.booleans())
    module = kind(channels, 2 * groups, kernel, bias=bias, **common).double()
    loss, parameters = loss_of(module)

    def of_images(parameters, arrays):
        return loss(parameters, (arrays[0].flatten(0, 1),))

    x = torch.randn(3, images, channels, *sizes, dtype=torch.float64)
    assert_exact(of_images, parameters, (x,))


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.integers(1, 9),
    width=st.integers(1, 12),
    outputs=st.integers(1, 12),
    rank=st.integers(0, 2),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_linear_layers_of_any_shape(tokens, width, outputs, rank, dtype):
    """In all three forms: outer products, formed, and norms by pairs of positions."""
    shape = (*(1,) * rank, tokens, width) if rank else (width,)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(tokens)
        module, x = nn.Linear(width, outputs).to(dtype), torch.randn(4, *shape, dtype=dtype)
    loss, parameters = loss_of(module)
    assert_exact(loss, parameters, (x,))


def test_the_form_is_the_cheapest_for_the_shapes():
    def form(tokens, outputs, width, dtype=torch.float32):
        products = position_products(
            torch.ones(2, tokens, outputs, dtype=dtype), torch.ones(2, tokens, width, dtype=dtype)
        )
        return type(products), products.rows().shape

    assert form(1, 5, 6) == (OuterProducts, (2, 30))
    assert form(2, 5, 6) == (PositionProducts, (2, 30))
    assert form(3, 5, 6) == (OuterProducts, (2, 30))
    assert form(2, 5, 6, torch.float64) == (OuterProducts, (2, 30))


def test_norms_by_pairs_are_exact_in_passes_of_many_samples():
    """Also where most of what positions add is taken back by others, as before a normalisation."""
    module, shape = made("small maps")
    loss, parameters = loss_of(module)
    x = inputs(shape, 128)
    products = together(loss, parameters, (x,))
    pairs = [block for block in products if isinstance(block, PositionProducts)]
    assert pairs
    for block in pairs:
        exact = torch.bmm(block.left.double().mT, block.right.double()).flatten(1).norm(dim=1)
        torch.testing.assert_close(block.squared_norms().sqrt(), exact, rtol=1e-6, atol=0)


@pytest.mark.parametrize("scale", [1.0, 1e-12, 1e12])
def test_rows_that_cancel_do_not_hide_a_long_gradient(scale):
    """64 positions whose outer products cancel but for a little: the norm is not too small."""
    draw = torch.Generator().manual_seed(0)
    left, right = (torch.randn(3, 32, 320, generator=draw) for _ in range(2))
    near = (left * (1 + 1e-7 * torch.randn(left.shape, generator=draw))).float()
    left = scale * torch.cat((left, -near), 1)
    right = torch.cat((right, right), 1)
    found = position_products(left, right)
    assert isinstance(found, PositionProducts)
    exact = torch.bmm(left.double().mT, right.double()).flatten(1).norm(dim=1)
    norms = found.squared_norms().sqrt()
    assert bool((exact > 0).all())
    assert bool((norms >= exact).all())
    # The same by float32 takes nothing for a gradient.
    pairs = torch.bmm(left, left.mT) * torch.bmm(right, right.mT)
    assert bool((pairs.sum((1, 2)).clamp(min=0).double().sqrt() < 0.9 * exact).any())
    bound, out = 0.37, torch.empty(3, 320 * 320)
    write_clipped_sums([found], bound, [(torch.tensor([0, 1, 2, 3]), out)])
    assert bool((out.double().norm(dim=1) <= bound).all())


def test_rows_of_a_table_that_are_looked_up_twice_count_once():
    index = torch.tensor([[1, 2, 1, 1], [0, 0, 0, 3]])
    gradient = torch.randn(2, 4, 5, generator=torch.Generator().manual_seed(0))
    found = Lookups.of(index, gradient, 6)
    expected = torch.zeros(2, 6, 5).index_put_(
        (torch.arange(2)[:, None].expand(2, 4), index), gradient, accumulate=True
    )
    torch.testing.assert_close(found.rows(), expected.flatten(1))
    torch.testing.assert_close(
        found.squared_norms(), expected.double().square().sum((1, 2)), rtol=1e-6, atol=0
    )


@pytest.mark.parametrize("name", ["BERT", "embedding", "encoder", "tied", "norms", "LSTM"])
def test_clipped_sums_of_every_form_are_those_of_the_gradients(name):
    module, shape = made(name, torch.float32)
    loss, parameters = loss_of(module)
    x = inputs(shape, SAMPLES)
    products, expected = together(loss, parameters, (x,)), apart(loss, parameters, (x,)).double()
    bounds, bound = torch.tensor([0, 2, 2, 6]), 0.6 * float(expected.norm(dim=1).median())
    out = torch.full((3, expected.shape[1]), torch.nan)
    write_clipped_sums(products, bound, [(bounds, out)])
    clipped = expected * (bound / expected.norm(dim=1, keepdim=True)).clamp(max=1)
    sums = torch.stack([clipped[:2].sum(0), clipped[:0].sum(0), clipped[2:].sum(0)])
    assert float((out - sums).norm()) <= 1e-5 * float(sums.norm())


class Model(nn.Module):
    def __init__(self, called):
        super().__init__()
        self.weight, self.called = nn.Parameter(torch.randn(4, 4)), called
        self.register_buffer("table", torch.zeros(4, 4))

    def forward(self, x):
        return self.called(self, x)


class Scaled(torch.autograd.Function):
    """As straight-through estimators are written."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def written_to_a_buffer(self, x):
    table = self.table.clone()
    table[0] = self.weight[0]
    return x @ table


def changed_in_place(self, x):
    weight = self.weight * 2
    first = x @ weight
    weight.mul_(3)
    return first + x @ weight


def changed_afterwards(self, x):
    hidden = x * 1
    y = functional.linear(hidden, self.weight)
    hidden.mul_(2)
    return y


def hooked(self, x):
    y = x @ self.weight
    y.register_hook(lambda gradient: 2 * gradient)
    return y


def hooked_parameter(self, x):
    weight = self.weight.t()
    weight.register_hook(lambda gradient: 2 * gradient)
    return x @ weight


@pytest.mark.parametrize(
    "called",
    [
        written_to_a_buffer,
        changed_in_place,
        changed_afterwards,
        hooked,
        hooked_parameter,
        lambda self, x: x @ Scaled.apply(self.weight),
        lambda self, x: Scaled.apply(x @ self.weight),
        lambda self, x: Scaled.apply(functional.linear(x, self.weight)) + 0,
        lambda self, x: x @ self.weight if x.sum() > 0 else x,
        lambda self, x: (x @ self.weight) * x.max().item(),
        lambda self, x: torch.from_numpy(x.detach().numpy()) @ self.weight,
        lambda self, x: torch.utils.checkpoint.checkpoint(
            lambda y: y @ self.weight, x, use_reentrant=True
        ),
    ],
)
def test_what_cannot_be_seen_is_refused_or_exact(called):
    """No gradient is silently another one."""
    loss, parameters = loss_of(Model(called))
    arrays = (torch.randn(5, 4),)
    try:
        found = rows(together(loss, parameters, arrays))
    except Exception:
        return
    torch.testing.assert_close(found, apart(loss, parameters, arrays), rtol=1e-5, atol=1e-6)


def test_a_batch_of_samples_is_never_mixed():
    """Statistics over a batch are those of a batch of one sample."""

    def centred(self, x):
        return (x - x.mean(0)) @ self.weight + x @ self.weight.t()

    loss, parameters = loss_of(Model(centred))
    assert_exact(loss, parameters, (torch.randn(5, 4),))


def test_a_loss_without_samples_is_the_same_for_all():
    parameters = [torch.randn(3)]
    found = rows(together(lambda p, _: (p[0] ** 2).sum(), parameters, (torch.zeros(4, 1),)))
    torch.testing.assert_close(found, 2 * parameters[0].expand(4, 3))


def test_a_pass_leaves_nothing_behind_but_its_gradients():
    """Not even until Python looks for circles, which would be many passes later."""
    seen = []

    def loss(parameters, arrays):
        transposed = parameters[0].T  # derived: a further parameter of the tape
        y = (functional.linear(arrays[0], parameters[0]) @ transposed.T).tanh()
        seen.extend(weakref.ref(x) for x in (*parameters, transposed, *arrays, y))
        return y.square().mean()

    gc.disable()
    try:
        sample_products(loss, [torch.randn(3, 3)], [torch.randn(5, 3)])
        assert seen
        assert all(ref() is None for ref in seen)
    finally:
        gc.enable()


def test_a_loss_that_is_no_number_is_refused():
    with pytest.raises(NotStackable, match="shape"):
        sample_products(lambda p, a: a[0] * p[0], [torch.randn(3)], (torch.zeros(4, 3),))


@pytest.mark.parametrize("samples", [32, 96])
@pytest.mark.parametrize("name", CASES)
def test_a_gradient_is_the_same_to_the_last_bit_at_all_places(name, samples):
    """And whatever the others in its pass are, in every number that is clipped and summed."""
    module, shape = made(name, torch.float32)
    loss, parameters = loss_of(module)

    def numbers(x):
        products = together(loss, parameters, (x,))
        factors = [t for block in products for t in vars(block).values() if torch.is_tensor(t)]
        return [*factors, *(block.squared_norms() for block in products)]

    one, others = inputs(shape, 1), inputs(shape, samples, seed=2)
    for found in numbers(one.repeat_interleave(samples, 0)):
        assert torch.equal(found, found[:1].expand_as(found))
    places = [0, 1, samples // 2, samples - 1]
    mixed = others.clone()
    mixed[places] = one
    for found, same in zip(numbers(mixed), numbers(others), strict=True):
        kept = [k for k in range(samples) if k not in places]
        assert torch.equal(found[kept], same[kept])
        assert torch.equal(found[places], found[:1].expand(4, *found.shape[1:]))


@pytest.mark.parametrize("name", ["BERT", "encoder", "LSTM", "GRU", "adapters", "tied", "norms"])
def test_models_that_people_use_take_one_pass(name):
    module, shape = made(name)
    x = inputs(shape, 8)
    classes = module(x).flatten(1).shape[1]
    task = Task(
        module,
        [(x, torch.arange(8) % classes)],
        batch_size=2,
        loss=lambda output, y: functional.cross_entropy(output.flatten(1), y),
    )
    theta = task.initial(0, [0])[0]
    backend = SampleBackend.first_usable(task, theta, tuple(a[:2] for a in task.parts.arrays))
    assert (backend.way, backend.reason) == ("taped", "")


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    positions=st.integers(1, 40),
    cancel=st.floats(-9, 0),
    form=st.sampled_from(["linear", "table"]),
    bound=st.sampled_from([1e-3, 0.3, 40.0]),
)
def test_a_sample_changes_the_numbers_summed_by_at_most_its_bound(
    seed, positions, cancel, form, bound
):
    """In float64 arithmetic on the very float32 numbers, up to the rounding that is planned for."""
    draw = torch.Generator().manual_seed(seed)
    samples = 32
    if form == "linear":
        left = torch.randn(samples, positions, 24, generator=draw)
        right = torch.randn(samples, positions, 20, generator=draw)
        # Half of the positions take back what the others give, but for a little.
        half = positions // 2
        left[:, :half] = -left[:, half : 2 * half] * (1 + 10**cancel)
        right[:, :half] = right[:, half : 2 * half]
        products = position_products(left, right)
    else:
        index = torch.randint(7, (samples, positions), generator=draw)
        products = Lookups.of(index, torch.randn(samples, positions, 5, generator=draw), 60)
    without = products.without(torch.arange(samples) == 5)
    bounds = torch.tensor([0, samples])
    sums = [torch.empty(1, products.width) for _ in range(2)]
    for some, out in zip((products, without), sums, strict=True):
        write_clipped_sums([some], bound, [(bounds, out)])
    change = float((sums[0].double() - sums[1].double()).norm())
    assert change <= bound * (1 + rounding_share(samples, 1.0))
    if float(products.squared_norms()[5].sqrt()) >= bound:
        assert change > 0.9 * bound or form == "linear"
