"""Simulating clients: all of them in one process, or divided among several."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial

# NumPy's integers are registered with it.
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from tacit.algorithms.algorithm import Algorithm, tensors_of
from tacit.algorithms.private_algorithm import PrivateAlgorithm, prepare, sampling_remarks
from tacit.core.checks import is_count
from tacit.core.devices import Precision, check_device, check_precision, float32_products
from tacit.core.errors import Caution, Diverged, Misuse, unknown_name
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.notebooks import html_table
from tacit.core.randomness import Philox, Randomness
from tacit.core.rows import shared
from tacit.core.workers import WorkerPool
from tacit.engines.changing_network import ChangingNetwork, keep_absent
from tacit.engines.execution import Execution, reproducible
from tacit.engines.gradients.choice import BackendChoice, choose_backend
from tacit.engines.gradients.objective import HostedObjective
from tacit.engines.gradients.personal import LocalRows, PersonalObjective, check_local
from tacit.engines.group import CountingNetwork, Hosted, ProcessGroup
from tacit.engines.lazy_clients import LazyClients
from tacit.engines.lazy_rows import Workspace
from tacit.engines.observation import observe, recorded_columns
from tacit.engines.stacked import StackedNetwork
from tacit.engines.state_checks import require_rows
from tacit.engines.watchdog import Watchdog
from tacit.graph import Graph, GraphSchedule, Moment, Participation, Topology, World
from tacit.graph.schedule import as_schedule
from tacit.models.parameters import select_model
from tacit.privacy.guarantee import Budget, Privacy
from tacit.record import run_files
from tacit.record.callbacks import Callback, check, close, progress_bar, why_stop
from tacit.record.checkpoint import Checkpoint
from tacit.record.history import History, Record
from tacit.record.transcript import Keep, Transcript, TranscriptRecorder
from tacit.tasks.flat import ModuleLoss
from tacit.tasks.metrics.metric import Metrics
from tacit.tasks.task import Task

if TYPE_CHECKING:
    from tacit.privacy.keystreams import KeyRing  # Needs cryptography, which is optional.

Generator = Literal["philox", "chacha20"]
GraphOrSchedule = (
    Graph | GraphSchedule | Callable[[int], Graph] | Sequence[Graph | tuple[Graph, int]]
)


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
        metrics: What is recorded beside loss and accuracy: names, or functions by name.
        schedule: The graph of each iteration, if it changes; `graph` is then its union.
        participation: Which clients take part when, and which messages are late.
    """

    algorithm: Algorithm
    task: Task
    graph: Graph
    seed: int = 0
    device: torch.device | str = "cpu"
    gradients: str = "auto"
    prg: Generator | KeyRing = "philox"
    precision: Precision = "float32"
    metrics: Metrics | None = None
    schedule: GraphSchedule | None = None
    participation: Participation | None = None

    @property
    def client_names(self) -> tuple[str, ...]:
        """The name of each client: its own if it has one, else its number."""
        return self.task.names or tuple(map(str, range(self.task.clients)))

    @property
    def world(self) -> World:
        """The graph of each iteration, who takes part in it, and which messages are late."""
        return World(self.graph, self.schedule, self.participation, int(self.seed))

    def require_static(self, what: str) -> None:
        """Raise `Misuse` if the graph changes, clients are absent or messages are late."""
        if not self.world.is_static:
            raise Misuse(
                f"{what} need a fixed graph, all clients and no delay; here {self.world}.",
                "Audit the algorithm on a fixed graph, without [participation].",
            )

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
        if isinstance(self.graph, GraphSchedule):
            raise Misuse(
                "The graph of a setting is a schedule.",
                "Give Setting(graph=schedule.union, schedule=schedule), or use tacit.simulate.",
            )
        for name, kind in (("task", Task), ("graph", Graph)):
            if not isinstance(value := getattr(self, name), kind):
                raise Misuse(
                    f"{name} is a {type(value).__name__}.", f"Give a tacit.{kind.__name__}."
                )
        if not isinstance(self.participation, Participation | None):
            raise Misuse(
                f"participation is {self.participation!r}.",
                "Give tacit.Participation(share=0.5), or None.",
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
        seed: Any = self.seed
        if isinstance(seed, bool) or not isinstance(seed, Integral):
            raise Misuse(f"seed is {self.seed!r}.", "Give a whole number.")
        check_precision(self.precision, self.task.dtype)
        self.algorithm.check_world(self.world)
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
        local: The local parameters [N, Q], if the task has any.
    """

    theta: Tensor
    state: Any
    history: History
    gradients: BackendChoice
    setting: Setting
    transcript: Transcript | None = None
    diverged: str | None = None
    local: Tensor | None = None

    def __repr__(self) -> str:
        clients, parameters = self.theta.shape
        return f"Run({clients} clients, {parameters:,} parameters, {self.history!r})"

    def module(self, client: int | str = "average") -> nn.Module:
        """A model of the run as a module, ready for use.

        Args:
            client: Whose model, from 0, or "average" for the mean of all models. A client's model
                has its own local parameters, the average model their mean.

        Returns:
            A copy of the module that the task was made from, on the CPU and in evaluation mode,
            with the model's parameters. Frozen parameters and buffers are those of the task;
            parameters that were tied still are. `tacit.models.merge_lora` adds adapters to their
            weights.

        Raises:
            Misuse: If the task was not made from a module, or there is no such client.

        Example:
            >>> import torch, tacit
            >>> parts = [(torch.randn(20, 4), torch.randint(3, (20,))) for _ in range(3)]
            >>> task = tacit.Task.from_module(torch.nn.Linear(4, 3), parts)
            >>> graph = tacit.Topology.ring(3).mixing("metropolis")
            >>> run = tacit.simulate(tacit.DSGT(lr=0.1), task, graph, steps=5)
            >>> run.module(client=0)
            Linear(in_features=4, out_features=3, bias=True)
        """
        task = self.setting.task
        loss = task.loss
        if not isinstance(loss, ModuleLoss):
            raise Misuse(
                "The task was made from a loss, not from a module.",
                "Use run.theta, or make the task with Task.from_module.",
            )
        rows = self.theta
        if task.local is not None and self.local is not None:
            rows = task.local.join(rows, self.local)
        return loss.flat.with_weights(select_model(rows, client))

    def save(self, folder: Path | str) -> Path:
        """Write the run into a folder: models, state, history, and the transcript if there is one.

        `tacit.load` reads it, and `tacit report` and `tacit export` take the folder. Tensors are
        safetensors files and the rest is text; nothing is pickled.

        Args:
            folder: A new or empty folder.

        Returns:
            The folder.

        Raises:
            Misuse: If the folder is not empty or cannot be written.
        """
        setting, path = self.setting, Path(folder)
        last = self.history[-1]
        algorithm = setting.algorithm
        budget = algorithm.budget if isinstance(algorithm, PrivateAlgorithm) else None
        end = Checkpoint(
            self.state,
            last.step,
            last.bytes_sent,
            last.wall_seconds,
            fingerprint="",
            diverged=self.diverged,
            gradients=self.gradients.strategy,
            privacy=None if budget is None else budget.spent_facts(last.step),
            local=self.local,
        )
        facts = {
            "seed": int(setting.seed),
            "batch_size": setting.task.batch_size or "all samples",
            "device": str(setting.device),
            "gradients": self.gradients.strategy,
            "precision": setting.precision,
        }
        run_files.save(
            path,
            algorithm,
            setting.task,
            setting.graph,
            end,
            self.history,
            self.transcript,
            facts,
        )
        return path

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
        if setting.metrics is not None:
            task = task.with_metrics(setting.metrics)
        self.task = task.to(device, pool)
        self._own_tests = self.task.own_tests
        work = (self.task.whole, ids.tolist(), loader)
        options = (setting.gradients, pool, setting.precision)
        choose = partial(choose_backend, *work, seed, device, *options)
        # Chosen once for all processes, because backends round differently.
        self.gradients = BackendChoice(**group.run_on_first(lambda: asdict(choose())))
        strategy = self.gradients.strategy
        whole = HostedObjective(*work, strategy, seed, device, pool, setting.precision)
        objective: HostedObjective | PersonalObjective = whole
        self._local_rows: LocalRows | None = None
        if self.task.local is not None:
            if setting.participation is not None:
                raise Misuse(
                    "Clients that do not take part would still train their local parameters.",
                    "Leave `local` or the participation out.",
                )
            objective = PersonalObjective.of(self.task, whole, algorithm)
            self._local_rows = objective.rows
        self.world = setting.world
        # The graph of the last iteration, where it changes.
        self._graph: Graph | None = None
        self.net: CountingNetwork
        if self.world.is_static:
            self.net = self.hosted.network(graph, task.dtype, device, pool)
        elif group.ranks > 1:
            raise Misuse(
                f"{str(self.world).capitalize()}; ranks only exchange rows over a fixed graph.",
                "Run it in one process, without torchrun.",
            )
        else:
            self.net = ChangingNetwork(lambda one: StackedNetwork(one, task.dtype, device, pool))
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
        # A captured step cannot be observed, sends nothing to other processes and is always alike.
        alone = self.recorder is None and group.ranks == 1 and self.world.is_static
        capture = device.type == "cuda" and alone and task.local is None
        super().__init__(algorithm, here, device, Watchdog(pool), capture)
        self.cautions = algorithm.cautions(graph)
        self._remarks = algorithm.remarks(graph)
        self._remarks += sampling_remarks(algorithm, task, setting.precision)
        if not self.world.is_static:
            self._remarks = [*self._remarks, str(self.world)]
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
    def local(self) -> Tensor | None:
        """The local parameters [n, Q] of the hosted clients; None if all are shared."""
        return None if self._local_rows is None else self._local_rows.value

    @property
    def remarks(self) -> list[str]:
        """What theory says of the algorithm's options, and why steps are not captured, if so."""
        remarks = self._remarks
        if self.task.local is not None:
            remarks = [*remarks, self.task.local.describe()]
        if (reason := self.why_not_captured) is None:
            return remarks
        return [*remarks, f"iterations are computed one by one, not captured: {reason}"]

    @property
    def wall_seconds(self) -> float:
        """Seconds spent so far, earlier parts of a resumed run included."""
        return self._earlier_seconds + time.perf_counter() - self._begun

    def start(self) -> None:
        """Compute the state before the first iteration."""
        self._enter_iteration()
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
        local: Tensor | None = None,
        late_rows: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Continue from an earlier state.

        Args:
            state: The state after `t` iterations.
            t: The number of iterations.
            bytes_sent: Bytes sent by all clients until then.
            wall_seconds: Seconds spent until then.
            diverged: Where the run had diverged, if it had.
            local: The local parameters [n, Q], if there are any.
            late_rows: Rows that were sent and may still arrive.
        """
        if self._local_rows is not None:
            if local is None:
                raise Misuse("The saved state has no local parameters.", "Start the run again.")
            self._local_rows.restore(local.to(self.device))
        if self.algorithm.needs_total:
            # All clients have the same rows, which need not be computed for each.
            rows = {name: shared(one[:1], len(one)) for name, one in tensors_of(state).items()}
            state = replace(state, **rows)
        self.state, self.t, self.diverged = state, t, diverged
        self.net.bytes_sent = bytes_sent
        if isinstance(self.net, ChangingNetwork):
            self.net.restore_late_rows(late_rows or {})
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
        moment = self._enter_iteration()
        if moment.present is None or self._state is None:
            super().step()
        else:
            before = tensors_of(self._state)
            super().step()
            self.state = keep_absent(before, self._state, moment.present)
        if self.t % self._check_every == 0:
            self.check()

    def _enter_iteration(self) -> Moment:
        """Give the clients the graph of this iteration; a fixed one they have already."""
        if self.world.is_static:
            return Moment(self.world.graph)
        assert isinstance(self.net, ChangingNetwork)
        moment = self.world.at(self.t)
        self.net.enter(moment, self.world.longest_delay)
        if moment.graph is self._graph:
            return moment
        graph, ids = moment.graph, self.hosted.ids
        self.algorithm.check_moment(graph, self.t)
        neighbourhood = Neighbourhood.of(graph.edges, ids, self.device, graph.weights)
        self.here = replace(self.here, graph=neighbourhood)
        if self.recorder is not None:
            self.recorder.change_graph(neighbourhood)
        self._graph = graph
        return moment

    @property
    def late_rows(self) -> dict[str, Tensor]:
        """Rows that were sent and may still arrive, which a checkpoint needs beside the state."""
        return self.net.late_rows() if isinstance(self.net, ChangingNetwork) else {}

    def observe(self) -> Record:
        """Evaluate the current models, at the time of the last gradient's batch."""
        self.check()
        number = self.t * self.here.gradients_per_step
        # Scores need no more digits than the gradients that led to them.
        tf32 = self.setting.precision != "float32"
        with reproducible(self.device), float32_products(tf32=tf32):
            theta, local = self._current.theta, self.local
            whole = theta
            if local is not None:
                assert self.task.local is not None
                whole = self.task.local.join(theta, local)
            return observe(
                whole,
                self.task.evaluation.at_batch(number),
                self.hosted,
                own_tests=self._own_tests,
                optimum=self.task.optimum_at(number),
                round=self.t // self.round_length,
                step=self.t,
                bytes_sent=self.net.bytes_sent,
                wall_seconds=self.wall_seconds,
                shared=theta,
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
    graph: GraphOrSchedule,
    *,
    steps: int,
    seed: int = 0,
    device: torch.device | str = "cpu",
    gradients: str = "auto",
    prg: Generator | KeyRing = "philox",
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
        graph: Who sends to whom, with mixing weights. If it changes: a schedule such as
            `tacit.Matchings`, a list of graphs or of pairs (graph, iterations), or a function of
            the iteration.
        steps: Number of iterations.
        seed: Keys batches, initial weights and noise.
        device: `"cpu"` or a CUDA device.
        gradients: The gradient backend; `"auto"` chooses the fastest by timing.
        prg: Where noise comes from: `"philox"`, `"chacha20"` or a `KeyRing`.
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
    check_local(algorithm, task)
    if algorithm.needs_minimiser:
        task.require_proximal()
