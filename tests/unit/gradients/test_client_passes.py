"""Gradients of modules by our rules against a loop over clients."""

import math
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional

from support.gradient_ways import looped, stacked
from tacit.gradients.attention import _Attention
from tacit.gradients.multi_head import multi_head_attention
from tacit.gradients.rules import RULES
from tacit.gradients.stacked import Stack, Stacked
from tacit.tasks.client_gradients import saved_numbers
from tacit.tasks.flat import FlatModule, ModuleLoss

CLIENTS, BATCH, LENGTH, WIDTH = 3, 4, 6, 8


class Residual(nn.Module):
    """Convolutions of all kinds, with GroupNorm and a skipped connection."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.strided = nn.Conv2d(8, 8, 3, stride=2, padding=1, bias=False)
        self.short = nn.Conv2d(8, 8, 1, stride=2)
        self.grouped = nn.Conv2d(8, 8, 3, groups=2, padding="same")
        self.norms = nn.ModuleList([nn.GroupNorm(2, 8), nn.GroupNorm(4, 8, affine=False)])
        self.last = nn.Linear(8, 5)

    def forward(self, x):
        x = functional.relu(self.norms[0](self.first(x)))
        x = self.norms[1](self.strided(x)) + self.short(x)
        return self.last(self.grouped(x).mean((2, 3)))


class Attention(nn.Module):
    """`nn.MultiheadAttention` with masks, with or without weights."""

    def __init__(self, weights=False, causal=False, crossed=False, bias=True):
        super().__init__()
        options = {"kdim": WIDTH, "vdim": WIDTH} if crossed else {}
        self.attention = nn.MultiheadAttention(WIDTH, 2, bias, batch_first=True, **options)
        self.norm, self.last = nn.LayerNorm(WIDTH, bias=False), nn.Linear(WIDTH, 5, bias=False)
        self.weights, self.causal, self.crossed = weights, causal, crossed

    def forward(self, x):
        hidden = x[..., 0] > 1.5
        mask = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1) if self.causal else None
        keys = x.flip(1) if self.crossed else x
        y, seen = self.attention(
            x, keys, keys, key_padding_mask=hidden, attn_mask=mask, need_weights=self.weights
        )
        y = self.last(self.norm(x + y)).mean(1)
        return y if seen is None else y + seen.square().mean()


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 2, 16, dropout=0.0, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.last = nn.Linear(WIDTH, 5)

    def forward(self, x):
        return self.last(self.encoder(self.embedding(x)).mean(1))


class Functional(nn.Module):
    """Attention as a function, with grouped queries and a mask for each sample."""

    def __init__(self):
        super().__init__()
        self.project, self.last = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(2 * WIDTH, 5)

    def forward(self, x):
        q, k, v = self.project(x).split((2 * WIDTH, WIDTH, WIDTH), -1)
        q, k, v = (y.unflatten(-1, (-1, 4)).transpose(1, 2) for y in (q, k, v))
        mask = (x[:, None, None, :, 0] < 1.5).expand(-1, 1, LENGTH, -1)
        y = functional.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True, scale=0.3)
        return self.last(y.transpose(1, 2).flatten(2).mean(1))


class Frozen(nn.Module):
    """Shared weights that are not trained, between those that are."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)
        self.norm, self.last = nn.GroupNorm(2, 8), nn.Linear(8, 5)
        for part in (self.second, self.norm):
            part.requires_grad_(False)
        self.last.weight.requires_grad_(False)

    def forward(self, x):
        return self.last(self.norm(self.second(self.first(x))).mean((2, 3)))


def images():
    return torch.randn(CLIENTS, BATCH, 3, 8, 8).double()


def sequences():
    return torch.randn(CLIENTS, BATCH, LENGTH, WIDTH).double()


CASES = {
    "residual": (Residual, images),
    "attention": (Attention, sequences),
    "attention with weights": (lambda: Attention(weights=True), sequences),
    "causal attention": (lambda: Attention(causal=True), sequences),
    "crossed attention": (lambda: Attention(crossed=True, causal=True, bias=False), sequences),
    "encoder": (Encoder, lambda: torch.randint(20, (CLIENTS, BATCH, LENGTH))),
    "functional attention": (Functional, sequences),
    "frozen": (Frozen, images),
}


@pytest.mark.parametrize("name", CASES)
def test_rules_give_the_gradients_of_a_loop(name):
    torch.manual_seed(0)
    make, inputs = CASES[name]
    loss = ModuleLoss(FlatModule(make().double()), functional.cross_entropy)
    arrays = (inputs(), torch.randint(5, (CLIENTS, BATCH)))
    width = loss.flat.width
    theta = loss.flat.weights() + 0.1 * torch.randn(CLIENTS, width).double()
    with warnings.catch_warnings():
        # In particular those of vmap about slow rules.
        warnings.simplefilter("error")
        found = stacked(loss, theta, arrays)
    torch.testing.assert_close(found, looped(loss, theta, arrays), rtol=1e-9, atol=1e-11)


class HalfUsed(nn.Module):
    def __init__(self):
        super().__init__()
        self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 3)

    def forward(self, x):
        return self.used(x)


def test_a_loss_that_ignores_some_parameters_or_all_of_them():
    loss = ModuleLoss(FlatModule(HalfUsed()), functional.cross_entropy)
    arrays = (torch.randn(2, 4, 2), torch.randint(2, (2, 4)))
    theta = torch.randn(2, loss.flat.width)
    for way in (stacked, looped):
        gradient = way(loss, theta, arrays)
        assert bool(gradient[:, :6].any())
        assert not bool(gradient[:, 6:].any())
        assert not bool(way(lambda theta, x, y: x.sum(), theta, arrays).any())


def test_gradients_are_recorded_whatever_the_mode_of_the_caller():
    theta, arrays = torch.randn(2, 3), (torch.randn(2, 3),)

    def loss(theta, x):
        return (theta - x).square().sum()

    for way in (stacked, looped):
        expected = way(loss, theta, arrays)
        torch.testing.assert_close(expected, 2 * (theta - arrays[0]))
        with torch.no_grad():
            assert torch.equal(way(loss, theta, arrays), expected)


def test_attention_on_a_gpu_refuses_to_be_differentiated_twice():
    """Its backward pass is not recorded: a penalty on gradients would be left out."""
    q, k, v = torch.randn(3, 1, 2, 4, 8).requires_grad_()
    y = _Attention.apply(q, k, v, None, {})
    (gradient,) = torch.autograd.grad(y.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        (y.sum() + gradient.square().sum()).backward()


def test_rare_options_of_attention_are_those_of_torch():
    x = torch.randn(LENGTH, BATCH, WIDTH)
    weights = (torch.randn(3 * WIDTH, WIDTH), None, None, None, True, 0.0, torch.eye(WIDTH), None)
    with pytest.raises(NotImplementedError, match="add_zero_attn"):
        multi_head_attention(x, x, x, WIDTH, 2, *weights)
    expected = functional.multi_head_attention_forward(x, x, x, WIDTH, 2, *weights)
    stack = Stack(1, RULES)
    rows = Stacked(x[None], stack)
    found = functional.multi_head_attention_forward(rows, rows, rows, WIDTH, 2, *weights)
    torch.testing.assert_close(found[0].rows[0], expected[0])


@pytest.mark.parametrize("alone", [False, True])
def test_multi_head_attention_is_that_of_torch(alone):
    torch.manual_seed(1)
    module = nn.MultiheadAttention(WIDTH, 2).double()
    x = torch.randn(LENGTH, *([] if alone else [BATCH]), WIDTH).double()
    heads = 2 if alone else 2 * BATCH
    mask = torch.randn(heads, LENGTH, LENGTH).double()
    arguments = (
        *(x, x, x, WIDTH, 2, module.in_proj_weight, module.in_proj_bias, None, None, False),
        *(0.0, module.out_proj.weight, module.out_proj.bias),
    )
    for weights in (False, True):
        options = {"attn_mask": mask, "need_weights": weights}
        found = multi_head_attention(*arguments, **options)
        expected = functional.multi_head_attention_forward(*arguments, **options)
        torch.testing.assert_close(found[0], expected[0])
        assert (found[1] is None) == (expected[1] is None)
        if weights:
            torch.testing.assert_close(found[1], expected[1])


def test_saved_numbers_are_those_of_the_activations():
    module = nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 30), nn.ReLU())
    loss = ModuleLoss(FlatModule(module), lambda y, targets: y.sum())
    arrays = (torch.randn(7, 10), torch.zeros(7))
    saved = saved_numbers(loss, loss.flat.weights(), arrays)
    # The input and the outputs of both ReLUs.
    assert math.isclose(saved, 7 * (10 + 20 + 30), rel_tol=0.05)
