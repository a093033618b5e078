"""Which way of taking gradients is fastest here: found out by trying all once.

Layers batched by hand win where a model is made of those; torch's own batching where layers are small; on some
processors a plain loop, client by client. The outcome is remembered per machine and shape, because the ways round
differently and the same seed on the same machine must give the same bits.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tacit.core.errors import Misuse, first_line
from tacit.core.storage import write_text
from tacit.core.workers import WorkerPool
from tacit.engines.gradients.objective import GradientBackend, Strategy
from tacit.tasks.batches import BatchLoader
from tacit.tasks.flat import Loss, ModuleLoss, check_deterministic
from tacit.tasks.layers import layered_loss
from tacit.tasks.parts import Part
from tacit.tasks.task import Task

SAMPLE = 8  # clients in the trial
STRATEGIES: tuple[Strategy, ...] = ("layered", "batched", "looped")


@dataclass(frozen=True)
class BackendChoice:
    """How gradients are taken, and why."""

    strategy: Strategy
    reason: str


def choose_backend(
    task: Task,
    clients: Sequence[int],
    loader: BatchLoader,
    seed: int,
    device: torch.device | str,
    wish: str = "auto",
    pool: WorkerPool | None = None,
) -> BackendChoice:
    """Take the wish, or else choose by timing all ways once on this machine; a remembered choice is taken again."""
    for strategy in STRATEGIES:
        if wish == strategy:
            GradientBackend.of(task, strategy)  # refuses what cannot be taken so
            return BackendChoice(strategy, "as asked")
    if wish != "auto":
        raise Misuse(f"gradients is {wish!r}.", 'Choose "auto", "layered", "batched" or "looped".')
    if len(clients) == 1:
        return BackendChoice("looped", "one client")
    pool = pool or WorkerPool(1)
    sample = min(SAMPLE, GradientBackend.of(task, "looped").clients_per_pass(device))
    _, load = next(iter(loader.chunks(0, lambda count: [slice(0, min(count, sample))])))
    arrays = load()
    theta = task.initial(seed, clients[: len(arrays[0])]).to(device)
    _refuse_unfit(task.loss, theta, arrays)
    ways, refusals = _ways(task, theta, arrays)
    if len(ways) == 1:
        return BackendChoice("looped", "; ".join(refusals))
    memory = _Memory.default()
    key = _signature(task, arrays, device, ways)
    # A choice that is remembered may have been made for another loss of the same name and shapes.
    known = memory.recall(key)
    if known is not None and known.strategy in ways:
        return known
    choice = _time_all(ways, theta, arrays, pool)
    memory.remember(key, choice)
    return choice


def _ways(
    task: Task, theta: Tensor, arrays: Part
) -> tuple[dict[Strategy, GradientBackend], list[str]]:
    """The ways that work here, and why others do not."""
    ways: dict[Strategy, GradientBackend] = {}
    reason = layered_loss(task.loss, task.parts, task.batch_size)
    refusals = [reason] if isinstance(reason, str) else []
    for strategy in STRATEGIES[1 if refusals else 0 : -1]:
        way = GradientBackend.of(task, strategy)
        if (refusal := _refusal(way, theta, arrays)) is None:
            ways[strategy] = way
        elif refusal not in refusals:
            refusals.append(refusal)
    ways["looped"] = GradientBackend.of(task, "looped")
    return ways, refusals


def _refuse_unfit(loss: Loss, theta: Tensor, arrays: Part) -> None:
    """Refuse a loss that is random or not one number."""
    value = check_deterministic("loss", lambda: loss(theta[0], *(array[0] for array in arrays)))
    if value.ndim:
        raise Misuse(
            f"The loss of one client has the shape {tuple(value.shape)}.",
            "Return one number, e.g. the mean over the samples.",
        )


def _refusal(way: GradientBackend, theta: Tensor, arrays: Part) -> str | None:
    """Why the loss cannot be batched in this way, or None if it can."""
    try:
        way.write(theta, arrays, torch.empty_like(theta))
    except (
        Exception
    ) as problem:  # torch.func, Triton and a user's own criterion refuse in many ways
        return f"this loss cannot be batched ({first_line(problem)})"
    return None


def _time_all(
    ways: dict[Strategy, GradientBackend], theta: Tensor, arrays: Part, pool: WorkerPool
) -> BackendChoice:
    """Time all ways on the same few clients, as they will be taken."""
    out = torch.empty_like(theta)
    seconds = {}
    for strategy, way in ways.items():
        pieces = pool.split(len(theta), way.clients_per_pass(theta.device))

        def write(rows: slice, way: GradientBackend = way) -> None:
            way.write(theta[rows], tuple(array[rows] for array in arrays), out[rows])

        def work(pieces: list[slice] = pieces, write: Callable[[slice], None] = write) -> None:
            pool.run(write, pieces)

        with pool.exclusive(), way.products(theta.device):
            seconds[strategy] = _seconds(work, theta) / len(theta)
    timing = ", ".join(f"{strategy} {1e3 * taken:.3g} ms" for strategy, taken in seconds.items())
    return BackendChoice(
        min(seconds, key=lambda one: seconds[one]),
        f"timed once on this machine: {timing} per client",
    )


def _seconds(work: Callable[[], None], like: Tensor) -> float:
    """The better of two timings after a first run that is not counted."""

    def once() -> float:
        begin = time.perf_counter()
        work()
        if like.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    once()
    return min(once(), once())


def _signature(
    task: Task, arrays: Part, device: torch.device | str, ways: Iterable[Strategy]
) -> str:
    """What the outcome depends on: machine, versions, threads, loss, shapes, and what there was to choose from."""
    loss = task.loss.flat.module if isinstance(task.loss, ModuleLoss) else task.loss
    name = (
        repr(loss)
        if isinstance(loss, torch.nn.Module)
        else getattr(loss, "__qualname__", type(loss).__name__)
    )
    gpu = torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else ""
    facts = (
        platform.machine(), os.cpu_count(), torch.__version__, torch.get_num_threads(), gpu, name,
        task.parameters, str(task.dtype), [tuple(array.shape) for array in arrays], sorted(ways),
    )  # fmt: skip
    return hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class _Memory:
    """Choices made on this machine, in one small file of the user's cache folder."""

    path: Path

    @classmethod
    def default(cls) -> _Memory:
        root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        return cls(Path(root) / "tacit" / "gradients.json")

    def _read(self) -> dict[str, dict[str, str]]:
        try:
            known = json.loads(self.path.read_text())
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}

    def recall(self, key: str) -> BackendChoice | None:
        entry = self._read().get(key)
        if not isinstance(entry, dict):
            return None
        chosen = [strategy for strategy in STRATEGIES if strategy == entry.get("strategy")]
        return BackendChoice(chosen[0], str(entry.get("reason", ""))) if chosen else None

    def remember(self, key: str, choice: BackendChoice) -> None:
        known = self._read() | {key: {"strategy": choice.strategy, "reason": choice.reason}}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_text(self.path, json.dumps(known))
        except OSError:
            return  # a home without a writable cache only means timing again next time
