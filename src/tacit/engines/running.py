"""Running an algorithm with all clients in this process."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.named import as_algorithm
from tacit.algorithms.private_algorithm import prepare
from tacit.core.checks import check_number, is_count
from tacit.core.devices import Precision
from tacit.core.errors import Caution, Diverged, Misuse
from tacit.core.schedules import in_steps
from tacit.engines.observation import recorded_columns
from tacit.engines.run import Run
from tacit.engines.setting import Generator, Setting
from tacit.engines.simulation import Simulation
from tacit.graph import Graph, GraphSchedule, Participation, Topology
from tacit.graph.named import with_weights
from tacit.graph.schedule import as_schedule
from tacit.privacy.guarantee import Privacy
from tacit.record.callbacks import Callback, check, close, progress_bar, why_stop
from tacit.record.transcript import Keep, Transcript
from tacit.tasks import Objective
from tacit.tasks.metrics.metric import Metrics

if TYPE_CHECKING:
    from tacit.privacy.keystreams import KeyRing  # Needs cryptography, which is optional.


Schedule = GraphSchedule | Callable[[int], Graph] | Sequence[Graph | tuple[Graph, int]]


def run(
    task: Objective,
    algorithm: str | Algorithm,
    graph: str | Topology | Graph | Schedule = "ring",
    *,
    epochs: float | None = None,
    steps: int | None = None,
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
    **options: Any,
) -> Run:
    """Run an algorithm on a task, with all clients in this process.

    Args:
        task: What each client minimises: `tacit.Task`, or a standard problem such as
            `tacit.quadratic`.
        algorithm: The name of an algorithm, which takes the `options`, or an object, such as
            `tacit.LPPA(lr=0.1)`.
        graph: The communication graph: a name such as "ring" or "complete"; a topology, which gets
            Metropolis weights; or a graph with weights. If it changes: a schedule such as
            `tacit.Matchings`, a list of graphs or of pairs (graph, iterations), or a function of
            the iteration.
        epochs: Length of the run: how often the average client sees its data; or give `steps`.
            With full gradients, streams and vectors an epoch is one iteration.
        steps: Number of iterations.
        seed: Keys batches, initial weights and noise.
        device: `"cpu"` or a CUDA device.
        gradients: `"auto"` computes those of all clients at once where that gives the gradients of
            a loop; `"looped"` goes client by client.
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
        **options: Options of a named algorithm, such as `lr=0.1`; a codec, a noise distribution
            and the like by name or as an object.

    Returns:
        The models `run.theta` [N, P], the history, and the transcript if requested.

    Raises:
        Misuse: If the arguments do not fit each other; the message says what to change.
        Diverged: If a state becomes NaN or infinite; the exception has the history until then.

    Example:
        >>> import torch, tacit
        >>> task = tacit.quadratic(torch.eye(2).repeat(3, 1, 1), torch.randn(3, 2))
        >>> run = tacit.run(task, "dsgt", steps=50, lr=0.1)
        >>> run.theta.shape
        torch.Size([3, 2])
    """
    if not isinstance(task, Objective):
        raise Misuse(
            f"task is a {type(task).__name__}.", "Give tacit.Task(model, clients) or a like one."
        )
    chosen = as_algorithm(algorithm, options, also=inspect.signature(run).parameters)
    steps = iterations(task, chosen, epochs, steps)
    chosen = in_steps(chosen, epoch_length(task, chosen))
    every = max(1, steps // 10) if record_every is None else record_every
    if not is_count(every):
        raise Misuse(
            f"record_every is {record_every!r}.", "Give a whole number of at least 1, or None."
        )
    recorded = None
    if transcript:
        recorded = Transcript(transcript if isinstance(transcript, Keep) else Keep())
    union, schedule = as_schedule(with_weights(graph, task.clients))
    if secret_noise:
        if prg != "philox":
            raise Misuse(
                "Both prg and secret_noise are given.", "Leave prg out: the key is a new one."
            )
        prg = "secret"
    setting = Setting(
        chosen,
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
    setting = replace(setting, algorithm=prepare(chosen, privacy, task, union, steps))
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
    backend = simulation.gradients
    setting = replace(setting, gradients=backend.strategy)
    return Run(
        state.theta,
        state,
        simulation.history,
        backend,
        setting,
        recorded,
        simulation.diverged,
        simulation.local,
    )


def iterations(
    task: Objective, algorithm: Algorithm, epochs: float | None, steps: int | None
) -> int:
    """The length of a run in iterations, from whichever of the two is given.

    Raises:
        Misuse: If not exactly one of them is given, or it is impossible.
    """
    if (epochs is None) == (steps is None):
        given = "Neither epochs nor steps is" if epochs is None else "Both epochs and steps are"
        raise Misuse(
            f"{given} given.",
            "Give one of them: epochs=10 for passes over the data, or steps=1000 for iterations.",
        )
    if epochs is None:
        if not is_count(steps, 0):
            raise Misuse(f"steps is {steps!r}.", "Give a whole number that is not negative.")
        # NumPy's integers become Python's, which all files can hold.
        return int(steps)
    check_number("epochs", epochs, above=0, example=10)
    return max(1, round(epochs * epoch_length(task, algorithm)))


def epoch_length(task: Objective, algorithm: Algorithm) -> int:
    """Iterations in which the average client sees its data once.

    Each of several local steps uses a batch, so an epoch has fewer iterations than batches.
    """
    return max(1, task.steps_per_epoch // algorithm.gradients_per_step)
