import copy

import pytest
import torch
from torch import nn

from tacit.core.errors import Misuse
from tacit.tasks.flat import FlatModule
from tacit.tasks.pure import PureModule
from tacit.tasks.purity import checked


class Tied(nn.Module):
    """An encoder and a decoder with one weight."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(4, 4, bias=False)
        self.decoder = nn.Linear(4, 4)
        self.decoder.weight = self.encoder.weight

    def forward(self, x):
        return self.decoder(torch.tanh(self.encoder(x)))


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.layer(x)


class Shifted(nn.Module):
    """A buffer that is only read."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("shift", torch.ones(2))

    def forward(self, x):
        return self.layer(x + self.shift)


class GaussianNoise(nn.Linear):
    def __init__(self):
        super().__init__(2, 2)

    def forward(self, x):
        y = super().forward(x)
        return y + torch.randn_like(y) if self.training else y


class Bare(nn.Module):
    """Parameters without a way to draw them."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.scale * self.layer(x)


def small_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 16, 3)
    ).double()


def frozen_first():
    module = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 4)).double()
    module[0].requires_grad_(False)
    return module


CASES = {
    "cnn": (small_cnn, (6, 1, 6, 6)),
    "tied": (lambda: Tied().double(), (3, 4)),
    "frozen": (frozen_first, (3, 4)),
}


@pytest.fixture(params=CASES)
def case(request):
    make, shape = CASES[request.param]
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return make(), torch.randn(shape, dtype=torch.float64)


def trainable(module):
    return [p for p in module.parameters() if p.requires_grad]


def test_weights_and_back(case):
    module, x = case
    flat = FlatModule(module)
    theta = flat.weights()
    assert theta.shape == (flat.width,) == (sum(p.numel() for p in trainable(module)),)
    assert torch.equal(theta, torch.cat([p.detach().flatten() for p in trainable(module)]))
    named = dict(module.named_parameters())
    for name, piece in flat.unflatten(theta).items():
        assert torch.equal(piece, named[name])
    torch.testing.assert_close(flat(theta, x), module(x), rtol=0, atol=0)


def test_the_users_module_does_not_change(case):
    module, x = case
    before = copy.deepcopy(module.state_dict())
    flat = FlatModule(module)
    flat(flat.weights() + 1, x)
    flat.weights().zero_()
    flat.random_weights(0)
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    kept = flat.weights()
    with torch.no_grad():
        trainable(module)[0].add_(1)
    assert torch.equal(flat.weights(), kept)


def test_tied_weights_are_one_parameter_used_twice():
    flat = FlatModule(Tied())
    assert flat.width == 16 + 4
    theta, x = torch.zeros(20), torch.randn(2, 4)
    theta[:16] = 3 * torch.eye(4).flatten()
    torch.testing.assert_close(flat(theta, x), 3 * torch.tanh(3 * x))


def test_frozen_parameters_take_part_but_are_not_trained():
    module = frozen_first()
    flat = FlatModule(module)
    assert flat.names == ["2.weight", "2.bias"]
    x = torch.randn(3, 4, dtype=torch.float64)
    theta = torch.randn(flat.width, dtype=torch.float64)
    weight, bias = theta[:20].view(4, 5), theta[20:]
    torch.testing.assert_close(flat(theta, x), torch.tanh(module[0](x)) @ weight.T + bias)


@pytest.mark.parametrize(
    ("layer", "remedy"),
    [
        (nn.BatchNorm1d(2), "nn.GroupNorm"),
        (nn.BatchNorm2d(2), "nn.GroupNorm"),
        (nn.SyncBatchNorm(2), "nn.GroupNorm"),
        (nn.InstanceNorm2d(2, track_running_stats=True), "track_running_stats=False"),
        (nn.LSTM(2, 2, num_layers=2, dropout=0.5), "nn.Dropout between them"),
        (nn.LazyLinear(2), "Run one batch"),
    ],
)
def test_layers_with_hidden_state_are_refused_with_a_remedy(layer, remedy):
    with pytest.raises(Misuse, match=remedy):
        FlatModule(nn.Sequential(nn.Linear(2, 2), layer))


def test_the_refused_layer_is_named():
    with pytest.raises(Misuse, match=r"'1\.0' is a BatchNorm1d"):
        FlatModule(nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.BatchNorm1d(2))))


@pytest.mark.parametrize(
    "layer",
    [
        nn.GroupNorm(1, 2),
        nn.LayerNorm(2),
        nn.Dropout(0.0),
        nn.BatchNorm1d(2, track_running_stats=False),
        Shifted(),
    ],
)
def test_pure_layers_are_accepted(layer):
    flat = FlatModule(nn.Sequential(nn.Linear(2, 2), layer))
    flat.check(torch.randn(4, 2))
    assert flat(flat.weights(), torch.randn(4, 2)).shape == (4, 2)


def test_a_module_without_trainable_parameters_is_refused():
    with pytest.raises(Misuse, match="no trainable parameters"):
        FlatModule(nn.Sequential(nn.Flatten(), nn.ReLU()))
    with pytest.raises(Misuse, match="no trainable parameters"):
        FlatModule(nn.Linear(2, 2).requires_grad_(False))


def test_a_buffer_that_changes_is_refused_by_name():
    module = Counting()
    with pytest.raises(Misuse, match=r"'calls'.*parameter"):
        checked(PureModule.of(module), torch.randn(2, 2))
    assert module.calls == 0


@pytest.mark.parametrize(
    ("module", "x"),
    [
        (GaussianNoise(), torch.randn(2, 2)),
        (GaussianNoise().eval(), torch.randn(2, 2)),
        (nn.Sequential(nn.RReLU(), nn.Linear(2, 2)), torch.full((4, 2), -1.0)),
    ],
)
def test_randomness_that_is_no_dropout_is_refused(module, x):
    before = torch.get_rng_state()
    with pytest.raises(Misuse, match=r"hidden random stream.*nn.Dropout"):
        checked(PureModule.of(module), x)
    assert torch.equal(before, torch.get_rng_state())


def test_random_weights_are_keyed():
    flat = FlatModule(small_cnn())
    one = flat.random_weights(3, "init", 0)
    assert one.shape == (flat.width,)
    assert one.dtype == torch.float64
    assert torch.equal(one, flat.random_weights(3, "init", 0))
    for other in ((4, "init", 0), (3, "init", 1), (3, "start", 0)):
        assert not torch.equal(one, flat.random_weights(*other))
    assert not torch.equal(one, flat.weights())


def test_random_weights_neither_use_nor_change_the_global_stream():
    flat = FlatModule(small_cnn())
    torch.manual_seed(1)
    one = flat.random_weights(3, "init")
    drawn = torch.rand(3)
    torch.manual_seed(1)
    assert torch.equal(drawn, torch.rand(3))
    assert torch.equal(one, flat.random_weights(3, "init"))


def test_random_weights_use_the_initialisation_of_the_layers():
    flat = FlatModule(nn.Sequential(nn.Linear(100, 50), nn.GroupNorm(5, 50)))
    pieces = flat.unflatten(flat.random_weights(0))
    assert bool((pieces["1.weight"] == 1).all())
    assert bool((pieces["1.bias"] == 0).all())
    assert 0.09 < float(pieces["0.weight"].abs().max()) <= 0.1  # nn.Linear draws from ±1/√100


def test_parameters_that_no_layer_draws_are_refused():
    with pytest.raises(Misuse, match=r"'scale'.*reset_parameters.*init=\"module\""):
        FlatModule(Bare()).random_weights(0)


def test_frozen_parameters_need_no_way_to_be_drawn():
    module = Bare()
    module.scale.requires_grad_(False)
    assert FlatModule(module).random_weights(0).shape == (6,)
