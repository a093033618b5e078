"""Our kernels for modules on a GPU: gradients of float32 models against the CPU in float64."""

from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch.nn import functional

from support.gradient_ways import looped, stacked
from tacit.core.devices import autocast, float32_products
from tacit.models.transformer import transformer
from tacit.tasks.flat import FlatModule, ModuleLoss

CLIENTS, BATCH, CLASSES = 3, 24, 5


def images():
    return torch.randn(CLIENTS, BATCH, 3, 16, 16, dtype=torch.float64)


def tokens():
    return torch.randint(20, (CLIENTS, BATCH, 17))


def perceptron():
    """Linear layers whose sizes are no multiples of a tile's, and a LayerNorm of images."""
    shape = (3, 16, 16)
    return nn.Sequential(
        nn.LayerNorm(shape), nn.Flatten(2), nn.Linear(256, 99), nn.GELU(), nn.LayerNorm(99),
        nn.Linear(99, 70, bias=False), nn.Flatten(), nn.Linear(210, CLASSES),
    )  # fmt: skip


def convolutions():
    """With GroupNorm. Smooth, unlike with ReLU, so that rounding changes gradients but little."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.SiLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1, bias=False), nn.GroupNorm(8, 64), nn.SiLU(),
        nn.Conv2d(64, 40, 1), nn.Flatten(), nn.Linear(40 * 64, CLASSES),
    )  # fmt: skip


def narrow_convolutions():
    """Few channels and filters: kernels that have the batch last in memory."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 5, padding=2), nn.Tanh(), nn.Conv2d(8, 16, 3, stride=2, dilation=2),
        nn.Tanh(), nn.Flatten(), nn.Linear(16 * 36, CLASSES),
    )  # fmt: skip


def pooled_convolutions():
    """As above, with pooling that follows ReLU, and with windows that overlap."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, stride=2), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(64, CLASSES),
    )  # fmt: skip


MODULES = {
    "convolutions": (convolutions, images),
    "narrow convolutions": (narrow_convolutions, images),
    "transformer": (
        lambda: transformer((17,), CLASSES, vocabulary=20, layers=2, dim=96, heads=2),
        tokens,
    ),
    "perceptron": (perceptron, images),
}
# Shares of the gradient's norm.
TOLERANCES = {"float32": 5e-6, "tf32": 5e-3, "bf16": 3e-2}


@contextmanager
def computing_in(precision, device):
    with float32_products(tf32=precision == "tf32"), autocast(precision, device):
        yield


def compared(make, inputs, precision, device):
    """Gradients in a precision on a device, again, and on the CPU in float64."""
    torch.manual_seed(0)
    exact = ModuleLoss(FlatModule(make().double()), functional.cross_entropy)
    theta = exact.flat.weights() + 0.01 * torch.randn(CLIENTS, exact.flat.width).double()
    arrays = inputs(), torch.randint(CLASSES, (CLIENTS, BATCH))
    loss = ModuleLoss(FlatModule(make()), functional.cross_entropy).to(device)
    there = [x.to(device, torch.float32 if x.is_floating_point() else x.dtype) for x in arrays]
    with computing_in(precision, device):
        found, again = (stacked(loss, theta.float().to(device), there) for _ in range(2))
    return found, again, looped(exact, theta, arrays)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("precision", TOLERANCES)
@pytest.mark.parametrize("name", MODULES)
def test_gradients_on_a_gpu_are_those_of_the_cpu(name, precision):
    found, again, expected = compared(*MODULES[name], precision, "cuda")
    assert torch.equal(found, again)
    errors = (found.cpu() - expected).norm(dim=1) / expected.norm(dim=1)
    assert errors.max() < TOLERANCES[precision]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_small_images_have_their_batch_last_in_memory(monkeypatch):
    gpu_images = pytest.importorskip("tacit.gradients.gpu_images")
    names = {"convolve", "pool", "unpool", "weight_gradients", "image_gradients"}
    used = set()

    def noted(name, kernel):
        def call(*args):
            used.add(name)
            return kernel(*args)

        return call

    for name in names:
        monkeypatch.setattr(gpu_images, name, noted(name, getattr(gpu_images, name)))
    found, again, expected = compared(pooled_convolutions, images, "float32", "cuda")
    assert used == names
    assert torch.equal(found, again)
    # Rounding may change which pixel of a window is the largest.
    errors = (found.cpu() - expected).norm(dim=1) / expected.norm(dim=1)
    assert errors.max() < 1e-3


@pytest.mark.parametrize("name", MODULES)
def test_tensor_operations_give_the_gradients_of_a_loop(name):
    """As above where there are no kernels."""
    found, again, expected = compared(*MODULES[name], "float32", "cpu")
    assert torch.equal(found, again)
    errors = (found - expected).norm(dim=1) / expected.norm(dim=1)
    assert errors.max() < TOLERANCES["float32"]
