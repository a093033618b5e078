"""Kernels for modules of many clients in Triton's interpreter against tensor operations.

test_gpu_kernels.py runs this script in a process of its own.
"""

import triton_interpreter  # isort: skip  # noqa: F401

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn
from torch.nn import functional

from tacit.engines import gpu_product
from tacit.engines.product import Product
from tacit.gradients import (
    gpu_convolution,
    gpu_group_norm,
    gpu_images,
    gpu_layer_norm,
    kernel_functions,
)
from tacit.gradients.kernel_functions import Kernels
from tacit.tasks.client_gradients import write_looped, write_stacked
from tacit.tasks.flat import FlatModule, ModuleLoss

CONVOLUTIONS = [  # clients, batch, height, width, channels, filters, size, stride, padding, bias
    (2, 3, 6, 7, 4, 8, (3, 3), (1, 1), (1, 1), False),
    (2, 2, 7, 8, 5, 18, (3, 3), (2, 2), (1, 1), True),
    (1, 2, 8, 8, 16, 16, (1, 1), (2, 2), (0, 0), False),
    (2, 1, 9, 5, 17, 3, (5, 2), (2, 3), (2, 0), True),
    (1, 1, 4, 4, 3, 33, (4, 4), (4, 4), (0, 0), True),
    # Blocks of one tap each, as of images with many channels.
    (2, 2, 5, 6, 34, 18, (3, 2), (2, 1), (1, 0), True),
    (2, 2, 9, 8, 1, 4, (8, 8), (2, 2), (3, 3), True),
]
NORMS = [  # clients, batch, positions, channels, groups, affine, offset
    (2, 3, 5, 8, 4, True, 0.0),
    (1, 2, 70, 64, 32, True, 100.0),
    (2, 1, 9, 16, 1, False, 0.0),
]
OUTLIERS = [  # positions, first pixel, mean and standard deviation of the others
    (20_000, 1000.3, 0.1, 0.01),
    (20_000, 100.0, 0.0, 1.0),
    (300, -1e4, 5.0, 1.0),
    (257, 1e4, 1e4, 1.0),
]
LAYER_NORMS = [  # clients, rows, width, offset
    (2, 5, 8, 0.0),
    (3, 700, 64, 100.0),
    (1, 3, 300, 0.0),
]
LINEAR = [(2, 5, 8, 16, True), (3, 70, 40, 33, False)]  # clients, rows, inputs, outputs, bias
PRODUCTS = [(5, 7, 3), (40, 3000, 4)]  # clients, P, entries per row


def close(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def compare_convolution(k, batch, height, width, channels, filters, size, stride, padding, bias):
    x = torch.randn(k, batch, channels, height, width, requires_grad=True)
    # Rows of weights, with other parameters after them.
    rows = torch.randn(k, channels * filters * size[0] * size[1] + 5)
    w = rows[:, :-5].view(k, filters, channels, *size).requires_grad_()
    b = torch.randn(k, filters, requires_grad=True) if bias else None
    biases = [None] * k if b is None else b
    each = zip(x, w, biases, strict=True)
    y = torch.stack([functional.conv2d(*one, stride, padding) for one in each])
    dy = torch.randn_like(y)
    by_x, by_w = torch.autograd.grad(y, (x, w), dy)
    geometry = gpu_convolution.Geometry(size, stride, padding)
    images = x.detach().permute(0, 1, 3, 4, 2).contiguous()
    found = gpu_convolution.forward(images, w.detach(), b if b is None else b.detach(), geometry)
    close(found.permute(0, 1, 4, 2, 3), y.detach())
    gradient = dy.permute(0, 1, 3, 4, 2).contiguous()
    back = gpu_convolution.input_gradient(gradient, w.detach(), images.shape, geometry)
    close(back.permute(0, 1, 4, 2, 3), by_x)
    close(gpu_convolution.filter_gradient(images, gradient, geometry), by_w)


def compare_norm(k, batch, positions, channels, groups, affine, offset):
    x = torch.randn(k, batch, positions, channels) + offset
    w, b = torch.randn(2, k, channels, requires_grad=True) if affine else (None, None)
    plain = x.double().transpose(2, 3).flatten(0, 1).requires_grad_()
    normal = functional.group_norm(plain, groups).view(k, batch, channels, positions)
    expected = normal
    if affine:
        expected = normal * w.double()[:, None, :, None] + b.double()[:, None, :, None]
    y, mean, rstd = gpu_group_norm.forward(x, w, b, groups, 1e-5)
    tolerance = {"rtol": 1e-3, "atol": 1e-3 if offset else 1e-5}
    torch.testing.assert_close(y.transpose(2, 3).double(), expected.detach(), **tolerance)
    dy = torch.randn_like(x)
    wanted = (plain, w, b) if affine else (plain,)
    by_x, *rest = torch.autograd.grad(expected, wanted, dy.transpose(2, 3).double())
    dx, dw, db = gpu_group_norm.backward(x, w, dy, mean, rstd)
    by_x = by_x.view(k, batch, channels, positions).transpose(2, 3)
    tolerance = {"rtol": 1e-3, "atol": 1e-2 if offset else 1e-4}
    torch.testing.assert_close(dx.double(), by_x, **tolerance)
    for one, other in zip((dw, db), rest, strict=False):
        torch.testing.assert_close(one, other, **tolerance)


def compare_outlier(positions, first, mean, deviation):
    x = mean + deviation * torch.randn(1, 1, positions, 16)
    x[0, 0, 0] = first
    images = x.double().transpose(2, 3)[0]
    expected = functional.group_norm(images, 4)
    y, center, rstd = gpu_group_norm.forward(x, None, None, 4, 1e-5)
    groups = images.reshape(4, -1)
    scale = (groups.var(1, correction=0) + 1e-5).rsqrt()
    # What rounding the pixels and their means to float32 changes, in units of the deviation.
    rounding = 1e-6 * float(images.abs().max() * scale.max())
    torch.testing.assert_close(rstd[0].double(), scale, rtol=1e-5 + rounding / 10, atol=0)
    torch.testing.assert_close(
        (center[0] - groups.mean(1)) * scale, 0 * scale, rtol=0, atol=rounding
    )
    torch.testing.assert_close(y[0].mT.double(), expected, rtol=1e-5, atol=1e-6 + rounding)


def compare_layer_norm(k, rows, width, offset):
    # Rows of weights, with other parameters after them.
    x = (torch.randn(k, rows, width) + offset).requires_grad_()
    w, b = torch.randn(2, k, width + 3)[..., :-3].requires_grad_()
    normal = functional.layer_norm(x.double(), [width])
    expected = normal * w.double()[:, None] + b.double()[:, None]
    found = kernel_functions._LayerNorm.apply(x, w, b, 1e-5, gpu_layer_norm)
    compare_gradients(found, expected, (x, w, b), 1e-2 if offset else 1e-4)


def compare_linear(k, rows, inputs, outputs, bias):
    x = torch.randn(k, rows, inputs, requires_grad=True)
    flat = torch.randn(k, inputs * outputs + 5)[:, :-5].requires_grad_()
    w = flat.view(k, outputs, inputs)
    b = torch.randn(k, outputs, requires_grad=True) if bias else None
    expected = x.double() @ w.double().mT
    expected = expected if b is None else expected + b.double()[:, None]
    found = kernel_functions._Linear.apply(x, w, b, gpu_convolution)
    compare_gradients(found, expected, (x, flat) if b is None else (x, flat, b), 1e-4)


def compare_gradients(found, expected, inputs, tolerance):
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=tolerance)
    dy = torch.randn_like(found)
    ours = torch.autograd.grad(found, inputs, dy)
    others = torch.autograd.grad(expected, inputs, dy.double())
    for one, other in zip(ours, others, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=tolerance)


class Turned(nn.Module):
    """Layers with weights that are not contiguous: transposed, and every other number."""

    def __init__(self):
        super().__init__()
        shapes = {
            "conv": (5, 4, 3, 3),
            "bias": (8,),
            "scale": (16,),
            "linear": (4, 7),
            "norm": (2, 14),
        }
        for name, shape in shapes.items():
            self.register_parameter(name, nn.Parameter(torch.randn(shape)))

    def forward(self, x):
        x = functional.conv2d(x, self.conv.transpose(0, 1), self.bias[::2], padding=1)
        x = functional.silu(functional.group_norm(x, 2, self.scale[::4], self.scale[1::4]))
        x = functional.linear(x.flatten(2).mT, self.linear.mT)
        return functional.layer_norm(x, [7], *(one[::2] for one in self.norm)).mean(1)


MODULES = {
    "turned": (Turned, (5, 6, 6)),
    "frozen": (lambda: nn.Sequential(nn.Linear(6, 9).requires_grad_(False), nn.LayerNorm(9)), (6,)),
}


def compare_module(make, shape, batch=4):
    module = make()
    module(torch.randn(2, *shape))
    loss = ModuleLoss(FlatModule(module), functional.cross_entropy)
    theta = loss.flat.weights() + 0.1 * torch.randn(3, loss.flat.width)
    arrays = torch.randn(3, batch, *shape), torch.randint(7, (3, batch))
    found, expected = torch.empty_like(theta), torch.empty_like(theta)
    write_looped(loss, theta, arrays, expected)
    kernels = Kernels(gpu_convolution, gpu_images, gpu_group_norm, gpu_layer_norm)
    kernel_functions.kernels_for = lambda x: kernels
    kernel_functions.LEAST, kernel_functions.tf32_allowed = 1, lambda: True
    write_stacked(loss, theta, arrays, found)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def compare_product(n, width, entries):
    generator = np.random.default_rng(0)
    rows = [generator.choice(n, entries, replace=False) for _ in range(n)]
    indices = np.concatenate([np.sort(row) for row in rows])
    numbers = generator.normal(size=n * entries)
    matrix = sp.csr_array((numbers, indices, np.arange(n + 1) * entries), shape=(n, n))
    x, before = torch.randn(n, width).double(), torch.randn(n, width).double()
    begin, source, weight = (
        torch.as_tensor(part) for part in (matrix.indptr, matrix.indices, matrix.data)
    )
    expected = torch.empty_like(x)
    Product(matrix, torch.float64, "cpu").write(expected, x)
    for accumulate in (False, True):
        out = before.clone()
        gpu_product.write(begin.long(), source.long(), weight, x, out, accumulate)
        torch.testing.assert_close(out, expected + before if accumulate else expected)


if __name__ == "__main__":
    torch.manual_seed(0)
    for case in CONVOLUTIONS:
        compare_convolution(*case)
    for case in NORMS:
        compare_norm(*case)
    for case in OUTLIERS:
        compare_outlier(*case)
    for case in LAYER_NORMS:
        compare_layer_norm(*case)
    for case in LINEAR:
        compare_linear(*case)
    for case in PRODUCTS:
        compare_product(*case)
    for case in MODULES.values():
        compare_module(*case)
    cases = (CONVOLUTIONS, NORMS, OUTLIERS, LAYER_NORMS, LINEAR, PRODUCTS, MODULES)
    print(f"{sum(len(some) for some in cases)} cases agree")
