"""Gradients of all hosted clients, on their batches or on drawn samples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor
from torch.func import vmap

from tacit.core.checks import check_number
from tacit.core.devices import Precision
from tacit.core.errors import Misuse
from tacit.core.hosted_clients import Sampling
from tacit.core.rounded_sums import rounding_share
from tacit.core.turns import Turns
from tacit.core.workers import WorkerPool
from tacit.engines.capture.graphs import Pass, captured_pass
from tacit.engines.gradients.client_passes import GradientBackend, Strategy
from tacit.engines.gradients.clipped import ClippedSums, require_samples
from tacit.tasks.batches import BatchLoader, Chunk, FullBatchLoader, MiniBatchLoader
from tacit.tasks.objective import Objective
from tacit.tasks.poisson import DrawWords, PoissonSample

# Passes of one size before one is captured: meanwhile a whole iteration may have been captured,
# and both together would take twice the memory.
BEFORE_CAPTURE = 8


@dataclass(frozen=True, eq=False)
class HostedObjective:
    """The objective of hosted clients, bound to data, seed and device.

    Args:
        task: What the clients minimise.
        clients: Ids of the n hosted clients.
        loader: Loads their batches.
        strategy: The gradient backend.
        seed: Keys the initial models.
        device: Where models and gradients live.
        pool: Shares the work of a pass; default: one thread.
        precision: How gradients are computed; sums of clipped ones always in float32.
    """

    task: Objective
    clients: Sequence[int]
    loader: BatchLoader
    strategy: Strategy
    seed: int
    device: torch.device | str
    pool: WorkerPool = field(default_factory=lambda: WorkerPool(1))
    precision: Precision = "float32"
    # Captured passes by number of clients, and how often others were computed before.
    _captured: dict[int, Pass] = field(default_factory=dict)
    _computed: Counter[int] = field(default_factory=Counter)

    @cached_property
    def _backend(self) -> GradientBackend:
        backend = GradientBackend.of(self.task, self.strategy, self.precision)
        if not backend.needs_measuring(self.task.loss):
            return backend
        _, load = next(iter(self.loader.chunks(0, lambda count: [slice(0, 1)])))
        one = self.task.initial(self.seed, self.clients[:1])[0].to(self.device)
        return backend.measured(self.task.loss, one, tuple(array[0] for array in load()))

    @cached_property
    def clipped_sums(self) -> ClippedSums:
        """Sums of clipped gradients of single samples.

        Raises:
            Misuse: If the task has no mini-batches, or its samples influence each other.
        """
        theta, apart = self.theta0()[0], self.strategy == "looped"
        return ClippedSums.of(self.task, self.loader, theta, self.pool, apart)

    def theta0(self) -> Tensor:
        return self.task.initial(self.seed, self.clients).to(self.device)

    def grad(self, theta: Tensor, number: int, out: Tensor | None = None) -> Tensor:
        if theta.shape[1] != self.task.parameters:
            raise Misuse(
                f"Gradients are asked for at models of {theta.shape[1]:,} numbers, but the task's "
                f"have {self.task.parameters:,}.",
                "Give here.grad rows [n, P] as here.theta0 has them.",
            )
        out = torch.empty_like(theta) if out is None else out
        if isinstance(self.loader, MiniBatchLoader) and theta.is_cuda:
            self._replay(theta, self.loader.batches(number), out)
        else:
            self._write(theta, self.loader.chunks(number, self._split_work), out)
        return self._clipped(out)

    def samples(self, number: int) -> Tensor | None:
        """What tells batch `number` from others, a tensor; None if all batches are the same.

        Raises:
            TypeError: If the data are a stream, whose samples have no indices.
        """
        if not isinstance(self.loader, FullBatchLoader | MiniBatchLoader):
            raise TypeError("samples of a stream have no indices")
        return self.loader.batches(number)

    def grad_on(self, theta: Tensor, samples: Tensor | None, out: Tensor) -> Tensor:
        """Write the gradients [n, P] on these samples into `out`.

        The work does not depend on the samples, so it can be captured.
        """
        if isinstance(self.loader, FullBatchLoader):
            number = 0 if samples is None else samples
            self._write(theta, self.loader.chunks(number, self._split_work), out)
        else:
            assert samples is not None
            for rows in self._split(len(samples)):
                self._write_batches(theta[rows], samples[rows], out[rows])
        return self._clipped(out)

    def poisson_sample(self, rate: float, words: DrawWords) -> PoissonSample:
        """Include each sample of each hosted client independently with probability `rate`.

        Args:
            rate: The probability, above 0 and at most 1.
            words: `(ids, width)` → uniform 32-bit words [len(ids), width] of these clients.

        Raises:
            Misuse: If the rate is not a probability above 0, or the data cannot be sampled.
        """
        return require_samples(self.loader).poisson.draw(rate, words)

    def clipped_sum(
        self, theta: Tensor, sampling: Sampling, number: int, out: Tensor | None = None
    ) -> Tensor:
        return self.clipped_sum_of(theta, self.drawn(sampling, number), sampling.clip, out)

    def drawn(self, sampling: Sampling, number: int) -> PoissonSample:
        """The samples that the hosted clients draw for gradient `number`.

        Raises:
            Misuse: If they may be so many that rounding takes more than its share of the bound.
        """
        poisson = require_samples(self.loader).poisson
        largest = sampling.rate * int(poisson.sizes.max())
        needed = rounding_share(largest, sampling.rate)
        if math.isfinite(sampling.bound) and 0 < sampling.rounding < needed:
            raise Misuse(
                f"A client draws {largest:,.0f} samples on average, whose sum loses more digits in "
                f"single precision than a share of {sampling.rounding:.2g}.",
                "Draw fewer samples, or give clipped_sum a larger `rounding`.",
            )
        hosted = torch.as_tensor(self.clients)

        def words(ids: Tensor, width: int) -> Tensor:
            return sampling.draw(torch.searchsorted(hosted, ids), width)

        return replace(self.poisson_sample(sampling.rate, words), number=number)

    def clipped_sum_of(
        self, theta: Tensor, sample: PoissonSample, bound: float, out: Tensor | None = None
    ) -> Tensor:
        """Each client's sum of the gradients of its samples, each clipped to the norm `bound`.

        A sample's gradient is that of the loss of a batch of this sample. One that is not finite
        counts as zero.

        Args:
            theta: Models [n, P]. One model that is expanded to n rows takes less time than n
                different ones.
            sample: The samples of each client.
            bound: The largest norm C of a sample's gradient.
            out: Where to write [n, P]; default: a new tensor.

        Raises:
            Misuse: If the task has no mini-batches, or its samples influence each other.
        """
        check_number("The clipping bound", bound, above=0, infinite=True, example=1.0)
        out = theta.new_empty(theta.shape) if out is None else out
        self.clipped_sums.write(theta, sample, bound, out)
        return out

    def clear_captures(self) -> None:
        """Free the memory of captured passes."""
        self._captured.clear()
        if "clipped_sums" in vars(self):
            self.clipped_sums.clear_captures()

    def _clipped(self, gradients: Tensor) -> Tensor:
        return gradients if self.task.clip is None else self.task.clip.clip_(gradients)

    def _replay(self, theta: Tensor, batches: Tensor, out: Tensor) -> None:
        """Write the gradients on these batches [n, …] of the loader, by captured passes."""
        for rows in self._split(len(batches)):
            size, some = rows.stop - rows.start, batches[rows]
            if self._computed[size] < BEFORE_CAPTURE:
                self._computed[size] += 1
                self._write_batches(theta[rows], some, out[rows])
                continue
            if size not in self._captured:
                self._captured[size] = captured_pass(self._write_batches, theta[rows], some)
            self._captured[size](theta[rows], some, out[rows])

    def _write_batches(self, theta: Tensor, batches: Tensor, out: Tensor) -> None:
        assert isinstance(self.loader, MiniBatchLoader)
        with self._backend.pass_context(self.device):
            self._backend.write(theta, self.loader.load_batches(batches), out)

    def _write(self, theta: Tensor, chunks: Iterable[Chunk], out: Tensor) -> None:
        backend = self._backend

        turns = Turns() if backend.by_loops and self.pool.size > 1 else None

        def work(chunk: Chunk) -> None:
            rows, load = chunk
            models, arrays = theta[rows], load()
            gradients = out[rows] if isinstance(rows, slice) else torch.empty_like(models)
            with nullcontext() if turns is None else turns.taken():
                backend.write(models, arrays, gradients)
            if not isinstance(rows, slice):
                out[rows] = gradients

        with backend.pass_context(self.device):
            if self._goes_one_by_one:
                self.pool.run_evenly(work, chunks)
            else:
                self.pool.run(work, chunks)

    def minimise(self, linear: Tensor, curvature: Tensor, number: int) -> Tensor:
        proximal = self.task.require_proximal()
        out = torch.empty_like(linear)
        for rows, load in self.loader.chunks(number, self._split):
            out[rows] = vmap(proximal)(linear[rows], curvature[rows, 0], *load())
        return out

    def _split(self, count: int) -> list[slice]:
        return self.pool.split(count, self._backend.clients_per_pass(self.device))

    def _split_work(self, count: int) -> list[slice]:
        """As `_split`; pieces of one client keep all threads busy if clients go one by one."""
        if self._goes_one_by_one and self.pool.size > 1:
            return self.pool.split(count, 1)
        return self._split(count)

    @property
    def _goes_one_by_one(self) -> bool:
        """Whether each client is a pass of its own, by a library that can use several threads."""
        alone = self._backend.clients_per_pass(self.device) == 1
        return self.strategy == "looped" or alone
