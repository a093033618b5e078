"""Dropout by functions in a forward of the user's own, as models of other packages have it."""

import pytest
import torch
from torch import nn
from torch.func import grad, vmap
from torch.nn import functional

import tacit
from tacit import Misuse
from tacit.core.sample_keys import sample_keys
from tacit.models.dropout import DROPOUTS, KeyedDropout, KeyedFunctions
from tacit.models.mask_keys import MaskKeys
from tacit.tasks.flat import FlatModule

KEYS = sample_keys(0, 0, 4)
X = torch.randn(4, 6, 8, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("function", DROPOUTS, ids=lambda function: function.__name__)
def test_a_function_gives_what_the_layer_gives(function):
    shared = MaskKeys()
    with shared.used(KEYS), KeyedFunctions(shared):
        found = function(X, p=0.5, training=True), function(X, 0.5, True)
        assert function(X, 0.5, training=False) is X
        assert function(X, 0.0, True) is X
    with shared.used(KEYS):
        layer = KeyedDropout(0.5, shared, *DROPOUTS[function])
        expected = layer(X), layer(X)
    assert all(map(torch.equal, found, expected))
    assert not torch.equal(*found)
    with shared.used(None), KeyedFunctions(shared):
        assert function(X, 0.5, True) is X


MASKS = {
    "none": {},
    "causal": {"is_causal": True},
    "bool": {"attn_mask": torch.ones(6, 6, dtype=torch.bool).tril()},
    "added": {"attn_mask": torch.randn(6, 6)},
    "scaled": {"scale": 0.3},
}


@pytest.mark.parametrize("options", MASKS.values(), ids=MASKS)
def test_attention_without_drops_is_that_of_torch(options, monkeypatch):
    shared = MaskKeys()
    ones = lambda self, shape, p, by_channel: 0.5 * torch.ones(shape)  # noqa: E731
    monkeypatch.setattr(MaskKeys, "keep", ones)
    q = k = v = X.view(4, 6, 2, 4).transpose(1, 2)
    expected = functional.scaled_dot_product_attention(q, k, v, **options)
    with shared.used(KEYS), KeyedFunctions(shared):
        found = functional.scaled_dot_product_attention(q, k, v, dropout_p=0.5, **options)
        plain = functional.scaled_dot_product_attention(q, k, v, **options)
    torch.testing.assert_close(found, expected)
    assert torch.equal(plain, expected)


def test_queries_that_see_nothing_give_zeros_as_in_torch():
    q = k = v = X.view(4, 6, 2, 4).transpose(1, 2).clone().requires_grad_()
    mask = torch.ones(6, 6, dtype=torch.bool)
    mask[2] = False
    expected = functional.scaled_dot_product_attention(q, k, v, mask)
    shared = MaskKeys()
    for attn_mask in (mask, torch.zeros(6, 6).masked_fill(~mask, -torch.inf)):
        with shared.used(KEYS), KeyedFunctions(shared):
            # So small a probability that nothing is dropped.
            found = functional.scaled_dot_product_attention(q, k, v, attn_mask, dropout_p=1e-9)
        torch.testing.assert_close(found, expected)
        assert not found[:, :, 2].any()
        (gradient,) = torch.autograd.grad(found.square().sum(), q)
        assert gradient.isfinite().all()


@pytest.mark.parametrize("function", DROPOUTS, ids=lambda function: function.__name__)
def test_dropout_in_place_writes_over_its_input(function):
    shared, given = MaskKeys(), X.clone()
    with shared.used(KEYS), KeyedFunctions(shared):
        found = function(given, 0.5, True, inplace=True)
    assert found is given
    with shared.used(KEYS):
        assert torch.equal(found, KeyedDropout(0.5, shared, *DROPOUTS[function])(X))


class Statement(nn.Module):
    """Dropout in place whose result is not assigned, by a function or by a layer."""

    def __init__(self, layer):
        super().__init__()
        self.first, self.last, self.layer = nn.Linear(8, 16), nn.Linear(16, 3), layer

    def forward(self, x):
        h = self.first(x)
        if self.layer is None:
            functional.dropout(h, 0.5, self.training, inplace=True)
        else:
            self.layer(h)
        return self.last(h)


@pytest.mark.parametrize("layer", [None, nn.Dropout(0.5, inplace=True)], ids=["function", "layer"])
def test_dropout_in_place_needs_no_assignment(layer):
    flat = FlatModule(Statement(layer))
    x = torch.randn(4, 8)
    flat.check(x)
    theta = flat.weights()
    with torch.no_grad():
        plain, dropped = flat(theta, x), flat(theta, x, keys=KEYS)
    assert not torch.allclose(plain, dropped)
    if layer is not None:
        assert flat.with_weights(theta).layer.inplace


def test_dropout_in_place_must_not_change_the_inputs():
    flat = FlatModule(nn.Sequential(nn.Dropout(0.5, inplace=True), nn.Linear(8, 3)))
    with pytest.raises(Misuse, match="changes its inputs"):
        flat.check(torch.randn(4, 8))


class Block(nn.Module):
    """Attention and dropout by functions, as models of other packages have them."""

    def __init__(self):
        super().__init__()
        self.qkv, self.last, self.layer = nn.Linear(8, 24), nn.Linear(8, 3), nn.Dropout(0.2)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        p = 0.3 if self.training else 0.0
        h = functional.scaled_dot_product_attention(q, k, v, dropout_p=p)
        h = functional.dropout(self.layer(h), 0.3, training=self.training)
        return self.last(h.mean(1))


@pytest.mark.parametrize("training", [True, False])
def test_a_module_with_functions_and_layers(training):
    module = Block().double().train(training)
    x = X.double()
    flat = FlatModule(module)
    flat.check(x)
    theta = flat.weights()
    torch.testing.assert_close(flat(theta, x), module.eval()(x))
    together = flat(theta, x, keys=KEYS)
    assert not torch.allclose(together, flat(theta, x))
    for k in range(4):
        torch.testing.assert_close(flat(theta, x[k : k + 1], keys=KEYS[k : k + 1])[0], together[k])

    def loss(theta, x, keys):
        return flat(theta, x, keys=keys).square().mean()

    rows = theta + 0.1 * torch.randn(3, len(theta)).double()
    batched = vmap(grad(loss), (0, None, None))(rows, x, KEYS)
    torch.testing.assert_close(batched, torch.stack([grad(loss)(row, x, KEYS) for row in rows]))


def test_a_model_with_functions_only_trains_and_is_evaluated_without_dropout():
    class Dropping(nn.Linear):
        def forward(self, x):
            return functional.dropout(super().forward(x), 0.5, self.training)

    module = Dropping(8, 3)
    parts = [(X[:, 0], torch.arange(4) % 3)] * 3
    task = tacit.Task(module, parts, batch_size=2, test=parts[0])
    assert task.draws.keys
    graph = tacit.Topology.ring(3).mixing()
    before = torch.get_rng_state()
    runs = [
        tacit.run(task, tacit.DSGT(lr=0.1), graph, steps=3, gradients=how).theta
        for how in ("stacked", "looped", "looped")
    ]
    torch.testing.assert_close(runs[0], runs[1])
    assert torch.equal(runs[1], runs[2])
    scores = task.evaluation.average(task.initial(0, [0])[0])
    expected = functional.cross_entropy(module.eval()(X[:, 0]), parts[0][1])
    assert float(scores.loss) == pytest.approx(float(expected.detach()))
    assert torch.equal(before, torch.get_rng_state())


def test_what_is_not_known_is_refused():
    class Grouped(nn.Linear):
        def forward(self, x):
            q, k = super().forward(x)[:, None].repeat(1, 4, 1, 1), x[:, None].repeat(1, 2, 1, 1)
            options = {"dropout_p": 0.5, "enable_gqa": True}
            return functional.scaled_dot_product_attention(q, k, k, **options).mean((1, 2))

    class Plain(nn.Linear):
        def forward(self, x):
            return torch.dropout(super().forward(x), 0.5, True)

    for kind in (Grouped, Plain):
        with pytest.raises(Misuse, match="hidden random stream"):
            FlatModule(kind(8, 8)).check(X)
