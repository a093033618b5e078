"""Running an algorithm with all clients in this process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.private_algorithm import prepare
from tacit.core.checks import is_count
from tacit.core.devices import Precision
from tacit.core.errors import Caution, Diverged, Misuse
from tacit.engines.observation import recorded_columns
from tacit.engines.run import Run
from tacit.engines.setting import Generator, Setting
from tacit.engines.simulation import Simulation
from tacit.graph import Graph, GraphSchedule, Participation
from tacit.graph.schedule import as_schedule
from tacit.privacy.guarantee import Privacy
from tacit.record.callbacks import Callback, check, close, progress_bar, why_stop
from tacit.record.transcript import Keep, Transcript
from tacit.tasks.metrics.metric import Metrics
from tacit.tasks.task import Task

if TYPE_CHECKING:
    from tacit.privacy.keystreams import KeyRing  # Needs cryptography, which is optional.


GraphOrSchedule = (
    Graph | GraphSchedule | Callable[[int], Graph] | Sequence[Graph | tuple[Graph, int]]
)


def simulate(
    algorithm: Algorithm,
    task: Task,
    graph: GraphOrSchedule,
    *,
    steps: int,
    seed: int = 0,
    device: torch.device | str = "cpu",
    gradients: str = "auto",
    prg: Generator | KeyRing = "philox",
    secret_noise: bool = False,
    precision: Precision = "float32",
    privacy: Privacy | None = None,
    metrics: Metrics | None = None,
    participation: Participation | None = None,
    record_every: int | None = None,
    allow_divergence: bool = False,
    transcript: bool | Keep = False,
    callbacks: Sequence[Callback] = (),
    progress: Callable[[Simulation], None] | bool | None = None,
) -> Run:
    """Run an algorithm with all clients in this process.

    Args:
        algorithm: The algorithm with its options, such as `tacit.LPPA(lr=0.1)`.
        task: What each client minimises.
        graph: The communication graph, with mixing weights. If it changes: a schedule such as
            `tacit.Matchings`, a list of graphs or of pairs (graph, iterations), or a function of
            the iteration.
        steps: Number of iterations.
        seed: Keys batches, initial weights and noise.
        device: `"cpu"` or a CUDA device.
        gradients: The gradient backend; `"auto"` chooses the fastest by timing.
        prg: Where noise comes from: `"philox"`, `"chacha20"` or a `KeyRing`.
        secret_noise: Draw the samples of private sums, and noise, from a key of the operating
            system's randomness, which is forgotten with the run. Otherwise they follow from the
            seed, and a guarantee is simulated: whoever knows the seed can subtract the noise.
        precision: How gradients are computed: `"float32"`, `"tf32"` or `"bf16"`.
        privacy: The guarantee that the run must keep, with an algorithm such as
            `tacit.PrivateSGD`; it stops when the budget is spent.
        metrics: What to record beside loss and accuracy: a list of names such as "auc", or a
            dictionary of functions `f(outputs, targets)` of all outputs [n, ...] of a model and
            the targets [n, ...] of the test set. docs/guides/metrics.md has the names.
        participation: Which clients take part when, and which messages are late; by default all
            clients, without delay.
        record_every: Iterations between two records of the history; default: a tenth of the run.
            There is always one at the start and one at the end.
        allow_divergence: Continue when a state is no longer finite.
        transcript: True records every message in `run.transcript`; a `tacit.Keep` some of them.
        callbacks: Called with each record and the simulation, such as
            `tacit.callbacks.EarlyStopping()` or a function `(record, simulation)`. One that returns
            True, or the reason as text, ends the run there.
        progress: True shows a bar, in a terminal or a notebook; a function is called with the
            simulation after every iteration.

    Returns:
        The models `run.theta` [N, P], the history, and the transcript if requested.

    Raises:
        Misuse: If the arguments do not fit each other; the message says what to change.
        Diverged: If a state becomes NaN or infinite; the exception has the history until then.

    Example:
        >>> import torch, tacit
        >>> graph = tacit.Topology.ring(3).mixing("metropolis")
        >>> task = tacit.quadratic(torch.eye(2).repeat(3, 1, 1), torch.randn(3, 2))
        >>> run = tacit.simulate(tacit.DSGT(lr=0.1), task, graph, steps=50)
        >>> run.theta.shape
        torch.Size([3, 2])
    """
    if not is_count(steps, 0):
        raise Misuse(f"steps is {steps!r}.", "Give a whole number that is not negative.")
    # NumPy's integers become Python's, which all files can hold.
    steps = int(steps)
    every = max(1, steps // 10) if record_every is None else record_every
    if not is_count(every):
        raise Misuse(
            f"record_every is {record_every!r}.", "Give a whole number of at least 1, or None."
        )
    recorded = None
    if transcript:
        recorded = Transcript(transcript if isinstance(transcript, Keep) else Keep())
    union, schedule = as_schedule(graph)
    if secret_noise:
        if prg != "philox":
            raise Misuse(
                "Both prg and secret_noise are given.", "Leave prg out: the key is a new one."
            )
        prg = "secret"
    setting = Setting(
        algorithm,
        task,
        union,
        seed,
        device,
        gradients,
        prg,
        precision,
        metrics,
        schedule,
        participation,
    )
    setting.check()
    setting = replace(setting, algorithm=prepare(algorithm, privacy, task, union, steps))
    simulation = Simulation(setting, allow_divergence=allow_divergence, transcript=recorded)
    for caution in simulation.cautions:
        warnings.warn(caution, Caution, stacklevel=2)
    check(callbacks, recorded_columns(simulation.task))
    simulation.start()
    last = int(min(steps, simulation.allowed_steps))
    try:
        with progress_bar(last) if progress is True else nullcontext(progress or None) as report:
            simulation.record()
            reason = why_stop(callbacks, simulation)
            while simulation.t < last and reason is None:
                simulation.step()
                if simulation.t % every == 0 or simulation.t == last:
                    simulation.record()
                    reason = why_stop(callbacks, simulation)
                if report is not None:
                    report(simulation)
    except Diverged as problem:
        problem.history = simulation.history
        raise
    finally:
        close(callbacks)
    for alert in simulation.history[-1].alerts() if steps else ():
        warnings.warn(alert, Caution, stacklevel=2)
    state = simulation.state
    # With the backend that was chosen, so that the setting gives the same bits again.
    chosen = simulation.gradients
    setting = replace(setting, gradients=chosen.strategy)
    return Run(
        state.theta,
        state,
        simulation.history,
        chosen,
        setting,
        recorded,
        simulation.diverged,
        simulation.local,
    )
