"""Which way of taking gradients is faster here: found out by trying both once.

Batched passes win where layers are small; on some processors convolutions with weights of their own per client
are slower batched than in a plain loop. The outcome is remembered per machine and shape, because the two ways
round differently and the same seed on the same machine must give the same bits.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tacit.errors import Misuse
from tacit.tasks.feed import Feed
from tacit.tasks.flat import Loss, ModuleLoss, refuse_hidden_stream
from tacit.tasks.gradients import PASSES, Strategy, batched, clients_per_pass, looped
from tacit.tasks.parts import Part
from tacit.tasks.task import Task

SAMPLE = 8  # clients in the trial


@dataclass(frozen=True)
class Plan:
    """How gradients are taken, and why."""

    strategy: Strategy
    reason: str


def plan(
    task: Task, clients: Sequence[int], feed: Feed, seed: int, device: torch.device | str, wish: str = "auto"
) -> Plan:
    """Take the wish, or else choose by timing both ways once on this machine; a remembered choice is taken again."""
    if wish in PASSES:
        return Plan(wish, "as asked")
    if wish != "auto":
        raise Misuse(f"gradients is {wish!r}.", 'Choose "auto", "batched" or "looped".')
    if len(clients) == 1:
        return Plan("looped", "one client")
    _, arrays = next(iter(feed.groups(0, min(SAMPLE, clients_per_pass(task)))))
    arrays = tuple(array[:SAMPLE] for array in arrays)
    theta = task.initial(seed, clients[: len(arrays[0])]).to(device)
    _refuse_unfit(task.loss, theta, arrays)
    memory = _Memory.default()
    key = _signature(task, arrays, device)
    known = memory.recall(key)
    if known is not None and known.strategy == "looped":
        return known
    # Tried even where remembered: another loss of the same name and shapes may have been the one that was timed.
    if (refusal := _refusal(task.loss, theta, arrays)) is not None:
        return Plan("looped", refusal)
    if known is not None:
        return known
    choice = _time_both(task.loss, theta, arrays)
    memory.remember(key, choice)
    return choice


def _refuse_unfit(loss: Loss, theta: Tensor, arrays: Part) -> None:
    """Refuse a loss that is random or not one number."""
    value = refuse_hidden_stream("loss", lambda: loss(theta[0], *(array[0] for array in arrays)))
    if value.ndim:
        raise Misuse(
            f"The loss of one client has the shape {tuple(value.shape)}.",
            "Return one number, e.g. the mean over the samples.",
        )


def _refusal(loss: Loss, theta: Tensor, arrays: Part) -> str | None:
    """Why this loss cannot be batched, or None if it can."""
    try:
        batched(loss, theta, arrays)
    except (RuntimeError, ValueError) as problem:  # what torch.func cannot batch, it refuses with these
        first_line = str(problem).strip().splitlines()[0] if str(problem).strip() else type(problem).__name__
        return f"this loss cannot be batched ({first_line})"
    return None


def _time_both(loss: Loss, theta: Tensor, arrays: Part) -> Plan:
    few = tuple(array[:2] for array in arrays)
    alone = _seconds(lambda: looped(loss, theta[:2], few), theta) / len(few[0])
    together = _seconds(lambda: batched(loss, theta, arrays), theta) / len(theta)
    strategy: Strategy = "batched" if together < alone else "looped"
    timing = f"batched {1e3 * together:.3g} ms, looped {1e3 * alone:.3g} ms per client"
    return Plan(strategy, f"timed once on this machine: {timing}")


def _seconds(work: Callable[[], Tensor], like: Tensor) -> float:
    """The better of two timings after a first run that is not counted."""

    def once() -> float:
        begin = time.perf_counter()
        work()
        if like.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - begin

    once()
    return min(once(), once())


def _signature(task: Task, arrays: Part, device: torch.device | str) -> str:
    """What the outcome depends on: machine, versions, threads, loss, shapes."""
    loss = task.loss.flat.module if isinstance(task.loss, ModuleLoss) else task.loss
    name = (
        repr(loss)
        if isinstance(loss, torch.nn.Module)
        else getattr(loss, "__qualname__", type(loss).__name__)
    )
    gpu = torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else ""
    facts = (
        platform.machine(), os.cpu_count(), torch.__version__, torch.get_num_threads(), gpu, name,
        task.parameters, str(task.dtype), [tuple(array.shape) for array in arrays],
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

    def recall(self, key: str) -> Plan | None:
        entry = self._read().get(key)
        if not isinstance(entry, dict):
            return None
        chosen = [strategy for strategy in PASSES if strategy == entry.get("strategy")]
        return Plan(chosen[0], str(entry.get("reason", ""))) if chosen else None

    def remember(self, key: str, choice: Plan) -> None:
        known = self._read() | {key: {"strategy": choice.strategy, "reason": choice.reason}}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self.path.parent, delete=False) as new:
                json.dump(known, new)
            os.replace(new.name, self.path)
        except OSError:
            return  # a home without a writable cache only means timing again next time
