"""Dropout by keys: the right probability, independent masks, and no dependence on the batch."""

import pytest
import torch
from torch import nn
from torch.func import grad, vmap

from support.misuse import assert_mentions, misuse_message
from tacit import Misuse, models
from tacit.core.sample_keys import fold, sample_keys
from tacit.models.attention import PlainAttention
from tacit.models.dropout import KeyedDropout, without_keys
from tacit.models.mask_keys import MaskKeys
from tacit.tasks.flat import FlatModule
from tacit.tasks.task import Task

KEYS = sample_keys(0, 0, 200)
# Too small for a word of 32 bits, so that nothing is dropped, but not zero.
NOTHING = 1e-12


def masks(p, shape, keys=KEYS, layers=1, **options):
    """What layers make of ones, in one pass."""
    shared = MaskKeys()
    with shared.used(keys):
        return [KeyedDropout(p, shared, **options)(torch.ones(shape)) for _ in range(layers)]


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_keeps_with_probability_one_minus_p(p):
    (x,) = masks(p, (200, 500))
    kept = (x != 0).double()
    deviation = (p * (1 - p) / kept.numel()) ** 0.5
    assert abs(float(kept.mean()) - (1 - p)) < 5 * deviation
    assert torch.allclose(x[x != 0], torch.tensor(1 / (1 - p)))
    # Also for every sample and for every element.
    assert float((kept.mean(1) - 1 + p).abs().max()) < 5 * (p * (1 - p) / 500) ** 0.5
    assert float((kept.mean(0) - 1 + p).abs().max()) < 5 * (p * (1 - p) / 200) ** 0.5


def test_masks_of_layers_samples_clients_batches_and_seeds_are_independent():
    one, two = masks(0.5, (200, 300), layers=2)
    others = [
        two,
        one.roll(1, 0),
        one.roll(1, 1),
        masks(0.5, (200, 300), sample_keys(0, 1, 200))[0],
        masks(0.5, (200, 300), sample_keys(1, 0, 200))[0],
        masks(0.5, (200, 300), fold(KEYS, 0))[0],
    ]
    for other in others:
        # Each is ±1 after centring; the mean of 60,000 products has deviation 0.004.
        assert abs(float(((one - 1) * (other - 1)).mean())) < 0.02


def test_the_mask_of_a_sample_does_not_depend_on_the_batch():
    (together,) = masks(0.3, (200, 7, 3))
    for sample in (0, 17, 199):
        (alone,) = masks(0.3, (1, 7, 3), KEYS[sample : sample + 1])
        assert torch.equal(alone[0], together[sample])


def test_nothing_and_everything_can_be_dropped():
    assert torch.equal(masks(1.0, (200, 3))[0], torch.zeros(200, 3))
    assert torch.equal(masks(1.0, (200, 3), alpha=True)[0], torch.zeros(200, 3))


def test_channels_are_dropped_whole():
    (x,) = masks(0.5, (200, 8, 4, 5), by_channel=True)
    assert torch.equal(x, x[:, :, :1, :1].expand_as(x))
    assert 0.4 < float((x != 0).double().mean()) < 0.6


def test_alpha_dropout_keeps_mean_and_variance():
    shared = MaskKeys()
    x = torch.randn(200, 2000, generator=torch.Generator().manual_seed(0))
    with shared.used(KEYS):
        y = KeyedDropout(0.3, shared, alpha=True)(x)
    assert abs(float(y.mean())) < 0.02
    assert abs(float(y.var()) - 1) < 0.02


class Encoder(nn.Module):
    """A transformer with dropout everywhere, for sequences of ten whole numbers."""

    def __init__(self, batch_first=True, p=0.2):
        super().__init__()
        self.batch_first = batch_first
        self.embed = nn.Embedding(10, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, p, batch_first=batch_first)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last = nn.Sequential(nn.Dropout(p), nn.Linear(8, 3))

    def forward(self, x):
        h = self.embed(x)
        h = self.layers(h if self.batch_first else h.transpose(0, 1))
        return self.last(h.mean(1 if self.batch_first else 0))


def flat_of(module, x):
    flat = FlatModule(module.double())
    flat.check(x)
    return flat


@pytest.mark.parametrize("batch_first", [True, False])
def test_the_output_of_a_transformer_for_a_sample_does_not_depend_on_the_batch(batch_first):
    """Length 10 is a multiple of the batch: sizes alone do not tell the samples' dimension."""
    x = torch.randint(10, (5, 10), generator=torch.Generator().manual_seed(0))
    flat = flat_of(Encoder(batch_first), x)
    theta, keys = flat.weights(), KEYS[:5]
    together = flat(theta, x, keys=keys)
    for k in range(5):
        alone = flat(theta, x[k : k + 1], keys=keys[k : k + 1])
        torch.testing.assert_close(alone[0], together[k])
    assert not torch.allclose(together, flat(theta, x))
    assert not torch.allclose(together, flat(theta, x, keys=fold(keys, 1)))


def test_a_task_knows_the_dimension_of_the_samples():
    x, y = torch.randint(10, (6, 10)), torch.arange(6) % 3
    task = Task(Encoder(batch_first=False), [(x, y)], batch_size=2)
    theta, keys = task.initial(0, [0])[0], KEYS[:2]
    together = task.loss(theta, x[:2], y[:2], keys)
    alone = [task.loss(theta, x[k : k + 1], y[k : k + 1], keys[k : k + 1]) for k in range(2)]
    torch.testing.assert_close(together, torch.stack(alone).mean())


def test_without_keys_it_is_the_module_in_evaluation():
    x = torch.randint(10, (5, 10))
    module = Encoder()
    flat = flat_of(module, x)
    torch.testing.assert_close(flat(flat.weights(), x), module.eval()(x))


def test_batched_and_looped_gradients_agree():
    x = torch.randint(10, (3, 4, 10))
    flat = flat_of(Encoder(), x[0])
    theta = flat.weights().repeat(3, 1) + 0.01 * torch.randn(3, flat.width).double()
    keys = KEYS[:12].view(3, 4)

    def loss(theta, x, keys):
        return flat(theta, x, keys=keys).square().mean()

    batched = vmap(grad(loss))(theta, x, keys)
    looped = torch.stack([grad(loss)(*own) for own in zip(theta, x, keys, strict=True)])
    torch.testing.assert_close(batched, looped)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_without_drops_is_that_of_torch(causal):
    """The same numbers as nn.MultiheadAttention, masks included."""
    plain = nn.MultiheadAttention(8, 2, dropout=0.5, batch_first=True).double()
    layer = models.keyed(plain)
    assert plain.dropout == 0.5
    layer.p, x = NOTHING, torch.randn(3, 6, 8).double()
    padding = torch.zeros(3, 6, dtype=torch.bool)
    padding[:, 4:] = True
    mask = torch.ones(6, 6, dtype=torch.bool).triu(1) if causal else None
    options = {"key_padding_mask": padding, "attn_mask": mask}
    expected = plain.eval()(x, x, x, **options)
    with layer.keys.used(KEYS[:3]):
        # One input for all, and three.
        found = [layer(x, x, x, **options), layer(x, x.clone(), x, **options)]
    for pair in found:
        for ours, theirs in zip(pair, expected, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_attention_with_other_sizes_and_lengths():
    plain = nn.MultiheadAttention(8, 2, dropout=0.5, kdim=5, vdim=7).double()
    layer = models.keyed(plain)
    layer.p = NOTHING
    q, k, v = (torch.randn(length, 3, size).double() for length, size in ((4, 8), (6, 5), (6, 7)))
    with layer.keys.used(KEYS[:3]):
        found, weights = layer(q, k, v, need_weights=False)
    assert weights is None
    torch.testing.assert_close(found, plain.eval()(q, k, v)[0])


def test_the_weights_of_attention_are_dropped_with_probability_p():
    layer = models.keyed(nn.MultiheadAttention(8, 2, dropout=0.4, batch_first=True))
    x = torch.randn(200, 12, 8)
    with layer.keys.used(KEYS):
        _, weights = layer(x, x, x, average_attn_weights=False)
    assert abs(float((weights == 0).double().mean()) - 0.4) < 0.02


def test_a_layer_that_is_used_twice_draws_twice():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.dropout, self.weight = nn.Dropout(0.5), nn.Parameter(torch.ones(100))

        def forward(self, x):
            first = self.dropout(x * self.weight)
            return torch.stack((first, self.dropout(x * self.weight)), 1)

    flat = FlatModule(Twice())
    y = flat(flat.weights(), torch.ones(4, 100), keys=KEYS[:4])
    assert 0.3 < float((y[:, 0] == y[:, 1]).double().mean()) < 0.7


def test_the_users_module_does_not_change_and_copies_of_copies_work():
    module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Sequential(nn.Dropout2d(0.2)))
    text = repr(module)
    once = models.keyed(module)
    assert repr(module) == text
    twice = models.keyed(once)
    assert repr(twice) == repr(once)
    assert_mentions(repr(once), "KeyedDropout(p=0.5)", "KeyedDropout(p=0.2, by_channel=True)")
    assert twice[1].keys is twice[2][0].keys
    assert twice[1].keys is not once[1].keys


def test_modules_keyed_apart_do_not_share_masks_when_put_together():
    parts = [models.keyed(nn.Sequential(nn.Linear(50, 50), nn.Dropout(0.5))) for _ in range(2)]
    together = models.keyed(nn.Sequential(*parts))
    assert together[0][1].keys is together[1][1].keys


def test_a_model_that_is_only_dropout():
    assert isinstance(models.keyed(nn.Dropout(0.5)), KeyedDropout)
    assert isinstance(models.keyed(nn.Dropout(0.0)), nn.Dropout)


class OwnDropout(nn.Dropout):
    def forward(self, x):
        return super().forward(x) + 1


class OwnAttention(nn.MultiheadAttention):
    def forward(self, *args, **options):
        return super().forward(*args, **options)


@pytest.mark.parametrize(
    ("layer", "remedy"),
    [
        (OwnDropout(0.5), "nn.AlphaDropout"),
        (OwnAttention(4, 2, dropout=0.5), "plain nn.MultiheadAttention"),
        (nn.MultiheadAttention(4, 2, dropout=0.5, add_zero_attn=True), "add_zero_attn"),
        (nn.GRU(2, 2, num_layers=2, dropout=0.5), "nn.Dropout between them"),
    ],
)
def test_dropout_that_cannot_be_keyed_is_refused(layer, remedy):
    assert remedy in misuse_message(models.keyed, nn.Sequential(layer))


def test_attention_of_one_sequence_is_refused():
    layer = models.keyed(nn.MultiheadAttention(4, 2, dropout=0.5))
    x = torch.randn(3, 4)
    with layer.keys.used(KEYS[:1]):
        assert "without samples" in misuse_message(layer, x, x, x)


def test_tensors_that_do_not_divide_into_samples_are_refused():
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.dropout = nn.Linear(3, 5), nn.Dropout(0.5)

        def forward(self, x):
            return self.linear(x) + self.dropout(x.mean((0, 1)))

    flat = FlatModule(Mean())
    with pytest.raises(Misuse, match="no dimension counts the samples"):
        flat.check(torch.randn(2, 3))
    with pytest.raises(Misuse, match="does not divide"), MaskKeys().used(KEYS) as _:
        masks(0.5, (7, 3), KEYS[:2])


def test_a_layer_in_two_places_is_replaced_in_both_by_one():
    drop = nn.Dropout(0.5)
    made = models.keyed(nn.Sequential(drop, nn.Linear(2, 2), drop))
    assert isinstance(made[0], KeyedDropout)
    assert made[2] is made[0]


@pytest.mark.parametrize(
    "layer",
    [
        nn.Dropout(0.1),
        nn.Dropout1d(0.2),
        nn.Dropout2d(0.3),
        nn.Dropout3d(0.4),
        nn.AlphaDropout(0.5),
        nn.FeatureAlphaDropout(0.6),
    ],
)
def test_dropout_is_torchs_own_again(layer):
    again = without_keys(models.keyed(nn.Sequential(nn.Linear(2, 2), layer)))[1]
    assert type(again) is type(layer)
    assert again.p == layer.p
    alone = without_keys(models.keyed(layer))
    assert type(alone) is type(layer)


def test_a_layer_with_two_names_is_replaced_under_both():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = KeyedDropout(0.5, None)
            self.second = self.first

    again = without_keys(Twice())
    assert type(again.first) is type(again.second) is nn.Dropout


def test_attention_is_torchs_own_again_unless_it_has_adapters():
    encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
    again = without_keys(models.keyed(encoder))
    assert type(again.self_attn) is nn.MultiheadAttention
    assert again.self_attn.dropout == 0.2
    x = torch.randn(3, 4, 8)
    torch.testing.assert_close(again.eval()(x), encoder.eval()(x))
    adapted = without_keys(models.keyed(models.lora(encoder, rank=2)))
    assert type(adapted.self_attn) is PlainAttention
    torch.testing.assert_close(adapted.eval()(x), encoder(x))
