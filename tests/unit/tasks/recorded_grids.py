"""The grids with which our Triton kernels are launched for large sizes, without Triton or a GPU.

CUDA allows 2³¹ − 1 programs in the first dimension of a grid, and 65,535 in the others.
test_gpu_kernels.py runs this script in a process of its own.
"""

import sys
from types import ModuleType

import torch

GRIDS = []


class Kernel:
    """Records the grids of its launches, and computes nothing."""

    def __init__(self, function):
        self.name = f"{function.__module__}.{function.__name__}"

    def __getitem__(self, grid):
        GRIDS.append((self.name, grid))
        return lambda *_, **__: None


def stand_in():
    """What our modules use of Triton on the host."""
    triton = ModuleType("triton")
    triton.language = ModuleType("triton.language")
    triton.language.int32, triton.language.int64 = torch.int32, torch.int64
    triton.jit = Kernel
    triton.cdiv = lambda a, b: -(-a // b)
    triton.next_power_of_2 = lambda n: 1 << (n - 1).bit_length()
    return {"triton": triton, "triton.language": triton.language}


sys.modules |= stand_in()

from tacit.core.native import gpu_integers  # noqa: E402
from tacit.engines import gpu_product  # noqa: E402
from tacit.gradients import gpu_convolution, gpu_group_norm, gpu_layer_norm  # noqa: E402
from tacit.gradients.products import OuterProducts  # noqa: E402
from tacit.tasks.layers import gpu, gpu_samples  # noqa: E402

MANY = 70_000  # clients
RESNET = 11_173_962  # parameters of ResNet-18


def empty(*shape, dtype=torch.float32):
    return torch.empty(shape, dtype=dtype, device="meta")


def sums(clients, samples, outputs, width):
    left = empty(samples, outputs) if outputs > 1 else None
    bounds, out = empty(clients + 1, dtype=torch.int64), empty(clients, outputs * width)
    block = OuterProducts(empty(samples, width), left)
    gpu_samples.write_clipped_sums([block], 1.0, bounds, out)


def sample_filters(filters, channels, samples):
    windows = gpu.Windows((3, 3), (1, 1), (1, 1), 2, 2)
    x, dy = empty(1, channels, 4, 4, samples), empty(1, filters, 4 * samples)
    gpu_samples.filter_gradients(windows, x, dy, True)[1]()


def layers(clients, channels, height, filters, batch):
    windows = gpu.Windows((3, 3), (1, 1), (1, 1), height - 2, height - 2)
    x, w = empty(clients, channels, height, height, batch), empty(clients, filters, 9 * channels)
    y = windows.forward(x, w, None, True)
    dy = y.flatten(2)
    windows.write_gradients(x, dy, w.flatten(1))
    windows.input_gradient(w, dy, x.shape)
    windows.fold(empty(clients, 9 * channels, dy.shape[2]), x.shape)
    gpu.unpool(*gpu.pool(y, (2, 2), (2, 2), True), y.shape, (2, 2), (2, 2))


def convolutions(clients, batch, height, channels, filters, stride):
    shape = gpu_convolution.Geometry((3, 3), (stride, stride), (1, 1))
    x, w = empty(clients, batch, height, height, channels), empty(clients, filters, channels, 3, 3)
    y = gpu_convolution.forward(x, w, None, shape)
    gpu_convolution.input_gradient(y, w, x.shape, shape)
    gpu_convolution.filter_gradient(x, y, shape)


def norms(clients, rows, width):
    x, w = empty(clients, rows, width), empty(clients, width)
    gpu_layer_norm.backward(x, w, *gpu_layer_norm.forward(x, w, w, 1e-5))
    y, mean, rstd = gpu_group_norm.forward(x[:, None], w, w, 4, 1e-5)
    gpu_group_norm.backward(x[:, None], w, y, mean, rstd)


def products(rows, width):
    out = empty(rows, width)
    entries = empty(rows + 1, dtype=torch.int64), empty(rows, dtype=torch.int64), empty(rows)
    gpu_product.write(*entries, out, out, False)


def integers(rows, width):
    numbers = empty(rows, dtype=torch.int64)
    law, onto = (empty(1), empty(9), 7), empty(rows, width, dtype=torch.int64)
    gpu_integers.words(0, numbers[:1], numbers, numbers, range(width))
    gpu_integers.philox(empty(4, rows, dtype=torch.int64), 0)
    gpu_integers.add_integers(law, (0, 1), numbers[:1], numbers, onto, False)
    gpu_integers.add_integers(law, (0, 1), numbers[:1], numbers, onto[:1], True)
    gpu_integers.encoded_sum(empty(rows, width), 1.0, 9)
    gpu_integers.permuted(empty(rows, 40, dtype=torch.int32), width, width, 2, 8)


LAUNCHES = [
    (sums, (1, 64, 1, RESNET)),
    (sums, (8, 512, 1, RESNET)),
    (sums, (1, 32, 1, 25_600_000)),
    (sums, (1, 64, 25_088, 16_384)),
    (sums, (MANY, MANY, 1, 40)),
    (sums, (MANY, MANY, 10, 40)),
    (sample_filters, (2048, 2048, 32)),
    (sample_filters, (8, 1, 2_200_000)),
    (layers, (MANY, 1, 6, 3, 2)),
    (layers, (1, 3, 34, 64, 40_000)),
    (convolutions, (MANY, 1, 4, 2, 3, 1)),
    (convolutions, (MANY, 1, 4, 2, 3, 2)),
    (convolutions, (1, 40_000, 32, 3, 64, 2)),
    (norms, (MANY, 3, 8)),
    (norms, (1, 10_000_000, 64)),
    (products, (4, 138_000_000)),
    (products, (MANY, 40)),
    (integers, (3_000_000, 8)),
    (integers, (2, 138_000_000)),
]


NUMBERS = [  # of one client in each tensor, type of offsets
    ([1, 5], torch.int32),
    ([2**31 - 1], torch.int32),
    ([2**31], torch.int64),
    ([3, 2**31 + 9], torch.int64),
]


def allowed(grid):
    return grid[0] < 2**31 and max(grid[1:], default=1) <= 65_535


if __name__ == "__main__":
    for launch, sizes in LAUNCHES:
        GRIDS.clear()
        launch(*sizes)
        assert GRIDS
        for name, grid in GRIDS:
            assert allowed(grid), f"{launch.__name__}{sizes}: {name} has the grid {grid}"
    for counts, kind in NUMBERS:
        assert gpu.index_type(*(empty(MANY, count) for count in counts)) is kind
    print(f"{len(LAUNCHES)} sizes can be launched")
