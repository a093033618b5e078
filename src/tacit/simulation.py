"""Simulating clients: all of them in one process, or divided among several."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm, tensors_of
from tacit.algorithms.private_algorithm import PrivateAlgorithm, prepare
from tacit.core.devices import Precision, check_device, check_precision, float32_products
from tacit.core.errors import Caution, Diverged, Misuse, unknown_name
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.notebooks import html_table
from tacit.core.randomness import Philox, Randomness
from tacit.core.rows import shared
from tacit.core.workers import WorkerPool
from tacit.engines.execution import Execution, reproducible
from tacit.engines.gradients.choice import BackendChoice, choose_backend
from tacit.engines.gradients.objective import HostedObjective
from tacit.engines.group import Hosted, ProcessGroup
from tacit.engines.lazy_clients import LazyClients
from tacit.engines.lazy_rows import Workspace
from tacit.engines.observation import observe
from tacit.engines.state_checks import require_rows
from tacit.engines.watchdog import Watchdog
from tacit.graph import Graph, Topology
from tacit.privacy.guarantee import Budget, Privacy
from tacit.record.callbacks import Callback, close, progress_bar, why_stop
from tacit.record.history import History, Record
from tacit.record.transcript import Keep, Transcript, TranscriptRecorder
from tacit.tasks.flat import ModuleLoss
from tacit.tasks.task import Task

if TYPE_CHECKING:
    from tacit.privacy.keystreams import KeyRing  # Needs cryptography, which is optional.

Generator = Literal["philox", "chacha20"]


@dataclass(frozen=True, eq=False)
class Setting:
    """Everything that determines a run: the same setting gives the same messages.

    Attributes:
        algorithm: The algorithm with its options.
        task: What each client minimises, on which data.
        graph: Who sends to whom, with mixing weights.
        seed: Keys batches, initial weights and noise.
        device: `"cpu"` or a CUDA device.
        gradients: The gradient backend, or `"auto"` to choose the fastest by timing.
        prg: Where noise comes from: `"philox"`, the fast generator; `"chacha20"`, keystreams as
            real nodes derive them, of keys made from the seed; or given keys.
        precision: How gradients are computed: in `"float32"`, in `"tf32"` on a GPU, or in `"bf16"`
            by autocast. Models, messages and updates stay as they are.
    """

    algorithm: Algorithm
    task: Task
    graph: Graph
    seed: int = 0
    device: torch.device | str = "cpu"
    gradients: str = "auto"
    prg: Generator | KeyRing = "philox"
    precision: Precision = "float32"

    @property
    def start_alike(self) -> bool:
        """Whether all clients start from one model, which each of them therefore knows."""
        first = self.task.initial(int(self.seed), range(self.task.clients))
        return len(first) > 1 and bool((first == first[0]).all())

    def check(self) -> None:
        """Raise `Misuse` if the parts are not what they should be or do not fit each other."""
        if isinstance(self.graph, Topology):
            raise Misuse(
                "The graph has no weights yet.", 'Add them: topology.mixing("metropolis").'
            )
        for name, kind in (("task", Task), ("graph", Graph)):
            if not isinstance(value := getattr(self, name), kind):
                raise Misuse(
                    f"{name} is a {type(value).__name__}.", f"Give a tacit.{kind.__name__}."
                )
        if not isinstance(self.algorithm, Algorithm):
            raise Misuse(
                f"algorithm is {self.algorithm!r}.",
                "Give one of tacit.ALGORITHMS, made with its options.",
            )
        if not hasattr(self.algorithm, "name"):
            problem = f"{type(self.algorithm).__name__} has no name."
            raise Misuse(problem, 'Add one to the class: name = "my-algorithm".')
        if self.task.clients != self.graph.clients:
            raise Misuse(
                f"The task has {self.task.clients} clients, the graph {self.graph.clients}.",
                "Give both the same number of clients.",
            )
        if isinstance(self.seed, bool) or not hasattr(self.seed, "__index__"):
            raise Misuse(f"seed is {self.seed!r}.", "Give a whole number.")
        check_precision(self.precision, self.task.dtype)
        self.algorithm.check_graph(self.graph)
        check_fit(self.algorithm, self.task)
        if self.algorithm.needs_total and not self.start_alike and self.task.clients > 1:
            raise Misuse(
                f"{self.algorithm.name} trains one model, but the clients start from different "
                "ones.",
                'Let them start from one: init="same" or init="module".',
            )


@dataclass(frozen=True, eq=False)
class Run:
    """The result of a simulation.

    Attributes:
        theta: The models [N, P].
        state: The whole state of the algorithm.
        history: Metrics over time.
        gradients: The gradient backend, and why it was chosen.
        setting: What determined the run.
        transcript: Every message, if requested.
        diverged: Where a state first became NaN or infinite, if that was allowed.
    """

    theta: Tensor
    state: Any
    history: History
    gradients: BackendChoice
    setting: Setting
    transcript: Transcript | None = None
    diverged: str | None = None

    def __repr__(self) -> str:
        clients, parameters = self.theta.shape
        return f"Run({clients} clients, {parameters:,} parameters, {self.history!r})"

    def _repr_html_(self) -> str:
        """What ran and the last records, for notebooks."""
        setting = self.setting
        facts = {
            "algorithm": setting.algorithm.name,
            "graph": setting.graph,
            "clients": setting.graph.clients,
            "parameters": f"{setting.task.parameters:,}",
            "seed": setting.seed,
        }
        title = "Run" if self.diverged is None else f"Run, diverged: {self.diverged}"
        return html_table(title, list(facts), [list(facts.values())], self.history._repr_html_())


class Simulation(Execution):
    """A run in progress: `state` after `t` iterations, advanced by `step`.

    `history` has the records so far.

    Args:
        setting: What determines the run.
        allow_divergence: Continue when a state is no longer finite, instead of raising `Diverged`.
        round_length: Iterations per round; default: one pass over the average client's data.
        transcript: Where to record messages, if anywhere.
        hosted: The clients of this process; default: all. With several processes, all of them must
            make the same calls.
    """

    def __init__(
        self,
        setting: Setting,
        *,
        allow_divergence: bool = False,
        round_length: int | None = None,
        transcript: Transcript | None = None,
        hosted: Hosted | None = None,
    ) -> None:
        setting.check()
        self.setting = setting
        algorithm, task, graph = setting.algorithm, setting.task, setting.graph
        self.hosted = hosted or Hosted.of(ProcessGroup(), graph)
        group, ids, seed = self.hosted.group, self.hosted.ids, int(setting.seed)
        device = check_device(group.device(setting.device))
        # Each thread has its own copy of a module and its criterion; other losses may not be
        # thread-safe.
        pool = WorkerPool(1)
        if isinstance(task.loss, ModuleLoss):
            pool = WorkerPool.for_device(device)
        neighbourhood = Neighbourhood.of(graph.edges, ids, device, graph.weights)
        loader = task.loader(torch.as_tensor(ids), seed, device)
        self.task = task.to(device, pool)
        work = (self.task, ids.tolist(), loader)
        options = (setting.gradients, pool, setting.precision)
        choose = partial(choose_backend, *work, seed, device, *options)
        # Chosen once for all processes, because backends round differently.
        self.gradients = BackendChoice(**group.run_on_first(lambda: asdict(choose())))
        strategy = self.gradients.strategy
        objective = HostedObjective(*work, strategy, seed, device, pool, setting.precision)
        self.net = self.hosted.network(graph, task.dtype, device, pool)
        self.recorder: TranscriptRecorder | None = None
        here = LazyClients(
            neighbourhood,
            self.net,
            objective,
            _randomness(setting.prg, seed, task, pool),
            algorithm.gradients_per_step,
            workspace=Workspace(self.net.buffers, pool),
            common_start=algorithm.needs_total,
        )
        if transcript is not None:
            if group.ranks > 1:
                raise Misuse(
                    "A transcript has all messages, but these are spread over ranks.",
                    "Record it without torchrun, or leave the transcript out.",
                )
            self.recorder = TranscriptRecorder(self.net, transcript, neighbourhood)
            here = self.recorder.wrap(here)
        # A captured step cannot be observed and sends nothing to other processes.
        capture = device.type == "cuda" and self.recorder is None and group.ranks == 1
        super().__init__(algorithm, here, device, Watchdog(pool), capture)
        self.cautions = algorithm.cautions(graph)
        self._remarks = algorithm.remarks(graph)
        self.allow_divergence = allow_divergence
        self.round_length = round_length or max(
            1, task.steps_per_epoch // algorithm.gradients_per_step
        )
        self.diverged: str | None = None
        self.history = History()
        # Reading from a GPU waits for all of its work, and asking other processes waits for them.
        self._check_every = 1 if group.ranks == 1 else 16
        if device.type == "cuda":
            self._check_every = self.round_length * -(-256 // self.round_length)
        self._earlier_seconds = 0.0
        self._begun = time.perf_counter()

    @property
    def budget(self) -> Budget | None:
        """What the run spends of a promised guarantee, if there is one."""
        algorithm = self.algorithm
        return algorithm.budget if isinstance(algorithm, PrivateAlgorithm) else None

    @cached_property
    def allowed_steps(self) -> float:
        """How many iterations the privacy budget allows; infinite without one."""
        return math.inf if self.budget is None else self.budget.allowed_steps

    @property
    def remarks(self) -> list[str]:
        """What theory says of the algorithm's options, and why steps are not captured, if so."""
        if (reason := self.why_not_captured) is None:
            return self._remarks
        return [*self._remarks, f"iterations are computed one by one, not captured: {reason}"]

    @property
    def wall_seconds(self) -> float:
        """Seconds spent so far, earlier parts of a resumed run included."""
        return self._earlier_seconds + time.perf_counter() - self._begun

    def start(self) -> None:
        """Compute the state before the first iteration."""
        super().start()
        self.check()

    def check_rows(self, method: str, state: Any) -> None:
        """Raise Misuse if the state that `start` or `step` returned does not fit the task."""
        sizes = (len(self.hosted.ids), self.task.parameters, self.task.dtype)
        require_rows(type(self.algorithm).__name__, method, state, *sizes)

    def restore(
        self,
        state: Any,
        t: int,
        bytes_sent: int,
        wall_seconds: float,
        diverged: str | None = None,
    ) -> None:
        """Continue from an earlier state.

        Args:
            state: The state after `t` iterations.
            t: The number of iterations.
            bytes_sent: Bytes sent by all clients until then.
            wall_seconds: Seconds spent until then.
            diverged: Where the run had diverged, if it had.
        """
        if self.algorithm.needs_total:
            # All clients have the same rows, which need not be computed for each.
            rows = {name: shared(one[:1], len(one)) for name, one in tensors_of(state).items()}
            state = replace(state, **rows)
        self.state, self.t, self.diverged = state, t, diverged
        self.net.bytes_sent = bytes_sent
        self._earlier_seconds = wall_seconds

    def step(self) -> None:
        """Compute one iteration; raises Misuse if the privacy budget does not allow it."""
        if self.t >= self.allowed_steps:
            raise Misuse(
                f"The privacy budget is spent: it allows {self.allowed_steps} iterations.",
                "Keep the model as it is, or start again with a larger epsilon or more noise.",
            )
        if self.recorder is not None:
            self.recorder.set_tick(self.t + 1)
        super().step()
        if self.t % self._check_every == 0:
            self.check()

    def observe(self) -> Record:
        """Evaluate the current models, at the time of the last gradient's batch."""
        self.check()
        number = self.t * self.here.gradients_per_step
        # Scores need no more digits than the gradients that led to them.
        tf32 = self.setting.precision != "float32"
        with reproducible(self.device), float32_products(tf32=tf32):
            return observe(
                self._current.theta,
                self.task.evaluation.at_batch(number),
                self.hosted,
                optimum=self.task.optimum_at(number),
                round=self.t // self.round_length,
                step=self.t,
                bytes_sent=self.net.bytes_sent,
                wall_seconds=self.wall_seconds,
            )

    def record(self) -> Record:
        """Evaluate the current models, and append the record to the history."""
        self.history.records.append(self.observe())
        return self.history.records[-1]

    def check(self) -> None:
        """Record where a state first was not finite; raise `Diverged` unless that is allowed."""
        if self.diverged is not None:
            self._watchdog.clear()
            return
        found = self.hosted.group.minimum(self._found_here())
        if found is None:
            return
        iteration, field, row, is_client = found
        name = list(tensors_of(self._current))[field]
        kind = "client" if is_client else "row"
        self.diverged = f"{name} of {kind} {row} is not finite at iteration {iteration}"
        if not self.allow_divergence:
            raise Diverged(
                f"The run diverged: {self.diverged}. Try a smaller step size or less noise; "
                "to continue such a run to its end, set allow_divergence."
            )

    def _found_here(self) -> tuple[int, int, int, int] | None:
        """Iteration, field, row and whether it is a client's, of the first that is not finite.

        Rows are counted over all processes.
        """
        if (found := self._watchdog.first_found()) is None:
            return None
        fields = tensors_of(self._current)
        hosted, field = self.hosted, list(fields).index(found.field)
        is_client = len(fields[found.field]) == len(hosted.ids)
        rows = hosted.ids if is_client else hosted.partition.out_edges(hosted.group.rank)
        return found.iteration, field, int(rows[found.row]), int(is_client)


def simulate(
    algorithm: Algorithm,
    task: Task,
    graph: Graph,
    *,
    steps: int,
    seed: int = 0,
    device: torch.device | str = "cpu",
    gradients: str = "auto",
    prg: Generator | KeyRing = "philox",
    precision: Precision = "float32",
    privacy: Privacy | None = None,
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
        graph: Who sends to whom, with mixing weights.
        steps: Number of iterations.
        seed: Keys batches, initial weights and noise.
        device: `"cpu"` or a CUDA device.
        gradients: The gradient backend; `"auto"` chooses the fastest by timing.
        prg: Where noise comes from: `"philox"`, `"chacha20"` or a `KeyRing`.
        precision: How gradients are computed: `"float32"`, `"tf32"` or `"bf16"`.
        privacy: The guarantee that the run must keep, with an algorithm such as
            `tacit.PrivateSGD`; it stops when the budget is spent.
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
    if not isinstance(steps, int) or steps < 0:
        raise Misuse(f"steps is {steps!r}.", "Give a whole number that is not negative.")
    every = max(1, steps // 10) if record_every is None else record_every
    if not isinstance(every, int) or every < 1:
        raise Misuse(
            f"record_every is {record_every!r}.", "Give a whole number of at least 1, or None."
        )
    recorded = None
    if transcript:
        recorded = Transcript(transcript if isinstance(transcript, Keep) else Keep())
    setting = Setting(algorithm, task, graph, seed, device, gradients, prg, precision)
    setting.check()
    setting = replace(setting, algorithm=prepare(algorithm, privacy, task, graph, steps))
    simulation = Simulation(setting, allow_divergence=allow_divergence, transcript=recorded)
    for caution in simulation.cautions:
        warnings.warn(caution, Caution, stacklevel=2)
    simulation.start()
    last = min(steps, simulation.allowed_steps)
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
    state = simulation.state
    # With the backend that was chosen, so that the setting gives the same bits again.
    chosen = simulation.gradients
    setting = replace(setting, gradients=chosen.strategy)
    history = simulation.history
    return Run(state.theta, state, history, chosen, setting, recorded, simulation.diverged)


def _randomness(prg: Generator | KeyRing, seed: int, task: Task, pool: WorkerPool) -> Randomness:
    """The source of all clients' noise. Batches and initial weights always come from the seed."""
    if prg == "philox":
        return Philox(seed, task.parameters, task.dtype, pool)
    if isinstance(prg, str) and prg != "chacha20":
        raise unknown_name(f"prg is {prg!r}.", prg, ("philox", "chacha20"), also=", or a KeyRing")
    from tacit.privacy.keystreams import KeyRing

    ring = KeyRing.from_seed(task.clients, seed) if isinstance(prg, str) else prg
    if not isinstance(ring, KeyRing):
        raise unknown_name(
            f"prg is a {type(prg).__name__}.", "", ("philox", "chacha20"), also=", or a KeyRing"
        )
    if len(ring.names) != task.clients:
        raise Misuse(
            f"The key ring has {len(ring.names)} clients, the task has {task.clients}.",
            "Give both the same number of clients.",
        )
    if len(ring.secrets) != task.clients:
        raise Misuse(
            f"The key ring has the private keys of {len(ring.secrets)} of {task.clients} clients.",
            "A simulation hosts all clients: give all keys, or use KeyRing.from_seed.",
        )
    return ring.randomness(task.parameters, task.dtype)


def check_fit(algorithm: Algorithm, task: Task) -> None:
    """Raise `Misuse` if an algorithm's options do not fit the task."""
    algorithm.check_width(task.parameters)
    if algorithm.needs_minimiser:
        task.require_proximal()
