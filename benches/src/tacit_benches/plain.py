"""What the simulator is compared with: plain PyTorch on one `nn.Module`, at the same precision."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit.core.devices import Precision, float32_products
from tacit.core.workers import torch_threads
from tacit_benches.benchmark import TimedFunction
from tacit_benches.workloads import Images, Workload


def plain_loop(
    workload: Workload,
    images: Images,
    device: torch.device,
    threads: int,
    *,
    one_batch: bool = False,
) -> TimedFunction:
    """A function that passes the samples of one round forward and backward through one module.

    Each client's batch is a pass of its own; with `one_batch` those of all clients are one.
    """
    x, y = images.x.to(device), images.y.to(device)
    module = workload.module().to(device)
    steps, size = workload.client_steps, workload.batch_size
    if one_batch:
        steps, size = workload.iterations, workload.batch_size * workload.clients
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(x), generator=generator)[: steps * size].view(steps, size).to(device)

    def run() -> None:
        with torch_threads(threads), float32_products(tf32=workload.precision == "tf32"):
            pass_batches(module, x, y, order, workload.precision)

    return run


def pass_batches(
    module: nn.Module, x: Tensor, y: Tensor, order: Tensor, precision: Precision = "float32"
) -> None:
    """Forward and backward on each batch order[k] of samples."""
    for batch in order:
        module.zero_grad(set_to_none=True)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bf16"):
            loss = functional.cross_entropy(module(x[batch]), y[batch])
        loss.backward()  # type: ignore[no-untyped-call]
