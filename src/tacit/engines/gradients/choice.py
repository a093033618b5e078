"""Chooses the fastest gradient backend by timing all of them once.

"layered" wins where a model is a chain of known layers, "batched" (torch.func) where layers are
small, and on some processors "looped". The choice is cached per machine and shape: backends round
differently, and the same seed on the same machine must give the same bits.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import timeit
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.core.devices import Precision
from tacit.core.errors import Misuse, first_line
from tacit.core.storage import write_text
from tacit.core.version import __version__
from tacit.core.workers import WorkerPool
from tacit.engines.capture.graphs import WARM_UP, Work, captured
from tacit.engines.gradients.backend import GradientBackend
from tacit.engines.gradients.separable import perturbed
from tacit.engines.gradients.strategies import STRATEGIES, Strategy
from tacit.tasks.batches import BatchLoader
from tacit.tasks.flat import Loss, ModuleLoss
from tacit.tasks.known_layers import has_backward_hooks
from tacit.tasks.layers import layered_loss
from tacit.tasks.parts import Part
from tacit.tasks.purity import check_repeatable
from tacit.tasks.task import Task

# Clients that are timed; clients, and samples of each, on which backends are compared.
SAMPLE = 8
COMPARED = (2, 4)
# Share by which gradients of two backends may differ: rounding is a part of it.
LARGEST_ERROR: dict[Precision, float] = {"float32": 0.01, "tf32": 0.1, "bf16": 0.5}
# Share of a gradient that counts as rounding in each of its parameters, times that error.
SMALL = 0.1
# Seconds of a warm-up after which one timing must do, and times the best one that end a trial.
LONG, HOPELESS = 0.5, 5


@dataclass(frozen=True)
class BackendChoice:
    """A gradient backend, and why it was chosen."""

    strategy: Strategy
    reason: str


def choose_backend(
    task: Task,
    clients: Sequence[int],
    loader: BatchLoader,
    seed: int,
    device: torch.device | str,
    requested: str = "auto",
    pool: WorkerPool | None = None,
    precision: Precision = "float32",
) -> BackendChoice:
    """Use the requested backend, or else the one that is fastest on this machine.

    Args:
        task: What the clients minimise.
        clients: Ids of the hosted clients.
        loader: Loads their batches.
        seed: Keys the initial models.
        device: Where gradients are computed.
        requested: A backend, or "auto" to time all and cache the choice.
        pool: Shares the work of a pass; default: one thread.
        precision: How gradients are computed.

    Raises:
        Misuse: If the backend is unknown or does not fit the loss, or if the loss is random or not
            a single number.
    """
    if requested != "auto" and requested not in STRATEGIES:
        raise Misuse(
            f"gradients is {requested!r}.", 'Choose "auto", "layered", "batched" or "looped".'
        )
    pool = pool or WorkerPool(1)
    sample = min(SAMPLE, GradientBackend.of(task, "looped").clients_per_pass(device))
    _, load = next(iter(loader.chunks(0, lambda count: [slice(0, min(count, sample))])))
    arrays = load()
    theta = task.initial(seed, clients[: len(arrays[0])]).to(device)
    _check_loss(task.loss, theta, arrays)
    if requested != "auto":
        return _as_requested(task, requested, theta, arrays, precision)
    if len(clients) == 1:
        return BackendChoice("looped", "one client")
    layered = layered_loss(task.loss, task.parts, task.batch_size)
    problems = [layered] if isinstance(layered, str) else []
    possible = STRATEGIES[1 if problems or precision == "bf16" else 0 :]
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    cache = Path(root) / "tacit" / "gradients.json"
    key = _cache_key(task, arrays, device, possible, precision)
    entry = _read(cache).get(key)
    cached = entry if isinstance(entry, dict) else {}
    for strategy in [one for one in possible if one == cached.get("strategy")]:
        # It may have been chosen for another loss of the same name and shapes.
        if _usable_backends(task, [strategy], theta, arrays, precision, []):
            return BackendChoice(strategy, str(cached.get("reason", "")))
    backends = _usable_backends(task, possible, theta, arrays, precision, problems)
    if len(backends) == 1:
        return BackendChoice("looped", "; ".join(problems))
    choice = _time_all(backends, theta, arrays, pool)
    # Without a writable cache, backends are timed again next time.
    with suppress(OSError):
        cache.parent.mkdir(parents=True, exist_ok=True)
        write_text(cache, json.dumps(_read(cache) | {key: asdict(choice)}))
    return choice


def _as_requested(
    task: Task, requested: str, theta: Tensor, arrays: Part, precision: Precision
) -> BackendChoice:
    """The requested backend; raises Misuse if it does not work for this task."""
    strategy = next(one for one in STRATEGIES if one == requested)
    # Raises if the loss is not that of a chain.
    backend = GradientBackend.of(task, strategy, precision)
    if strategy == "batched":
        one_by_one = GradientBackend.of(task, "looped", precision)
        few = _few(task.loss, theta, arrays)
        if (problem := _problem(task.loss, backend, one_by_one, *few)) is not None:
            raise Misuse(f'gradients is "batched", but {problem}.', 'Use "looped" or "auto".')
    return BackendChoice(strategy, "as requested")


def _usable_backends(
    task: Task,
    possible: Iterable[Strategy],
    theta: Tensor,
    arrays: Part,
    precision: Precision,
    problems: list[str],
) -> dict[Strategy, GradientBackend]:
    """Those of the possible backends that work for this task; adds why others do not."""
    backends: dict[Strategy, GradientBackend] = {}
    looped = GradientBackend.of(task, "looped", precision)
    few = _few(task.loss, theta, arrays)
    for strategy in possible:
        backend = GradientBackend.of(task, strategy, precision)
        # What the others are compared with needs no check.
        is_reference = strategy == "looped"
        problem = None if is_reference else _problem(task.loss, backend, looped, *few)
        if problem is None:
            backends[strategy] = backend
        elif not any("cannot be batched" in known for known in problems):
            problems.append(problem)
    return backends


def _few(loss: Loss, theta: Tensor, arrays: Part) -> tuple[Tensor, Part]:
    """Some clients, and some samples of each: of a large model, a whole batch takes seconds."""
    clients, samples = COMPARED
    theta, arrays = theta[:clients], tuple(array[:clients] for array in arrays)
    if isinstance(loss, ModuleLoss):
        arrays = tuple(array[:, :samples].contiguous() for array in arrays)
    return theta, arrays


def _problem(
    loss: Loss, backend: GradientBackend, looped: GradientBackend, theta: Tensor, arrays: Part
) -> str | None:
    """Why a backend cannot be used: it fails, or its gradients are not those of a loop."""
    if isinstance(loss, ModuleLoss) and has_backward_hooks(loss.flat.module):
        return "this loss cannot be batched (the model has hooks of its backward pass)"
    found, expected = torch.empty_like(theta), torch.empty_like(theta[:1])
    theta = perturbed(theta)
    try:
        with backend.pass_context(theta.device):
            backend.write(theta, arrays, found)
    except Exception as problem:  # torch.func, Triton and users' criteria raise many kinds
        return f"this loss cannot be batched ({first_line(problem)})"
    # One client is enough: what torch.func does not see, such as hooks, it never sees.
    with looped.pass_context(theta.device):
        looped.write(theta[:1], tuple(array[:1] for array in arrays), expected)
    sizes = loss.flat.sizes if isinstance(loss, ModuleLoss) else [theta.shape[1]]
    if not _agree(found[0], expected[0], sizes, LARGEST_ERROR[looped.precision]):
        return "this loss cannot be batched (its gradients would be others)"
    return None


def _agree(found: Tensor, expected: Tensor, sizes: Sequence[int], tolerance: float) -> bool:
    """Whether two gradients [P] agree in each parameter; of small ones rounding is left out."""
    error = torch.split(found - expected, list(sizes))
    errors = torch.stack([torch.linalg.vector_norm(piece) for piece in error])
    own = torch.split(expected, list(sizes))
    norms = torch.stack([torch.linalg.vector_norm(piece) for piece in own])
    # Not "none is larger": NaN would be allowed.
    return bool((errors <= tolerance * (norms + SMALL * norms.norm())).all())


def _check_loss(loss: Loss, theta: Tensor, arrays: Part) -> None:
    """Raise `Misuse` if a loss is random or not a single number."""
    try:
        value = check_repeatable("loss", lambda: loss(theta[0], *(array[0] for array in arrays)))
    except Misuse:
        raise
    except Exception as error:  # users' losses raise many kinds
        shapes = ", ".join(str(tuple(array[0].shape)) for array in arrays)
        raise Misuse(
            f"The loss fails for a model of {theta.shape[1]} numbers and arrays of shape {shapes}: "
            f"{first_line(error)}.",
            "Check the length of theta0, and that the loss takes any batch of this size.",
        ) from error
    if value.ndim:
        raise Misuse(
            f"The loss of one client has the shape {tuple(value.shape)}.",
            "Return one number, e.g. the mean over the samples.",
        )


def _time_all(
    backends: dict[Strategy, GradientBackend], theta: Tensor, arrays: Part, pool: WorkerPool
) -> BackendChoice:
    """The fastest backend on the same few clients."""
    out = torch.empty_like(theta)
    seconds: dict[Strategy, float] = {}
    for strategy, backend in backends.items():
        pieces = pool.split(len(theta), backend.clients_per_pass(theta.device))

        def write(rows: slice, backend: GradientBackend = backend) -> None:
            backend.write(theta[rows], tuple(array[rows] for array in arrays), out[rows])

        with pool.exclusive(), backend.pass_context(theta.device):
            work = _as_in_a_run(partial(pool.run, write, pieces), theta.device)
            best = min(seconds.values(), default=math.inf) * len(theta)
            seconds[strategy] = _seconds(work, theta, best) / len(theta)
    timing = ", ".join(f"{strategy} {1e3 * taken:.3g} ms" for strategy, taken in seconds.items())
    fastest = min(seconds, key=lambda strategy: seconds[strategy])
    return BackendChoice(fastest, f"timed once on this machine: {timing} per client")


def _as_in_a_run(work: Work, device: torch.device) -> Work:
    """The work as a run does it: captured on a GPU, if that is possible."""
    if device.type != "cuda":
        return work
    try:
        return captured(work, device, warm_up=WARM_UP)
    except Exception:  # It reads from the GPU.
        return work


def _seconds(work: Callable[[], None], like: Tensor, best: float = math.inf) -> float:
    """The better of two timings after a warm-up; fewer of what takes long.

    Args:
        work: What to time.
        like: A tensor on the device that does the work.
        best: The shortest time of other work. If the warm-up takes HOPELESS times as long, its own
            time is returned.
    """

    def once() -> None:
        work()
        if like.is_cuda:
            torch.cuda.synchronize()

    warm_up = timeit.timeit(once, number=1)
    if warm_up > HOPELESS * best:
        return warm_up
    return min(timeit.repeat(once, number=1, repeat=1 if warm_up > LONG else 2))


def _cache_key(
    task: Task,
    arrays: Part,
    device: torch.device | str,
    backends: Iterable[Strategy],
    precision: Precision,
) -> str:
    """Digest of what timings depend on: machine, versions, threads, loss, shapes and backends."""
    loss = task.loss.flat.module if isinstance(task.loss, ModuleLoss) else task.loss
    name = getattr(loss, "__qualname__", type(loss).__name__)
    if isinstance(loss, torch.nn.Module):
        name = repr(loss)
    gpu = torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else ""
    facts = (
        platform.machine(), os.cpu_count(), torch.__version__, torch.get_num_threads(), gpu, name,
        task.parameters, str(task.dtype), [tuple(array.shape) for array in arrays],
        sorted(backends), precision, __version__,
    )  # fmt: skip
    return hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest()


def _read(cache: Path) -> dict[str, Any]:
    """The choices made on this machine; none if the file is damaged or not there."""
    try:
        known = json.loads(cache.read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
