"""Each hosted client's sum of clipped gradients of single samples.

If all clients have the same model, their samples go through in one flat batch, which is cut into
pieces for the workers without regard to clients. On a GPU it is padded to a fixed size, so that the
pass can be captured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from tacit.core.devices import to_device
from tacit.core.errors import Misuse
from tacit.core.rows import is_shared
from tacit.core.workers import WorkerPool
from tacit.engines.capture.graphs import Pass, captured_pass
from tacit.engines.gradients.device_samples import DeviceSample
from tacit.engines.gradients.sample_backends import SampleBackend
from tacit.engines.gradients.separable import check_separable
from tacit.tasks.batches import BatchLoader, MiniBatchLoader, gather
from tacit.tasks.layers.basic import kernels_for
from tacit.tasks.parts import Part
from tacit.tasks.poisson import PoissonSample
from tacit.tasks.sample_gradients import write_clipped_sums, write_masked_sums
from tacit.tasks.task import Task


def require_samples(loader: BatchLoader) -> MiniBatchLoader:
    """The loader of a task with mini-batches; raises Misuse for another one."""
    if isinstance(loader, MiniBatchLoader):
        return loader
    raise Misuse(
        "Clipping per sample needs data that can be sampled, but this task has a stream or "
        "computes each gradient on all data of a client.",
        "Use Task.from_module or Task.from_loss with a batch_size.",
    )


@dataclass(frozen=True, eq=False)
class Piece:
    """Samples that go through one pass, and where their sums go.

    Attributes:
        samples: Which of the drawn samples.
        model: The client whose model they need.
        begun: The clients whose first sample is in this piece, or who have none.
        bounds: Where the samples of these clients are within the piece, [clients + 1].
        carried: How many samples at the beginning belong to the client before those.
    """

    samples: slice
    model: int
    begun: slice
    bounds: Tensor
    carried: int


def pieces(bounds: Tensor, cuts: Sequence[slice]) -> Iterator[Piece]:
    """Pieces of samples that are sorted by client, with client i at bounds[i] to bounds[i + 1]."""
    for cut in cuts:
        first = int(torch.searchsorted(bounds[:-1], cut.start))
        stop = cut.stop + (cut is cuts[-1])
        last = int(torch.searchsorted(bounds[:-1], stop))
        own = bounds[first : last + 1].clamp(max=cut.stop) - cut.start
        carried = int(own[0])
        model = int(torch.searchsorted(bounds, cut.start, right=True)) - 1
        yield Piece(cut, model, slice(first, last), own, carried)


@dataclass(frozen=True, eq=False)
class ClippedSums:
    """Sums of clipped gradients over samples of shared arrays."""

    backend: SampleBackend
    arrays: Part
    pool: WorkerPool
    apart: bool = False  # client by client, so that sums are rounded as if each were alone
    # Captured passes by samples, clients and bound.
    _captured: dict[tuple[int, int, float], Pass] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        task: Task,
        loader: BatchLoader,
        theta: Tensor,
        pool: WorkerPool,
        apart: bool = False,
    ) -> ClippedSums:
        """The sums of a task; `theta` [P] is a model to try it with.

        Raises:
            Misuse: If the task has no mini-batches, or its samples influence each other.
        """
        arrays = require_samples(loader).arrays
        check_separable(task.loss, theta, arrays)
        some = gather(arrays, slice(0, 2))
        return cls(SampleBackend.first_usable(task, theta, some), arrays, pool, apart)

    def write(self, theta: Tensor, sample: PoissonSample, bound: float, out: Tensor) -> None:
        """Write each client's sum at its own row of theta [n, P] into out [n, P]."""
        if not len(sample.index):
            out.zero_()
        elif theta.is_cuda and self.backend.strategy != "looped":
            self._replay(theta, sample, bound, out)
        else:
            self._write(theta, sample, bound, out)

    def place(self, theta: Tensor, sample: PoissonSample) -> DeviceSample:
        """A place on the device of theta [n, P] for this sample and others of its size."""
        largest = self.backend.samples_per_pass(theta.device)
        return DeviceSample.of(sample, has_one_model(theta), largest, theta.device)

    def write_on(self, theta: Tensor, samples: DeviceSample, bound: float, out: Tensor) -> None:
        """As `write`. The work does not depend on the samples, so it can be captured.

        Raises:
            ValueError: If the samples were placed for a common model and theta has several.
        """
        if samples.shared and not has_one_model(theta):
            raise ValueError("samples placed for one model, but clients have models of their own")
        self._run_passes(theta, samples, out, partial(self._write_pass, samples.size, bound))

    def clear_captures(self) -> None:
        """Free the memory of captured passes."""
        self._captured.clear()

    def _write_pass(
        self, size: int, bound: float, theta: Tensor, packed: Tensor, out: Tensor
    ) -> None:
        """The sums of one pass: theta [1, P], a row of a `DeviceSample` [1, ...], out [rows, P]."""
        index, bounds = packed[0, :size], packed[0, size:]
        with self.backend.pass_context(theta.device):
            products = self.backend.gradients(theta[0], gather(self.arrays, index))
        write_sums = write_masked_sums
        if kernels_for(products[0].right) is not None:
            from tacit.tasks.layers import gpu_samples

            write_sums = gpu_samples.write_clipped_sums
        write_sums(products, bound, bounds, out)

    def _replay(self, theta: Tensor, sample: PoissonSample, bound: float, out: Tensor) -> None:
        """Write the sums by captured passes."""
        samples = self.place(theta, sample)
        work = partial(self._write_pass, samples.size, bound)

        def replay(theta: Tensor, packed: Tensor, out: Tensor) -> None:
            key = (samples.size, len(out), bound)
            if key not in self._captured:
                self._captured[key] = captured_pass(work, theta, packed, out)
            self._captured[key](theta, packed, out)

        self._run_passes(theta, samples, out, replay)

    def _run_passes(self, theta: Tensor, samples: DeviceSample, out: Tensor, run: Pass) -> None:
        """Run all passes and add up those of the same clients."""
        for clients, step, packed in samples.passes():
            target = out[clients] if step == 0 else torch.empty_like(out[clients])
            run(theta[clients][:1], packed[None], target)
            if step:
                out[clients] += target

    def _write(self, theta: Tensor, sample: PoissonSample, bound: float, out: Tensor) -> None:
        """Write the sums with workers, each of which takes a piece of the samples at a time."""
        bounds, total = sample.bounds, len(sample.index)
        largest = self.backend.samples_per_pass(theta.device)
        if has_one_model(theta) and not self.apart:
            cuts = self.pool.split(total, largest)
        else:
            # Client by client.
            cuts = [
                slice(low, min(low + largest, end))
                for begin, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
                for low in range(begin, end, largest)
            ]
        work = list(pieces(bounds, cuts))
        # What a piece adds to a client that an earlier piece began.
        carried = [out.new_empty(1 if piece.carried else 0, out.shape[1]) for piece in work]

        def write(numbered: tuple[Piece, Tensor]) -> None:
            piece, rest = numbered
            index = to_device(sample.index[piece.samples], theta.device)
            sums = [(piece.bounds, out[piece.begun])]
            if piece.carried:
                sums.append((torch.tensor([0, piece.carried]), rest))
            products = self.backend.gradients(theta[piece.model], gather(self.arrays, index))
            write_clipped_sums(products, bound, sums)

        with self.backend.pass_context(theta.device):
            self.pool.run(write, zip(work, carried, strict=True))
        # In float64, so that only the last sum of a client is rounded.
        sums: dict[int, Tensor] = {}
        for piece, rest in zip(work, carried, strict=True):
            if piece.carried:
                client = piece.begun.start - 1
                sums[client] = sums.get(client, out[client].double()) + rest[0]
        for client, row in sums.items():
            out[client] = row


def has_one_model(theta: Tensor) -> bool:
    """Whether all rows are known to be the same: one row, or an expanded one."""
    return len(theta) == 1 or is_shared(theta)
