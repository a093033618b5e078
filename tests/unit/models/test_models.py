import math

import pytest
import torch
from torch import nn

from support.misuse import misuse_message
from support.plugins import register_plugin
from tacit import models
from tacit.core.errors import Misuse
from tacit.models import registry
from tacit.tasks.flat import FlatModule


def parameters(module):
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 16, 16), (2, 17, 23)])
@pytest.mark.parametrize("name", sorted(models.MODELS))
def test_outputs_have_one_column_per_class(name, shape):
    module = models.build(name, shape, 7)
    assert module(torch.randn(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize("name", sorted(models.MODELS))
def test_all_models_are_pure_and_can_be_initialised(name):
    flat = FlatModule(models.build(name, (1, 16, 16), 3))
    flat.check(torch.randn(2, 1, 16, 16))
    assert torch.isfinite(flat.random_weights(0)).all()


def test_cnn2_on_mnist_has_the_papers_layers():
    convolutions = (1 * 25 + 1) * 16 + (16 * 25 + 1) * 32
    assert parameters(models.build("cnn2", (1, 28, 28), 10)) == convolutions + (32 * 4 * 4 + 1) * 10


@pytest.mark.parametrize("padding", [0, 1, 2])
def test_cnn2_options(padding):
    module = models.build("cnn2", (1, 21, 28), 10, filters=(3, 5), padding=padding)
    assert module(torch.randn(1, 1, 21, 28)).shape == (1, 10)
    assert [layer.out_channels for layer in module if isinstance(layer, torch.nn.Conv2d)] == [3, 5]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"filters": (0, 0)}, "filters is 0"),
        ({"filters": (4,)}, r"filters is \(4,\).*two numbers"),
        ({"padding": -3}, "padding is -3.*at least 0"),
    ],
)
def test_impossible_cnn2(options, problem):
    with pytest.raises(Misuse, match=problem):
        models.build("cnn2", (1, 21, 28), 10, **options)


def test_the_networks_for_private_training_have_their_published_sizes():
    assert parameters(models.build("tanh-cnn2", (1, 28, 28), 10)) == 26_010
    assert parameters(models.build("tanh-cnn6", (3, 32, 32), 10)) == 550_570
    half = models.build("tanh-cnn6", (3, 32, 32), 10, width=16)
    convolutions = [layer for layer in half if isinstance(layer, torch.nn.Conv2d)]
    assert [layer.out_channels for layer in convolutions] == [16, 16, 32, 32, 64, 64]
    for bad in (0, 1.5):
        with pytest.raises(Misuse, match="width"):
            models.build("tanh-cnn6", (3, 32, 32), 10, width=bad)


def test_vgg11_has_eight_convolutions_that_keep_the_size_of_activations():
    torch.manual_seed(0)
    module = models.build("vgg11", (3, 32, 32), 10)
    assert parameters(module) == 9_225_610
    filters = [layer.out_channels for layer in module if isinstance(layer, torch.nn.Conv2d)]
    assert filters == [64, 128, 256, 256, 512, 512, 512, 512]
    logits = module(torch.randn(8, 3, 32, 32))
    assert logits.shape == (8, 10)
    # With torch's own first weights they would be 0.004 apart.
    assert float(logits.detach().std(0).mean()) > 0.1


def test_resnet18_has_its_published_size():
    assert parameters(models.build("resnet18-gn", (3, 32, 32), 10)) == 11_173_962
    small = models.build("resnet18-gn", (3, 32, 32), 10, width=16)
    assert parameters(small) == 701_466
    assert not [m for m in small.modules() if isinstance(m, torch.nn.BatchNorm2d)]
    shortcuts = [block.shortcut for block in small.blocks if len(block.shortcut)]
    assert [shortcut[0].kernel_size for shortcut in shortcuts] == [(1, 1)] * 3
    # Strides halve the sides three times.
    assert small.blocks(torch.zeros(1, 16, 32, 32)).shape == (1, 128, 4, 4)
    for options, problem in [({"groups": 3}, "groups = 3"), ({"width": 0}, "width is 0")]:
        with pytest.raises(Misuse, match=problem):
            models.build("resnet18-gn", (3, 32, 32), 10, **options)


def test_a_residual_block_adds_its_input():
    from tacit.models.resnet import BasicBlock

    block = BasicBlock(4, 4, 1, groups=2)
    torch.nn.init.zeros_(block.norm2.weight)
    x = torch.rand(2, 4, 5, 5)
    assert torch.equal(block(x), x)


@pytest.mark.parametrize(
    ("shape", "options"), [((6,), {"vocabulary": 11}), ((6, 3), {}), ((2, 9, 13), {"patch": 3})]
)
def test_transformer_takes_tokens_vectors_and_images(shape, options):
    small = {"dim": 8, "heads": 2, "feedforward": 16, "layers": 2}
    module = models.build("transformer", shape, 5, **small, **options)
    tokens = "vocabulary" in options
    x = torch.randint(11, (4, *shape)) if tokens else torch.randn(4, *shape)
    assert module(x).shape == (4, 5)
    flat = FlatModule(module)
    flat.check(x)
    assert torch.isfinite(flat.random_weights(0)).all()


def test_transformer_is_an_encoder_with_norms_first():
    module = models.build("transformer", (64,), 10, vocabulary=256)
    assert parameters(module) == 3_244_042
    block = module.blocks[0]
    # torch's own layer with the same weights gives the same output.
    theirs = torch.nn.TransformerEncoderLayer(
        256, 4, 1024, 0.0, "gelu", batch_first=True, norm_first=True
    )
    attention = {"in_proj_": block.attention.qkv, "out_proj.": block.attention.out}
    own = {f"self_attn.{to}{name}": value for to, layer in attention.items()
           for name, value in layer.state_dict().items()}  # fmt: skip
    rest = {k: v for k, v in block.state_dict().items() if not k.startswith("attention")}
    theirs.load_state_dict(own | rest)
    x = torch.randn(3, 7, 256)
    torch.testing.assert_close(block(x), theirs(x))


def test_transformer_with_dropout():
    small = {"dim": 8, "heads": 2, "feedforward": 8, "layers": 1}
    module = models.build("transformer", (6, 3), 2, **small, dropout=0.5)
    x = torch.randn(2, 6, 3)
    assert not torch.equal(module(x), module(x))
    assert torch.equal(module.eval()(x), module(x))
    assert FlatModule(module).keyed


def test_transformer_knows_places():
    module = models.build("transformer", (6,), 3, vocabulary=9, dim=8, heads=2, feedforward=8)
    tokens = torch.tensor([[1, 2, 3, 4, 5, 6]])
    assert not torch.allclose(module(tokens), module(tokens.flip(1)))
    torch.nn.init.zeros_(module.positions.weight)
    torch.testing.assert_close(module(tokens), module(tokens.flip(1)))


@pytest.mark.parametrize(
    ("shape", "options", "problem"),
    [
        ((6,), {}, r"vocabulary = None.*tokens \[T\]"),
        ((1, 3, 8), {}, "at least one patch"),
        ((6, 3), {"vocabulary": 5}, "vocabulary = 5"),
        ((6,), {"vocabulary": 0}, "vocabulary is 0"),
        ((6, 3), {"heads": 3}, "heads = 3"),
        ((6, 3), {"dropout": 1}, "dropout is 1"),
    ],
)
def test_impossible_transformers(shape, options, problem):
    with pytest.raises(Misuse, match=problem):
        models.build("transformer", shape, 3, **options)


def test_lenet_is_lenet5_on_its_own_size():
    expected = (25 + 1) * 6 + (6 * 25 + 1) * 16 + (400 + 1) * 120 + (120 + 1) * 84 + (84 + 1) * 10
    assert parameters(models.build("lenet", (1, 28, 28), 10)) == expected


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh"])
def test_lenet_activation(activation):
    module = models.build("lenet", (1, 16, 16), 2, activation=activation)
    assert sum(type(layer).__name__.lower() == activation for layer in module) == 4


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh"])
def test_mlp_activation(activation):
    module = models.build("mlp", (4,), 2, hidden=[3, 3], activation=activation)
    assert sum(type(layer).__name__.lower() == activation for layer in module) == 2


def test_sigmoid_cnn_halves_twice_rounding_up():
    module = models.build("sigmoid-cnn3", (3, 5, 9), 4, filters=6)
    assert parameters(module) == (3 * 25 + 1) * 6 + 2 * (6 * 25 + 1) * 6 + (6 * 2 * 3 + 1) * 4
    assert module(torch.randn(2, 3, 5, 9)).shape == (2, 4)


def test_sigmoid_cnn_on_mnist_has_the_papers_layers():
    module = models.build("sigmoid-cnn3", (1, 28, 28), 10)
    convolutions = [layer for layer in module if isinstance(layer, torch.nn.Conv2d)]
    assert [(layer.out_channels, layer.kernel_size) for layer in convolutions] == [(12, (5, 5))] * 3
    assert sum(isinstance(layer, torch.nn.Sigmoid) for layer in module) == 3
    assert [layer.out_features for layer in module if isinstance(layer, torch.nn.Linear)] == [10]


def test_initial_weights_of_sigmoid_cnn():
    wide = models.build("sigmoid-cnn3", (1, 28, 28), 10, uniform=0.5)
    for weights in (FlatModule(wide).weights(), FlatModule(wide).random_weights(0)):
        assert 0.49 < float(weights.abs().max()) <= 0.5
        assert float(weights.std()) == pytest.approx(0.5 / math.sqrt(3), rel=0.03)
    own = models.build("sigmoid-cnn3", (1, 28, 28), 10)
    assert float(FlatModule(own).random_weights(0).abs().max()) <= 0.2  # torch's: at most 1/√25
    with pytest.raises(Misuse, match="uniform is 0"):
        models.build("sigmoid-cnn3", (1, 28, 28), 10, uniform=0)


@pytest.mark.parametrize("shape", [(5,), (2, 3), (1, 4, 4)])
def test_mlp_and_linear_take_any_shape(shape):
    inputs = math.prod(shape)
    assert parameters(models.build("linear", shape, 3)) == (inputs + 1) * 3
    two_layers = models.build("mlp", shape, 3, hidden=[8, 6])
    assert parameters(two_layers) == (inputs + 1) * 8 + 9 * 6 + 7 * 3
    assert models.build("mlp", shape, 3)(torch.randn(4, *shape)).shape == (4, 3)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *(("cnn2", (28, 28)), ("cnn2", (1, 15, 28)), ("lenet", (784,)), ("lenet", (1, 28, 15))),
        ("sigmoid-cnn3", (1, 3, 9)),
        *(("resnet18-gn", (3, 7, 32)), ("vgg11", (3, 15, 32))),
        *(("tanh-cnn2", (1, 15, 28)), ("tanh-cnn6", (3, 32, 7))),
    ],
)
def test_inputs_must_be_large_enough_images(name, shape):
    with pytest.raises(Misuse, match=r"got inputs of shape .*at least \d+×\d+.*\"mlp\""):
        models.build(name, shape, 10)


@pytest.mark.parametrize("hidden", [(), (0,), (8, -1), (2.5,)])
def test_bad_hidden_layers(hidden):
    with pytest.raises(Misuse, match="hidden is"):
        models.build("mlp", (4,), 2, hidden=hidden)


def test_unknown_model_suggests_the_closest():
    with pytest.raises(Misuse, match=r"'lenett'.*Did you mean 'lenet'"):
        models.build("lenett", (1, 28, 28), 10)


def test_unknown_options():
    with pytest.raises(Misuse, match=r"'linear'.*hidden"):
        models.build("linear", (4,), 2, hidden=(3,))
    with pytest.raises(Misuse, match='"sigmoid" or "tanh"'):
        models.build("lenet", (1, 28, 28), 10, activation="softmax")
    with pytest.raises(Misuse, match="sigmoid"):
        models.build("mlp", (4,), 2, activation="softmax")


PLUGIN = """
import math
from torch import nn

def narrow(shape, classes, *, hidden=(2,)):
    inputs = math.prod(shape)
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, *hidden), nn.Linear(*hidden, classes))

def fail(shape, classes):
    raise KeyError("lost")

def no_module(shape, classes):
    return 3
"""


@pytest.mark.parametrize(
    ("attribute", "problem"), [("fail", "cannot be made.*lost"), ("no_module", "is int, not a")]
)
def test_models_of_plugins(monkeypatch, own_module, attribute, problem):
    own_module("model_package", PLUGIN)
    register_plugin(monkeypatch, registry, "MODELS", "narrow", "model_package:narrow")
    assert list(registry.MODELS)[-1] == "narrow"
    assert models.build("narrow", (4,), 3, hidden=(5,))[1].out_features == 5
    with pytest.raises(Misuse, match="'narrow' cannot be made with depth = 1"):
        models.build("narrow", (4,), 3, depth=1)
    register_plugin(monkeypatch, registry, "MODELS", "broken", f"model_package:{attribute}")
    with pytest.raises(Misuse, match=problem):
        models.build("broken", (4,), 3)


def test_model_of_a_plugin_in_a_configuration(monkeypatch, own_module, tiny):
    from tacit.config.build import build

    own_module("model_package", PLUGIN)
    register_plugin(monkeypatch, registry, "MODELS", "narrow", "model_package:narrow")
    assert build(tiny("model.name=narrow")).task.parameters == 785 * 8 + 9 * 10
    register_plugin(monkeypatch, registry, "MODELS", "narrow", "model_package:missing")
    with pytest.raises(Misuse, match=r"'narrow' is registered by .* cannot be imported"):
        build(tiny("model.name=narrow"))


def test_dropout_of_a_perceptron():
    plain, dropping = models.mlp((4,), 3), models.mlp((4,), 3, dropout=0.2)
    assert not any(isinstance(layer, nn.Dropout) for layer in plain)
    assert dropping[3].p == 0.2
    assert "dropout" in misuse_message(models.mlp, (4,), 3, dropout=1.0)
