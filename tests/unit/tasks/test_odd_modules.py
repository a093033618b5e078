"""Modules as people write them: their gradients are those of torch, or they are refused."""

import copy
import random

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import tacit
from tacit.core.errors import Misuse
from tacit.engines.gradients.client_passes import GradientBackend, choose_backend
from tacit.engines.gradients.sample_passes import SampleBackend
from tacit.tasks.known_layers import is_known

SIZE, CLASSES = 6, 3


class Net(nn.Module):
    """Two linear layers, with a step of one's own between them."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(SIZE, SIZE), nn.Linear(SIZE, CLASSES)

    def forward(self, x):
        return self.last(self.between(self.first(x)))

    def between(self, x):
        return torch.tanh(x)


def with_hook(module):
    module.register_forward_hook(lambda layer, given, output: 2 * output)
    return module


def with_forward(module):
    module.forward = lambda x: x
    return module


@pytest.mark.parametrize(
    ("module", "known"),
    [
        (tacit.models.build("resnet18-gn", (3, 8, 8), 10), True),
        (nn.Sequential(nn.Linear(2, 2), nn.GELU(), nn.LayerNorm(2)), True),
        (Net(), False),
        (nn.LSTM(2, 2), False),
        (nn.Sequential(nn.MultiheadAttention(2, 1)), False),
        (nn.Sequential(with_hook(nn.Linear(2, 2))), False),
        (nn.Sequential(with_forward(nn.Linear(2, 2))), False),
        (nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)), False),
    ],
)
def test_only_layers_of_libraries_need_no_trial_of_gradients(module, known):
    assert is_known(module) is known


class Checkpointed(Net):
    def forward(self, x):
        again = checkpoint(lambda z: torch.tanh(self.first(z)), x, use_reentrant=False)
        return self.last(again)


class Counter(Net):
    calls = 0

    def between(self, x):
        self.calls += 1
        return x / self.calls


class Memory(Net):
    before = None

    def between(self, x):
        shift = 0 if self.before is None else self.before
        self.before = x.detach().mean(0)
        return x - shift


class ScaledByTheFirstBatch(Net):
    scale = None

    def between(self, x):
        if self.scale is None:
            self.scale = x.detach().std()
        return x / self.scale


class WarmsUp(Net):
    """Its state has no influence on the first calls."""

    calls = 0

    def between(self, x):
        self.calls += 1
        return x - x.mean(0) if self.calls > 1000 else x


class BoundsWeights(Net):
    """As networks for brain signals do; in the beginning, no weight is that large."""

    def forward(self, x):
        weight = self.last.weight
        weight.data = torch.renorm(weight.data, p=2, dim=0, maxnorm=4)
        return super().forward(x)


class PythonRandom(Net):
    def between(self, x):
        return x * random.random()


class SeldomDropsALayer(Net):
    def between(self, x):
        return 0 * x if random.random() < 1e-9 else x


class SeldomDropsALayerByNumpy(Net):
    def between(self, x):
        return 0 * x if np.random.rand() < 1e-9 else x


class OwnGenerator(Net):
    def __init__(self):
        super().__init__()
        self.generator = torch.Generator()

    def between(self, x):
        return x + torch.rand(SIZE, generator=self.generator)


class WritesWeights(Net):
    def forward(self, x):
        with torch.no_grad():
            self.first.weight.clamp_(-0.1, 0.1)
        return super().forward(x)


class ReplacesWeights(Net):
    def forward(self, x):
        self.first.weight = nn.Parameter(self.first.weight.detach() * 0.5)
        return super().forward(x)


class WritesInputs(Net):
    def forward(self, x):
        return super().forward(x.mul_(2))


class Constant(Net):
    def forward(self, x):
        return super().forward(x).detach()


def old_weight_norm():
    with pytest.warns(FutureWarning):
        return nn.Sequential(nn.utils.weight_norm(nn.Linear(SIZE, SIZE)), nn.Linear(SIZE, CLASSES))


def with_parameter_hook():
    net = Net()
    net.first.weight.register_hook(lambda gradient: 0 * gradient)
    return net


def parts(inputs=None):
    made = torch.Generator().manual_seed(0)
    drawn = [torch.randn(8, SIZE, generator=made) for _ in range(3)] if inputs is None else inputs
    return [(x, torch.randint(0, CLASSES, (len(x),), generator=made)) for x in drawn]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (Checkpointed, "checkpoint"),
        (Counter, "state"),
        (Memory, "state"),
        (WarmsUp, "'calls'"),
        (BoundsWeights, "'last.weight'"),
        (ScaledByTheFirstBatch, "state"),
        (PythonRandom, "random"),
        (SeldomDropsALayer, "random"),
        (SeldomDropsALayerByNumpy, "random"),
        (OwnGenerator, "random"),
        (WritesWeights, "Do not change"),
        (ReplacesWeights, "Do not change"),
        (WritesInputs, "copy"),
        (Constant, "depend"),
        (old_weight_norm, "parametrizations"),
        (with_parameter_hook, "hook"),
        (lambda: torch.jit.script(nn.Linear(SIZE, CLASSES)), "torch.jit"),
        (lambda: nn.Linear(SIZE, CLASSES, dtype=torch.complex64), "view_as_real"),
    ],
)
def test_what_is_no_pure_function_is_refused_with_a_remedy(make, remedy):
    with pytest.raises(Misuse) as refused:
        tacit.Task(make(), parts(), batch_size=4)
    assert remedy in str(refused.value)


@pytest.mark.parametrize("options", [{"max_norm": 0.5}, {"sparse": True}])
def test_embeddings_that_cannot_be_trained_are_refused(options):
    tokens = [torch.randint(0, 10, (8, 5)) for _ in range(3)]
    module = nn.Sequential(nn.Embedding(10, 4, **options), nn.Flatten(), nn.Linear(20, CLASSES))
    with pytest.raises(Misuse, match=r"max_norm|sparse"):
        tacit.Task(module, parts(tokens), batch_size=4)


def test_nan_in_the_first_samples_is_no_change_of_the_inputs():
    given = parts()
    given[0][0][0, 0] = torch.nan
    with pytest.raises(Misuse, match="data of client 0 have NaN in sample 0"):
        tacit.Task(Net(), given, batch_size=4)


class OnlyInTraining(Net):
    def forward(self, x):
        y = super().forward(x)
        return y if self.training else -y


def test_a_model_is_scored_in_evaluation_mode():
    torch.manual_seed(0)
    x, y = parts()[0]
    graph = tacit.Topology.ring(3).mixing("metropolis")
    task = tacit.Task(OnlyInTraining(), parts(), batch_size=4, test=(x, y))
    run = tacit.run(task, tacit.DSG(lr=0.1), graph, steps=2)
    found = task.evaluation.models(run.theta[:1], [0]).loss
    module = run.module(client=0)
    assert float(found[0]) == pytest.approx(float(functional.cross_entropy(module(x), y)))
    in_training = functional.cross_entropy(module.train()(x), y)
    assert float(found[0]) != pytest.approx(float(in_training))


def test_a_module_that_keeps_its_outputs_can_be_trained():
    class Keeping(Net):
        def __init__(self):
            super().__init__()
            self.seen = []

        def between(self, x):
            self.seen.append(x)
            return torch.tanh(x)

    task = tacit.Task(Keeping(), parts(), batch_size=4)
    run = tacit.run(task, tacit.DSG(lr=0.1), tacit.Topology.ring(3).mixing("metropolis"), steps=2)
    assert run.theta.isfinite().all()


class KeepsTheLast(Net):
    last_seen = None

    def between(self, x):
        if self.last_seen is not None and x.requires_grad and len(x) == len(self.last_seen):
            x = x + self.last_seen
        self.last_seen = x.detach()
        return torch.tanh(x)


class CountsSeldom(Net):
    """Changes a buffer, but not in the trial."""

    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def between(self, x):
        if len(x) == 4:
            self.count += 1
        return torch.tanh(x + (self.count if self.count > 3 else 0))


def test_no_call_sees_what_an_earlier_one_kept():
    task = tacit.Task(KeepsTheLast(), parts(), batch_size=4)
    theta, arrays = task.initial(0, [0, 1, 2]), batches(task)[1]
    for strategy in ("stacked", "looped"):
        first, again = torch.empty_like(theta), torch.empty_like(theta)
        for out in (first, again):
            GradientBackend.of(task, strategy).write(theta, arrays, out)
        assert torch.equal(first, again)
    backend = SampleBackend.of(task, "taped")
    one, other = (backend.gradients(theta[0], [a[k] for a in arrays]) for k in (0, 0))
    assert all(torch.equal(x.rows(), y.rows()) for x, y in zip(one, other, strict=True))


def test_a_buffer_that_changes_later_on_ends_the_run():
    task = tacit.Task(CountsSeldom(), parts(), batch_size=4)
    with pytest.raises(Misuse, match="changes its tensor 'count'"):
        tacit.run(task, tacit.DSG(lr=0.1), tacit.Topology.ring(3).mixing("metropolis"), steps=2)


def test_a_user_who_runs_the_module_first_gets_the_same_task():
    module = Net()
    module(torch.randn(2, SIZE)).sum().backward()
    assert tacit.Task(module, parts(), batch_size=4).parameters == 63


@pytest.mark.parametrize("wrap", [nn.DataParallel, lambda module: torch.compile(module)])
def test_wrappers_are_taken_off(wrap):
    module = Net()
    task = tacit.Task(wrap(module), parts(), batch_size=4)
    assert task.loss.flat.names == [name for name, _ in module.named_parameters()]


class TiedTokens(nn.Module):
    """Tokens, of which number 0 is padding, predicted by the weights that embed them."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 8, padding_idx=0)
        self.out = nn.Linear(8, 10, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x):
        return self.out(torch.tanh(self.embed(x)))


class VectorWeight(Net):
    """A weight of one dimension."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(SIZE))

    def between(self, x):
        return x * functional.linear(x, self.weight)[:, None]


class NoNumbers(Net):
    """A parameter without numbers."""

    def __init__(self):
        super().__init__()
        self.empty = nn.Parameter(torch.zeros(0))

    def between(self, x):
        return x + self.empty.sum()


class CommonQuery(nn.Module):
    """Attention whose query has no dimension of samples."""

    def __init__(self):
        super().__init__()
        self.embed, self.query = nn.Embedding(10, 8), nn.Parameter(torch.randn(1, 2, 8))
        self.out = nn.Linear(8, CLASSES)

    def forward(self, x):
        keys = self.embed(x)
        seen = functional.scaled_dot_product_attention(self.query, keys, keys)
        return self.out(seen.mean(1))


class ExtraWeight(nn.Sequential):
    """A chain with a shared layer, and as many other weights as it lacks thereby."""

    def __init__(self):
        shared = nn.Linear(SIZE, SIZE)
        super().__init__(shared, nn.ReLU(), shared, nn.ReLU(), nn.Linear(SIZE, CLASSES))
        self.weight = nn.Parameter(torch.randn(SIZE * SIZE + SIZE))


def doubling_hook():
    module = nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU(), nn.Linear(SIZE, CLASSES))
    module[2].register_full_backward_hook(lambda layer, by_input, by_output: (2 * by_input[0],))
    return module


class ClippedAbove(Net):
    """Gradients are clipped inside of the model, where they are large."""

    def between(self, x):
        if self.clips(x):
            x.register_hook(lambda gradient: gradient.clamp(-1e3, 1e3))
        return torch.tanh(x)

    def clips(self, x):
        return torch.is_grad_enabled()


class ClippedIfTrained(ClippedAbove):
    def clips(self, x):
        return x.requires_grad


class Squeezed(Net):
    def forward(self, x):
        return super().forward(x).squeeze()


class Transposed(Net):
    def forward(self, x):
        return super().forward(x).T


@pytest.mark.parametrize("make", [Squeezed, Transposed])
def test_outputs_without_a_first_dimension_of_samples_are_refused(make):
    with pytest.raises(Misuse, match="first dimension"):
        tacit.Task(make(), parts(), batch_size=1)


def test_a_loss_that_fails_is_refused_before_the_run():
    task = tacit.Task(torch.zeros(3), [torch.ones(4)] * 3, loss=lambda theta, x: theta @ x)
    with pytest.raises(Misuse, match="theta0"):
        tacit.run(task, tacit.DSG(lr=0.1), tacit.Topology.ring(3).mixing("metropolis"), steps=1)


class TokensFirst(nn.Module):
    """Dropout of rows in which the samples of a token follow each other."""

    def __init__(self, samples_first=False):
        super().__init__()
        self.embed, self.drop = nn.Embedding(10, 8), nn.Dropout(0.5)
        self.out, self.samples_first = nn.Linear(8, CLASSES), samples_first

    def forward(self, x):
        rows = self.embed(x)
        if self.samples_first:
            return self.out(self.drop(rows.flatten(0, 1)).view(len(x), -1, 8).mean(1))
        dropped = self.drop(rows.transpose(0, 1).flatten(0, 1))
        return self.out(dropped.view(-1, len(x), 8).mean(0))


def test_dropout_in_another_order_of_samples_is_refused():
    tokens = [torch.randint(0, 10, (8, 5)) for _ in range(3)]
    tacit.Task(TokensFirst(samples_first=True), parts(tokens), batch_size=4)
    with pytest.raises(Misuse, match="order of its own"):
        tacit.Task(TokensFirst(), parts(tokens), batch_size=4)


class Centred(nn.Module):
    """A loss that subtracts a moving mean of the outputs it has seen."""

    def __init__(self):
        super().__init__()
        self.centre = torch.zeros(CLASSES)

    def forward(self, output, targets):
        self.centre = 0.9 * self.centre + 0.1 * output.detach().mean(0)
        return functional.cross_entropy(output - self.centre, targets)


class LateCentred(Centred):
    calls = 0

    def forward(self, output, targets):
        self.calls += 1
        if self.calls > 1000:
            return super().forward(output, targets)
        return functional.cross_entropy(output, targets)


def loss_with_noise(output, targets):
    return functional.cross_entropy(output * random.random(), targets)


@pytest.mark.parametrize("loss", [Centred(), LateCentred(), loss_with_noise])
def test_losses_with_a_state_or_hidden_random_numbers_are_refused(loss):
    with pytest.raises(Misuse, match=r"when(ever)? it is called|hidden random stream"):
        tacit.Task(Net(), parts(), loss=loss, batch_size=4)


TOKENS = torch.arange(120).reshape(3, 8, 5) % 7
USABLE = {
    "tied tokens": (TiedTokens, TOKENS, TOKENS),
    "a weight of one dimension": (VectorWeight, None, None),
    "a parameter without numbers": (NoNumbers, None, None),
    "a common query": (CommonQuery, TOKENS, None),
    "extra weights": (ExtraWeight, None, None),
    "a hook of the backward pass": (doubling_hook, None, None),
    "a hook that does nothing to these samples": (ClippedAbove, None, None),
    "a hook where a gradient is required": (ClippedIfTrained, None, None),
}


def odd_task(name):
    torch.manual_seed(0)
    make, inputs, targets = USABLE[name]
    given = parts(inputs)
    if targets is not None:
        given = list(zip(inputs, targets, strict=True))
    module = make()
    return module, tacit.Task(module, given, batch_size=4)


def batches(task):
    loader = task.loader(torch.arange(3), 0, "cpu")
    _, load = next(iter(loader.chunks(0, lambda count: [slice(0, count)])))
    return loader, load()


def torch_gradient(task, module, theta, arrays):
    plain = tacit.models.load_weights(copy.deepcopy(module).train(), theta)
    task.loss.criterion(plain(arrays[0]), arrays[1]).backward()
    trained = [p for p in plain.parameters() if p.requires_grad]
    return torch.cat(
        [(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in trained]
    )


@pytest.mark.parametrize("name", USABLE)
def test_every_strategy_that_is_used_has_the_gradients_of_torch(name, monkeypatch):
    module, task = odd_task(name)
    loader, arrays = batches(task)
    theta = task.initial(0, [0, 1, 2])
    theta = theta + 0.1 * torch.randn(theta.shape)
    expected = torch.stack(
        [torch_gradient(task, module, theta[k], [a[k] for a in arrays]) for k in range(3)]
    )
    used = []
    for strategy in ("stacked", "looped"):
        try:
            choose_backend(task, [0, 1, 2], loader, 0, "cpu", strategy)
        except Misuse:
            continue
        out = torch.empty_like(theta)
        GradientBackend.of(task, strategy).write(theta, arrays, out)
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-6)
        used.append(strategy)
    assert "looped" in used
    assert ("stacked" in used) == ("hook" not in name)


@pytest.mark.parametrize("name", USABLE)
def test_gradients_of_samples_are_those_of_torch(name):
    module, task = odd_task(name)
    _, arrays = batches(task)
    theta = task.initial(0, [0])[0]
    theta = theta + 0.1 * torch.randn(theta.shape)
    own = tuple(array[0] for array in arrays)
    backend = SampleBackend.first_usable(task, theta, own)
    found = torch.cat([block.rows() for block in backend.gradients(theta, own)], 1)
    one_by_one = [tuple(array[k : k + 1] for array in own) for k in range(4)]
    expected = torch.stack([torch_gradient(task, module, theta, one) for one in one_by_one])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_rounding_at_an_optimum_is_no_reason_to_refuse_a_strategy():
    def loss(theta, x):
        return (theta - x.mean(0)).square().sum()

    x = torch.full((8, 3), 1 / 3)
    task = tacit.Task(x[0], [(x,)] * 3, loss=loss, batch_size=4)
    loader, _ = batches(task)
    assert choose_backend(task, [0, 1, 2], loader, 0, "cpu", "stacked").strategy == "stacked"


def test_a_requested_strategy_that_fails_is_refused():
    class Branch(Net):
        def between(self, x):
            return x if x.sum() > 0 else 2 * x

    task = tacit.Task(Branch(), parts(), batch_size=4)
    loader, _ = batches(task)
    with pytest.raises(Misuse, match="looped"):
        choose_backend(task, [0, 1, 2], loader, 0, "cpu", "stacked")
