"""Low-rank adapters: what is trained, what they compute, and merging them."""

import copy

import pytest
import torch
from torch import nn
from torch.func import grad, vmap

import tacit
from support.misuse import assert_mentions, misuse_message
from tacit import models
from tacit.models.attention import PlainAttention
from tacit.models.low_rank import LoRALinear
from tacit.tasks.flat import FlatModule


class Classifier(nn.Module):
    """A transformer for sequences of six whole numbers."""

    def __init__(self, p=0.0):
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, p, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x)).mean(1))


X = torch.randint(10, (4, 6), generator=torch.Generator().manual_seed(0))


def randomised(module):
    """The module with random numbers in the adapters, which start without effect."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "lora_" in name:
                parameter.normal_()
    return module


def trainable(module):
    return {name for name, p in module.named_parameters() if p.requires_grad}


def test_only_the_adapters_are_trained_and_they_start_without_effect():
    model = Classifier()
    before = copy.deepcopy(model.state_dict())
    adapted = models.lora(model, rank=2)
    assert all("lora_" in name for name in trainable(adapted))
    # In each layer: three projections, the output, and two linear layers; and the head.
    per_layer = 3 * 2 * (8 + 8) + 2 * (8 + 8) + 2 * 2 * (8 + 16)
    count = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    assert count == 2 * per_layer + 2 * (8 + 3)
    torch.testing.assert_close(adapted(X), model(X))
    assert all(p.requires_grad for p in model.parameters())
    assert all(torch.equal(model.state_dict()[name], own) for name, own in before.items())


@pytest.mark.parametrize("training", [True, False])
def test_merging_gives_the_same_function(training):
    # In float64, because random adapters can make numbers large.
    adapted = randomised(models.lora(Classifier().double(), rank=2, alpha=3)).train(training)
    merged = models.merge_lora(adapted)
    with torch.no_grad():
        torch.testing.assert_close(merged(X), adapted(X), rtol=1e-6, atol=1e-8)
        assert not torch.allclose(adapted(X), Classifier().double()(X), atol=1e-2)
    assert merged.state_dict().keys() == Classifier().state_dict().keys()
    assert all(p.requires_grad for p in merged.parameters())
    assert not any(isinstance(layer, LoRALinear | PlainAttention) for layer in merged.modules())


def test_evaluation_with_padding_does_not_skip_the_adapters():
    """Transformers have a fast path in evaluation that reads the frozen weights."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    adapted = randomised(models.lora(nn.TransformerEncoder(layer, 2), rank=2))
    x, padding = torch.randn(4, 6, 8), torch.zeros(4, 6, dtype=torch.bool)
    padding[:, 4:] = True
    slow = adapted.train()(x, src_key_padding_mask=padding)
    with torch.no_grad():
        fast = adapted.eval()(x, src_key_padding_mask=padding)
    torch.testing.assert_close(fast, slow)


def test_a_merged_layer_keeps_its_dropout():
    merged = models.merge_lora(models.lora(Classifier(p=0.3), rank=2))
    assert merged.encoder.layers[0].self_attn.dropout == 0.3
    assert type(merged.encoder.layers[0].self_attn) is nn.MultiheadAttention


def test_dropout_and_adapters_together():
    adapted = randomised(models.lora(Classifier(p=0.3), rank=2)).double()
    flat = FlatModule(adapted)
    flat.check(X)
    theta, keys = flat.weights(), torch.arange(4)
    torch.testing.assert_close(flat(theta, X), adapted.eval()(X))
    assert not torch.allclose(flat(theta, X), flat(theta, X, keys=keys))
    rows = theta + 0.1 * torch.randn(3, len(theta)).double()

    def loss(theta, x, keys):
        return flat(theta, x, keys=keys).square().mean()

    batched = vmap(grad(loss), (0, None, None))(rows, X, keys)
    looped = torch.stack([grad(loss)(row, X, keys) for row in rows])
    torch.testing.assert_close(batched, looped)


def test_layers_can_be_chosen():
    model = Classifier()
    adapted = models.lora(model, rank=2, targets=["linear1"], train=["head"])
    assert trainable(adapted) == {
        "encoder.layers.0.linear1.lora_a", "encoder.layers.0.linear1.lora_b",
        "encoder.layers.1.linear1.lora_a", "encoder.layers.1.linear1.lora_b",
        "head.weight", "head.bias",
    }  # fmt: skip
    one = models.lora(model, targets=["encoder.layers.1.self_attn"])
    assert all(name.startswith("encoder.layers.1.self_attn") for name in trainable(one))
    embedding = trainable(models.lora(model, train=["embed"]))
    assert "embed.weight" in embedding
    assert "head.weight" not in embedding


def test_a_model_that_is_one_layer():
    assert isinstance(models.lora(nn.Linear(3, 2)), LoRALinear)
    attention = models.lora(nn.MultiheadAttention(4, 2), rank=1)
    assert trainable(attention) == {
        "adapter.lora_a", "adapter.lora_b", "out_proj.lora_a", "out_proj.lora_b"
    }  # fmt: skip
    assert type(models.merge_lora(models.lora(nn.Linear(3, 2)))) is nn.Linear


class OwnLinear(nn.Linear):
    def forward(self, x):
        return super().forward(x) + 1


@pytest.mark.parametrize(
    ("module", "options", "words"),
    [
        (nn.Conv2d(1, 2, 3), {}, ["no nn.Linear"]),
        (OwnLinear(2, 2), {}, ["no nn.Linear"]),
        (Classifier(), {"targets": ["lienar1"]}, ["'lienar1'", "linear1"]),
        (Classifier(), {"targets": ["out_proj"]}, ["'out_proj'"]),
        (Classifier(), {"train": ["haed"]}, ["'haed'", "train"]),
        (Classifier(), {"rank": 0}, ["rank"]),
        (Classifier(), {"alpha": -1}, ["alpha"]),
        (nn.MultiheadAttention(4, 2, kdim=3), {}, ["other sizes", "targets"]),
        (nn.MultiheadAttention(4, 2, add_bias_kv=True), {}, ["add_bias_kv", "targets"]),
    ],
)
def test_what_cannot_be_adapted_is_refused(module, options, words):
    assert_mentions(misuse_message(models.lora, module, **options), *words)


def task_of(module, **options):
    x = torch.randint(10, (3, 8, 6), generator=torch.Generator().manual_seed(1))
    y = torch.randint(3, (3, 8), generator=torch.Generator().manual_seed(2))
    parts = list(zip(x, y, strict=True))
    return tacit.Task(module, parts, batch_size=4, test=parts[0], **options)


@pytest.mark.parametrize("init", ["module", "same", "independent"])
def test_adapters_train_and_frozen_weights_stay(init):
    adapted = models.lora(Classifier(p=0.1), rank=2, train=["head"])
    task = task_of(adapted, init=init)
    graph = tacit.Topology.ring(3).mixing()
    run = tacit.run(task, tacit.DSGT(lr=0.1), graph, steps=3)
    assert run.theta.shape == (3, sum(p.numel() for p in adapted.parameters() if p.requires_grad))
    assert not torch.allclose(run.theta, task.initial(0, range(3)))
    frozen = {n: p for n, p in task.loss.flat.module.named_parameters() if not p.requires_grad}
    assert all(torch.equal(p, adapted.get_parameter(name)) for name, p in frozen.items())
    # The model of a client in a module of the user's: the same loss as in the history.
    models.load_weights(adapted, run.theta[0]).eval()
    x, y = task.evaluation.x, task.evaluation.y
    expected = nn.functional.cross_entropy(adapted(x), y).detach()
    scores = task.evaluation.models(run.theta, range(3))
    assert float(scores.loss[0]) == pytest.approx(float(expected), rel=1e-5)
    with torch.no_grad():
        merged = models.merge_lora(adapted)(x)
    torch.testing.assert_close(merged, adapted(x).detach(), rtol=1e-4, atol=1e-5)


def test_frozen_weights_are_held_once():
    task = task_of(models.lora(Classifier(), rank=2))
    moved = task.to("cpu")
    assert moved.loss.flat is moved.evaluation.flat is task.loss.flat
    flat = task.loss.flat
    local = flat._copies.local().module
    assert local is not flat.module
    assert local.embed.weight is flat.module.embed.weight


def test_private_training_of_adapters():
    task = task_of(models.lora(Classifier(p=0.2), rank=2))
    graph = tacit.Topology.ring(3).mixing()
    privacy = tacit.Privacy(epsilon=5.0, delta=1e-3)
    run = tacit.run(task, tacit.PrivateSGD(lr=0.1), graph, steps=2, privacy=privacy)
    assert torch.isfinite(run.theta).all()


class PeftLike(nn.Module):
    """A layer as the package peft makes it: adapters and dropout in dictionaries by name."""

    def __init__(self, base):
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.lora_dropout = nn.ModuleDict({"default": nn.Dropout(0.2)})
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base.in_features, 2, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(2, base.out_features, bias=False)})

    def forward(self, x):
        low = self.lora_A["default"](self.lora_dropout["default"](x))
        return self.base_layer(x) + self.lora_B["default"](low)


def test_modules_of_peft_work_as_they_are():
    model = Classifier()
    model.head = PeftLike(model.head)
    model.embed.requires_grad_(False)
    model.encoder.requires_grad_(False)
    task = task_of(model)
    assert task.parameters == 2 * 8 + 3 * 2
    assert task.draws.keys
    graph = tacit.Topology.ring(3).mixing()
    run = tacit.run(task, tacit.DSGT(lr=0.1), graph, steps=3)
    assert torch.isfinite(run.theta).all()


def test_peft_itself():
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["linear1"], lora_dropout=0.1)
    task = task_of(peft.get_peft_model(Classifier(), config))
    graph = tacit.Topology.ring(3).mixing()
    run = tacit.run(task, tacit.DSGT(lr=0.1), graph, steps=2)
    assert torch.isfinite(run.theta).all()


def test_weights_of_another_size_are_refused():
    message = misuse_message(models.load_weights, nn.Linear(2, 1), torch.zeros(4))
    assert_mentions(message, "(4,)", "3 trainable", "run.theta[0]")


def test_a_layer_in_two_places_gets_one_adapter():
    layer = nn.Linear(6, 6)
    adapted = tacit.models.lora(nn.Sequential(layer, nn.Tanh(), layer), rank=2)
    with torch.no_grad():
        adapted[0].lora_b.normal_()
    merged = tacit.models.merge_lora(adapted)
    assert type(merged[2]) is nn.Linear
    assert merged[2] is merged[0]
    x = torch.randn(4, 6)
    torch.testing.assert_close(merged(x), adapted(x))
