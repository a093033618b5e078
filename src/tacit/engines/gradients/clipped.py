"""Each hosted client's sum of clipped gradients of single samples.

If all clients have the same model, their samples go through in one flat batch, which is cut into
pieces for the workers without regard to clients. Passes have a fixed size, and the last one is
padded. So a GPU can capture them, and rounding does not depend on how many samples were drawn: with
passes of other sizes, matrix products round differently, and then one sample would change the
gradients of others (at a kink of the loss, by as much as their own length).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import torch
from torch import Tensor

from tacit.core.devices import to_device
from tacit.core.errors import Caution, Misuse
from tacit.core.rows import is_shared
from tacit.core.workers import WorkerPool
from tacit.engines.capture.graphs import Pass, captured_pass
from tacit.engines.gradients.device_samples import DeviceSample
from tacit.engines.gradients.sample_passes import (
    GRAIN,
    SampleBackend,
    Trial,
    check_separable,
)
from tacit.gradients.masked_sums import write_masked_sums
from tacit.gradients.products import formed, write_clipped_sums
from tacit.tasks.batches import BatchLoader, MiniBatchLoader
from tacit.tasks.flat import ModuleLoss
from tacit.tasks.objective import Objective
from tacit.tasks.poisson import PoissonSample, capacity

# What a draw exceeds its expected size by, in standard deviations, before it takes more passes.
DEVIATIONS = 2
# Passes of each worker before what they carry is added up.
PASSES_AT_ONCE = 8


def require_samples(loader: BatchLoader) -> MiniBatchLoader:
    """The loader of a task with mini-batches; raises Misuse for another one."""
    if isinstance(loader, MiniBatchLoader):
        return loader
    raise Misuse(
        "Clipping per sample needs data that can be sampled, but this task has a stream or "
        "computes each gradient on all data of a client.",
        "Use tacit.Task with a batch_size.",
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


class CarriedSums:
    """Sums of clients whose samples are in several pieces, which come in the order of clients.

    In float64, so that only the last sum of a client is rounded; `write` writes that of the last
    client.
    """

    def __init__(self, out: Tensor) -> None:
        self._out, self._client, self._total = out, -1, out.new_empty(0, dtype=torch.float64)

    def add(self, client: int, rest: Tensor) -> None:
        """Add a row to what is in the output for this client."""
        if client != self._client:
            self.write()
            self._client, self._total = client, self._out[client].double()
        self._total += rest

    def write(self) -> None:
        """Write the sum of the client whose pieces came last, if there is one."""
        if self._client >= 0:
            self._out[self._client] = self._total


def pass_size(samples: int, rate: float, workers: int, largest: int) -> int:
    """How many samples a pass takes; depends on how many there are, not on how many were drawn.

    Args:
        samples: How many there are.
        rate: The probability with which each is drawn.
        workers: How many passes run at the same time.
        largest: How many samples a pass may take, see `SampleBackend.samples_per_pass`.
    """
    usual = max(1, capacity(samples, rate, DEVIATIONS))
    rounds = -(-usual // (workers * largest))
    grains = -(-usual // (workers * rounds * GRAIN))
    return min(grains * GRAIN, largest)


@dataclass(frozen=True, eq=False)
class ClippedSums:
    """Sums of clipped gradients over samples of shared arrays."""

    backend: SampleBackend
    loader: MiniBatchLoader
    pool: WorkerPool
    apart: bool = False  # client by client, so that sums are rounded as if each were alone
    # What passes of each size are tried with before the first one.
    trial: Trial | None = None
    _tried: set[int] = field(default_factory=set)
    # Captured passes by samples, clients and bound.
    _captured: dict[tuple[int, int, float], Pass] = field(default_factory=dict)
    # Samples that fit into a pass, as it was found first: passes keep their size, so that rounding
    # does not depend on how much memory is free, and no pass is captured again.
    _fit: dict[torch.device, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        task: Objective,
        loader: BatchLoader,
        theta: Tensor,
        pool: WorkerPool,
        apart: bool = False,
    ) -> ClippedSums:
        """The sums of a task; `theta` [P] is a model to try it with.

        Raises:
            Misuse: If the task has no mini-batches, or its samples influence each other.
        """
        samples = require_samples(loader)
        two = samples.load(slice(0, 2), 0)
        trial = Trial.of(task.loss, theta, two)
        check_separable(trial)
        backend = SampleBackend.first_usable(task, theta, two)
        if backend.way == "looped":
            slow = f"Gradients of samples are computed one by one, which is slow: {backend.reason}."
            warnings.warn(slow, Caution, stacklevel=2)
        return cls(backend, samples, pool, apart, trial)

    def write(self, theta: Tensor, sample: PoissonSample, bound: float, out: Tensor) -> None:
        """Write each client's sum at its own row of theta [n, P] into out [n, P]."""
        if not len(sample.index):
            out.zero_()
        elif theta.is_cuda and self.backend.way != "looped":
            self._replay(theta, sample, bound, out)
        else:
            self._write(theta, sample, bound, out)

    def place(self, theta: Tensor, sample: PoissonSample) -> DeviceSample:
        """A fixed place on the device of theta [n, P] for this sample and others drawn alike.

        Load other samples into it with its method `load`. If it returns False, there are too many:
        use `write` for them.
        """
        if theta.device not in self._fit:
            # No whole GRAIN if that does not fit: on a GPU places do not matter.
            sizes = self.backend.samples_per_pass(theta.device), self.backend.fit(theta.device)
            self._fit[theta.device] = min(sizes)
        shared = has_one_model(theta)
        placed = DeviceSample.of(sample, shared, self._fit[theta.device], theta.device)
        self._check_size(placed.size)
        return placed

    def write_on(self, theta: Tensor, samples: DeviceSample, bound: float, out: Tensor) -> None:
        """As `write`. The work does not depend on the samples, so it can be captured.

        Raises:
            ValueError: If the samples were placed for a common model and theta has several.
        """
        if samples.shared and not has_one_model(theta):
            raise ValueError("samples placed for one model, but clients have models of their own")
        self._run_passes(theta, samples, out, partial(self._write_pass, samples.size, bound))

    def _check_size(self, size: int) -> None:
        """Try passes of a size before the first of them, with made-up samples."""
        trial = self.trial
        if trial is None or size in self._tried:
            return
        if problem := self.backend.problem_of_pass(trial, size):
            name = "loss"
            if isinstance(trial.loss, ModuleLoss):
                name = f"model {type(trial.loss.flat.module).__name__}"
            raise Misuse(
                f"In passes of {size} samples through the {name}, {problem}, so clipping would not "
                "bound what one sample changes.",
                "Use layers that treat samples by themselves and round them alike, or numbers of "
                "type float64: model.double().",
            )
        self._tried.add(size)

    def clear_captures(self) -> None:
        """Free the memory of captured passes."""
        self._captured.clear()

    def _write_pass(
        self, size: int, bound: float, theta: Tensor, packed: Tensor, out: Tensor
    ) -> None:
        """The sums of one pass: theta [1, P], a row of a `DeviceSample` [1, ...], out [rows, P]."""
        index, bounds, number = packed[0, :size], packed[0, size:-1], packed[0, -1:]
        blocks = self.backend.gradients(theta[0], self.loader.load(index, number))
        write_masked_sums([formed(block) for block in blocks], bound, bounds, out)

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
        total = out[:0].double()
        for clients, step, packed in samples.passes():
            target = out[clients] if step == 0 else torch.empty_like(out[clients])
            run(theta[clients][:1], packed[None], target)
            if step:
                # In float64, so that the number of passes adds no rounding.
                total = (out[clients].double() if step == 1 else total) + target
                out[clients] = total

    def _write(self, theta: Tensor, sample: PoissonSample, bound: float, out: Tensor) -> None:
        """Write the sums with workers, each of which takes a piece of the samples at a time."""
        cuts, sizes = self._passes(theta, sample)
        for size in sorted(set(sizes)):
            self._check_size(size)
        passes = zip(pieces(sample.bounds, cuts), sizes, strict=True)
        carried = CarriedSums(out)

        def write(numbered: tuple[Piece, int, Tensor]) -> None:
            piece, size, rest = numbered
            index = to_device(self._padded(sample.index[piece.samples], size), theta.device)
            sums = [(piece.bounds, out[piece.begun])]
            if piece.carried:
                sums.append((torch.tensor([0, piece.carried]), rest))
            samples = self.loader.load(index, sample.number)
            products = self.backend.gradients(theta[piece.model], samples)
            write_clipped_sums(products, bound, sums)

        # A few passes at a time, because each may leave a row of numbers.
        while some := list(islice(passes, PASSES_AT_ONCE * self.pool.size)):
            rests = [out.new_empty(1 if piece.carried else 0, out.shape[1]) for piece, _ in some]
            self.pool.run(write, ((*each, rest) for each, rest in zip(some, rests, strict=True)))
            for (piece, _), rest in zip(some, rests, strict=True):
                if piece.carried:
                    carried.add(piece.begun.start - 1, rest[0])
        carried.write()

    def _passes(self, theta: Tensor, sample: PoissonSample) -> tuple[list[slice], list[int]]:
        """Which of the drawn samples go through each pass, and the size of each pass."""
        size_of = partial(
            pass_size, rate=sample.rate, largest=self.backend.samples_per_pass(theta.device)
        )
        groups: Iterable[tuple[int, int, int]]
        if has_one_model(theta) and not self.apart:
            size = size_of(int(sample.sizes.sum()), workers=self.pool.size)
            groups = [(0, len(sample.index), size)]
        else:
            ends = sample.bounds.tolist()
            sizes = [size_of(samples, workers=1) for samples in sample.sizes.tolist()]
            groups = zip(ends[:-1], ends[1:], sizes, strict=True)
        passes = [
            (slice(low, min(low + size, end)), size)
            for begin, end, size in groups
            for low in range(begin, end, size)
        ]
        return [cut for cut, _ in passes], [size for _, size in passes]

    def _padded(self, index: Tensor, size: int) -> Tensor:
        """The samples of a pass and others, which are not summed, up to its size."""
        if self.backend.way == "looped":
            return index  # sample by sample anyway
        return torch.nn.functional.pad(index, (0, size - len(index)))


def has_one_model(theta: Tensor) -> bool:
    """Whether all rows are known to be the same: one row, or an expanded one."""
    return len(theta) == 1 or is_shared(theta)
