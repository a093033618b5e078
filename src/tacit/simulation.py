"""Simulating clients: all of them in one process, or divided among several."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from tacit.algorithms.algorithm import (
    Algorithm,
    cautions,
    gradients_per_step,
    minimises,
    refuse_width,
    remarks,
    tensors_of,
)
from tacit.core.checks import has_methods
from tacit.core.devices import check_device
from tacit.core.errors import Caution, Diverged, Misuse, first_line, unknown_name
from tacit.core.here import Here
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.precision import consistent_tf32
from tacit.core.randomness import Philox, Randomness
from tacit.core.workers import WorkerPool
from tacit.engines.buffers import is_uniquely_owned, left_over
from tacit.engines.capture.iteration import CapturedStep
from tacit.engines.gradients.choice import BackendChoice, choose_backend
from tacit.engines.gradients.objective import HostedObjective
from tacit.engines.group import Hosted, SingleProcess
from tacit.engines.observation import observe
from tacit.engines.watchdog import Watchdog
from tacit.graph import Graph, Topology
from tacit.record.history import History, Record
from tacit.record.transcript import Keep, TranscriptRecorder, Transcript
from tacit.tasks.flat import ModuleLoss
from tacit.tasks.task import Task

if TYPE_CHECKING:
    from tacit.privacy.keystreams import (
        KeyRing,  # needs cryptography, which a simulation need not have
    )


TRIAL_STEPS = 2  # iterations before one is recorded: libraries choose and load their kernels then


@dataclass(frozen=True, eq=False)
class Setting:
    """What fixes a run: the same setting gives the same messages."""

    algorithm: Algorithm
    task: Task
    graph: Graph
    seed: int = 0
    device: torch.device | str = "cpu"
    gradients: str = "auto"
    prg: Literal["philox", "chacha20"] | KeyRing = "philox"


@dataclass(frozen=True, eq=False)
class Run:
    """What a simulation leaves: the models theta [N, P], the whole state, and the history."""

    def __repr__(self) -> str:
        clients, parameters = self.theta.shape
        return f"Run({clients} clients, {parameters:,} parameters, {self.history!r})"

    theta: Tensor
    state: Any
    history: History
    gradients: BackendChoice
    setting: Setting
    transcript: Transcript | None = None  # every message, if asked for
    diverged: str | None = None  # where a state first became NaN or infinite, if that was allowed


class Simulation:
    """A run in progress: `state` after `t` iterations, `step` by step.

    It hosts all clients, or those of them that are `hosted` in this process; then all processes do the same things.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        task: Task,
        graph: Graph,
        *,
        seed: int = 0,
        device: torch.device | str = "cpu",
        gradients: str = "auto",
        prg: Literal["philox", "chacha20"] | KeyRing = "philox",
        allow_divergence: bool = False,
        round_length: int | None = None,
        transcript: Transcript | None = None,
        hosted: Hosted | None = None,
    ) -> None:
        _check(algorithm, task, graph, seed)
        self.hosted = hosted or Hosted.of(SingleProcess(), graph)
        group = self.hosted.group
        device = group.device(device)
        self.device = check_device(device)
        seed = int(seed)
        self.cautions = cautions(algorithm, graph)
        self.remarks = remarks(algorithm, graph)
        ids = self.hosted.ids
        neighbourhood = Neighbourhood.of(graph.edges, ids, device, graph.weights.diagonal()[ids])
        loader = task.loader(torch.as_tensor(ids), seed, device)
        # Of modules and their criteria each thread has its own; of other losses nobody knows whether two may run.
        self.pool = (
            WorkerPool.for_device(device)
            if isinstance(task.loss, ModuleLoss)
            else WorkerPool(1)
        )
        randomness = _randomness(prg, seed, task, self.pool)
        bound = task.to(device, self.pool)
        # Chosen once for all processes: the other ways would round differently.
        choice = group.tell(
            lambda: asdict(
                choose_backend(bound, ids.tolist(), loader, seed, device, gradients, self.pool)
            )
        )
        self.gradients = BackendChoice(**choice)
        strategy = self.gradients.strategy
        objective = HostedObjective(bound, ids.tolist(), loader, strategy, seed, device, self.pool)
        self.net = group.network(graph, self.hosted.division, task.dtype, device, self.pool)
        self.here = Here(
            neighbourhood,
            self.net,
            objective,
            randomness,
            gradients_per_step(algorithm),
            pool=self.pool,
        )
        if transcript is not None and group.ranks > 1:
            raise Misuse(
                "A transcript is of all messages, and these are spread over ranks.",
                "Record it without torchrun, or leave the transcript out.",
            )
        self.recorder = (
            None if transcript is None else TranscriptRecorder(self.net, transcript, neighbourhood)
        )
        if self.recorder is not None:
            self.here = self.recorder.wrap(self.here)
        self.algorithm = algorithm
        self.task = bound
        self.allow_divergence = allow_divergence
        self.round_length = round_length or max(
            1, task.steps_per_epoch // gradients_per_step(algorithm)
        )
        self.t = 0
        self._state: Any = None
        self._recorded: CapturedStep | None = None
        # Iterations still to go before one is recorded; -1: none will be.
        self._trial_steps = TRIAL_STEPS if self._can_record() else -1
        self.diverged: str | None = None
        self._watchdog = Watchdog(self.pool)
        # Asking a GPU waits for all work under way, so between rounds; asking other processes waits for them.
        self._check_every = 1 if group.ranks == 1 else 16
        if self.device.type == "cuda":
            self._check_every = self.round_length * -(-256 // self.round_length)
        self._earlier_seconds = 0.0
        self._begun = time.perf_counter()

    @property
    def state(self) -> Any:
        """What the algorithm has after t iterations; None before the start. Later iterations leave it as it is.

        To go on from another state, assign it; on a GPU this may be a copy, and writing into it changes nothing.
        """
        return self._state if self._recorded is None else self._recorded.copy_of_state()

    @state.setter
    def state(self, state: Any) -> None:
        if self._recorded is not None:
            self._recorded, self._trial_steps = None, TRIAL_STEPS
        self._state = state

    @property
    def recorded(self) -> bool:
        """Whether whole iterations are played from a recording."""
        return self._recorded is not None

    @property
    def wall_seconds(self) -> float:
        """Time spent so far, earlier parts of a resumed run included."""
        return self._earlier_seconds + time.perf_counter() - self._begun

    def start(self) -> None:
        """Make the state before the first iteration."""
        with repeatable(self.device), self.pool.exclusive():
            self.state = self.algorithm.start(self.here)
        self._watchdog.look(0, tensors_of(self._state))
        self.check()

    def restore(
        self, state: Any, t: int, bytes_sent: int, wall_seconds: float, diverged: str | None = None
    ) -> None:
        """Go on from a state reached earlier."""
        self.state, self.t, self.diverged = state, t, diverged
        self.net.bytes_sent = bytes_sent
        self._earlier_seconds = wall_seconds

    def step(self) -> None:
        """One iteration."""
        if self.recorder is not None:
            self.recorder.set_tick(self.t + 1)
        if self._state is None:
            raise Misuse(
                "There is no state: an iteration was broken off, or the simulation was not started.",
                "Start it, or restore a state that was saved.",
            )
        if self._recorded is not None and not self._recorded.is_of(self.algorithm, self.here):
            self.state = self._recorded.copy_of_state()
        if self._recorded is None and self._trial_steps == 0:
            self._record()
        if self._recorded is None:
            self._compute_step()
        else:
            self._play_step(self._recorded)
        if self.t % self._check_every == 0:
            self.check()

    def _compute_step(self) -> None:
        reuse = is_uniquely_owned(self._state)
        try:
            with repeatable(self.device), self.pool.exclusive():
                before, self._state = (
                    self._state,
                    self.algorithm.step(self._state, self.here.at(self.t, reuse)),
                )
                self.t += 1
                self._watchdog.look(self.t, tensors_of(self._state))
        except BaseException:
            if reuse:
                self._state = None  # half of it may be of the next iteration already
            raise
        if reuse:
            for tensor in left_over(before, self._state):
                self.net.buffers.give(tensor)
        self._trial_steps -= self._trial_steps > 0

    def _play_step(self, recorded: CapturedStep) -> None:
        try:
            with torch.cuda.device(self.device):
                recorded.play(self.t)
            self.t += 1
        except BaseException:
            self._state = self._recorded = None
            raise

    def _can_record(self) -> bool:
        """Whether iterations may be recorded: on a GPU, where nobody listens and no message leaves the process."""
        return self.device.type == "cuda" and self.recorder is None and self.hosted.group.ranks == 1

    def _record(self) -> None:
        """Record an iteration, or remember that this algorithm's cannot be."""
        if not is_uniquely_owned(self._state):
            return  # whoever sees it may be gone before the next iteration
        try:
            with repeatable(self.device):
                self._recorded = CapturedStep(
                    self.algorithm, self.here, self._state, self._watchdog
                )
        except (
            Exception
        ) as problem:  # it asks the GPU something, or for the number of the iteration
            self._trial_steps = -1
            said = f"iterations are computed one by one, not recorded and played: {first_line(problem)}"
            self.remarks = [*self.remarks, said]

    def observe(self) -> Record:
        """Judge the models as they are now, by what held when the last gradient was taken."""
        self.check()
        number = self.t * self.here.gradients_per_step  # of that gradient's batch
        with repeatable(self.device):
            return observe(
                self._state.theta,
                self.task.evaluation.at_batch(number),
                hosted=self.hosted,
                optimum=self.task.optimum_at(number),
                round=self.t // self.round_length,
                step=self.t,
                bytes_sent=self.net.bytes_sent,
                wall_seconds=self.wall_seconds,
            )

    def check(self) -> None:
        """Stop, or remember where, if a state is no longer finite."""
        if self.diverged is not None:
            self._watchdog.forget()
            return
        found = self.hosted.group.earliest(self._found_here())
        if found is None:
            return
        iteration, field, row, of_client = found
        where = (
            f"{list(tensors_of(self._state))[field]} of {'client' if of_client else 'row'} {row}"
        )
        self.diverged = f"{where} is not finite at iteration {iteration}"
        if not self.allow_divergence:
            raise Diverged(
                f"The run diverged: {self.diverged}. Try a smaller step size or less noise; "
                "to let such a run go on to its end, set allow_divergence."
            )

    def _found_here(self) -> tuple[int, int, int, int] | None:
        """Iteration, field and row, counted over all processes, of what is not finite, and whether it is a client's."""
        if (found := self._watchdog.finding()) is None:
            return None
        fields = tensors_of(self._state)
        of_client = len(fields[found.field]) == len(self.hosted.ids)
        rows = (
            self.hosted.ids if of_client else self.hosted.division.leaving(self.hosted.group.rank)
        )
        return (
            found.iteration,
            list(fields).index(found.field),
            int(rows[found.row]),
            int(of_client),
        )


@contextmanager
def repeatable(device: torch.device) -> Iterator[None]:
    """Be on this device, with kernels that give the same bits every time, in full precision; on a CPU all do."""
    if device.type == "cpu":
        yield
        return
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    memory: Any = torch.utils.deterministic
    filled = memory.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    memory.fill_uninitialized_memory = False  # we write all of it ourselves
    try:
        with torch.cuda.device(device), consistent_tf32():
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        memory.fill_uninitialized_memory = filled


def simulate(
    algorithm: Algorithm,
    task: Task,
    graph: Graph,
    *,
    steps: int,
    seed: int = 0,
    device: torch.device | str = "cpu",
    gradients: str = "auto",
    prg: Literal["philox", "chacha20"] | KeyRing = "philox",
    record_every: int | None = None,
    allow_divergence: bool = False,
    transcript: bool | Keep = False,
    progress: Callable[[Simulation], None] | None = None,
) -> Run:
    """Run `steps` iterations of an algorithm with all clients in this process.

    The history has a record at the start, every `record_every` iterations (default: a tenth of the run) and at
    the end; `progress` is called after every iteration. `transcript=True` keeps every message in `run.transcript`,
    a `tacit.Keep` those of some clients, iterations and tags. `prg` is where noise comes from: the fast generator,
    or keystreams as peers derive them, of keys made from the seed or of given ones.

        graph = tacit.Topology.ring(5).mixing("metropolis")
        run = tacit.simulate(tacit.LPPA(lr=0.1), task, graph, steps=300, seed=0)
        run.theta                                   # [N, P]
    """
    if not isinstance(steps, int) or steps < 0:
        raise Misuse(f"steps is {steps!r}.", "Give a whole number that is not negative.")
    every = max(1, steps // 10) if record_every is None else record_every
    if not isinstance(every, int) or every < 1:
        raise Misuse(
            f"record_every is {record_every!r}.", "Give a whole number of at least 1, or None."
        )
    said = None
    if transcript:
        said = Transcript(transcript if isinstance(transcript, Keep) else Keep())
    simulation = Simulation(
        algorithm,
        task,
        graph,
        seed=seed,
        device=device,
        gradients=gradients,
        prg=prg,
        allow_divergence=allow_divergence,
        transcript=said,
    )
    for caution in simulation.cautions:
        warnings.warn(caution, Caution, stacklevel=2)
    simulation.start()
    history = History([simulation.observe()])
    try:
        while simulation.t < steps:
            simulation.step()
            if simulation.t % every == 0 or simulation.t == steps:
                history.records.append(simulation.observe())
            if progress is not None:
                progress(simulation)
    except Diverged as problem:
        problem.history = history
        raise
    state = simulation.state
    setting = Setting(algorithm, task, graph, seed, device, simulation.gradients.strategy, prg)
    return Run(
        state.theta, state, history, simulation.gradients, setting, said, simulation.diverged
    )


def _randomness(prg: str | KeyRing, seed: int, task: Task, pool: WorkerPool) -> Randomness:
    """Where the noise of all clients comes from; batches and first models are drawn by the seed in any case."""
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
            f"The key ring is of {len(ring.names)} clients, the task has {task.clients}.",
            "Give both the same number of clients.",
        )
    if len(ring.secrets) != task.clients:
        raise Misuse(
            f"The key ring has the private keys of {len(ring.secrets)} of {task.clients} clients.",
            "A simulation hosts all clients: give all keys, or KeyRing.from_seed.",
        )
    return ring.randomness(task.parameters, task.dtype)


def _check(algorithm: Algorithm, task: Task, graph: Graph, seed: int) -> None:
    if isinstance(graph, Topology):
        raise Misuse("The graph has no weights yet.", 'Give them: topology.mixing("metropolis").')
    for name, value, kind in (("task", task, Task), ("graph", graph, Graph)):
        if not isinstance(value, kind):
            raise Misuse(f"{name} is a {type(value).__name__}.", f"Give a tacit.{kind.__name__}.")
    if not has_methods(algorithm, "start", "step"):
        raise Misuse(
            f"algorithm is {algorithm!r}.",
            "Give one of tacit.ALGORITHMS, made with its options.",
        )
    if task.clients != graph.clients:
        raise Misuse(
            f"The task has {task.clients} clients, the graph {graph.clients}.",
            "Give both the same number of clients.",
        )
    if isinstance(seed, bool) or not hasattr(seed, "__index__"):
        raise Misuse(f"seed is {seed!r}.", "Give a whole number.")
    graph.require(*algorithm.requires, by=algorithm.name)
    check_fit(algorithm, task)


def check_fit(algorithm: Algorithm, task: Task) -> None:
    """Refuse an algorithm whose options do not fit the task."""
    refuse_width(algorithm, task.parameters)
    if minimises(algorithm):
        task.require_proximal()
