"""A run in progress: all clients in one process, or divided among several."""

from __future__ import annotations

import math
import os
import time
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from tacit.algorithms.algorithm import tensors_of
from tacit.algorithms.private_algorithm import data_cautions, sampling_remarks
from tacit.core.devices import check_device, float32_products
from tacit.core.errors import Diverged, Misuse
from tacit.core.neighbourhood import Neighbourhood
from tacit.core.rows import shared
from tacit.core.workers import WorkerPool
from tacit.engines.changing_network import ChangingNetwork, keep_absent
from tacit.engines.execution import Execution, reproducible
from tacit.engines.gradients.client_passes import BackendChoice, choose_backend
from tacit.engines.gradients.objective import HostedObjective
from tacit.engines.gradients.personal import PersonalObjective
from tacit.engines.group import CountingNetwork, Hosted, ProcessGroup
from tacit.engines.lazy_clients import LazyClients
from tacit.engines.lazy_rows import Workspace
from tacit.engines.observation import observe, recordable
from tacit.engines.randomness import make_randomness
from tacit.engines.setting import Setting
from tacit.engines.stacked import StackedNetwork
from tacit.engines.state_checks import require_rows
from tacit.engines.watchdog import Watchdog
from tacit.graph import Graph, Moment
from tacit.privacy.guarantee import Budget
from tacit.record.checkpoint import Checkpoint
from tacit.record.history import History, Record
from tacit.record.transcript import Transcript, TranscriptRecorder
from tacit.tasks.batches import BatchLoader
from tacit.tasks.flat import ModuleLoss

NO_TRAINING_LOSS = (
    "no loss is recorded: without a test set it would be the exact loss of the training data, "
    "which the guarantee does not cover; give the task a test set to measure its models"
)


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
        secret: The key of a setting whose `prg` is "secret", 32 bytes, the same for all processes;
            by default a new one.

    Attributes:
        repeated: Iterations that were computed before, from other keys, and are computed again:
            the privacy budget pays for them twice.
    """

    def __init__(
        self,
        setting: Setting,
        *,
        allow_divergence: bool = False,
        round_length: int | None = None,
        transcript: Transcript | None = None,
        hosted: Hosted | None = None,
        secret: bytes | None = None,
    ) -> None:
        setting.check()
        self.setting = setting
        algorithm, task, graph = setting.algorithm, setting.task, setting.graph
        self.hosted = hosted or Hosted.of(ProcessGroup(), graph)
        if secret is None and setting.prg == "secret":
            secret = bytes.fromhex(self.hosted.group.run_on_first(lambda: os.urandom(32).hex()))
        self.repeated = 0
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
        given, task = task, recordable(task, algorithm)
        self.task = task.to(device, pool)
        self._own_tests = self.task.own_tests
        objective = self._objective(loader, device, pool)
        self._local_rows = objective.rows if isinstance(objective, PersonalObjective) else None
        self.world = setting.world
        # The graph of the last iteration, where it changes.
        self._graph: Graph | None = None
        self.net = self._network(device, pool)
        self.recorder: TranscriptRecorder | None = None
        here = LazyClients(
            neighbourhood,
            self.net,
            objective,
            make_randomness(setting.prg, seed, task, pool, secret),
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
        self.cautions = algorithm.cautions(graph) + data_cautions(algorithm, task)
        self._remarks = [task.disclosure] if task.disclosure else []
        self._remarks += algorithm.remarks(graph)
        self._remarks += sampling_remarks(algorithm, task, setting.precision)
        if task is not given:
            self._remarks = [*self._remarks, NO_TRAINING_LOSS]
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

    def _objective(
        self, loader: BatchLoader, device: torch.device, pool: WorkerPool
    ) -> HostedObjective | PersonalObjective:
        """What the hosted clients minimise, and the way to compute gradients that is chosen."""
        setting, seed = self.setting, int(self.setting.seed)
        work = (self.task.whole, self.hosted.ids.tolist(), loader)
        options = (setting.gradients, pool, setting.precision)
        choose = partial(choose_backend, *work, seed, device, *options)
        # Chosen once for all processes, because backends round differently.
        choice = self.hosted.group.run_on_first(lambda: asdict(choose()))
        self.gradients = BackendChoice(**choice)
        strategy = self.gradients.strategy
        whole = HostedObjective(*work, strategy, seed, device, pool, setting.precision)
        if self.task.local is None:
            return whole
        if setting.participation is not None:
            raise Misuse(
                "Clients that do not take part would still train their local parameters.",
                "Leave `local` or the participation out.",
            )
        return PersonalObjective.of(self.task, whole, setting.algorithm)

    def _network(self, device: torch.device, pool: WorkerPool) -> CountingNetwork:
        """The network of the hosted clients."""
        dtype = self.task.dtype
        if self.world.is_static:
            return self.hosted.network(self.setting.graph, dtype, device, pool)
        if self.hosted.group.ranks > 1:
            raise Misuse(
                f"{str(self.world).capitalize()}; ranks only exchange rows over a fixed graph.",
                "Run it in one process, without torchrun.",
            )
        once = self.setting.algorithm.tolerates.uses_once
        return ChangingNetwork(lambda graph: StackedNetwork(graph, dtype, device, pool), once)

    @property
    def budget(self) -> Budget | None:
        """What the run spends of a promised guarantee, if there is one."""
        return self.algorithm.budget

    @property
    def allowed_steps(self) -> float:
        """How many iterations the privacy budget allows; infinite without one."""
        budget = self.budget
        if budget is None:
            return math.inf
        if not self.repeated:
            return budget.allowed_steps
        return max(0, min(budget.allowed_steps, budget.steps) - self.repeated)

    @property
    def spent_budget(self) -> dict[str, Any] | None:
        """The privacy budget, and how much of it is spent; None without a guarantee to keep."""
        if self.budget is None:
            return None
        facts = self.budget.spent_facts(self.t + self.repeated)
        return facts | {"simulated": self.setting.is_simulated, "repeated": self.repeated}

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

    def checkpoint(self, fingerprint: str) -> Checkpoint:
        """The current state, and what else `restore` needs.

        Args:
            fingerprint: Digest of the configuration that the state belongs to.
        """
        return Checkpoint(
            self.state,
            self.t,
            self.net.bytes_sent,
            self.wall_seconds,
            fingerprint,
            self.diverged,
            self.gradients.strategy,
            self.spent_budget,
            self.local,
            self.late_rows,
        )

    def restore(self, saved: Checkpoint) -> None:
        """Continue from an earlier state, as `checkpoint` returns it."""
        if self._local_rows is not None:
            if saved.local is None:
                raise Misuse("The saved state has no local parameters.", "Start the run again.")
            self._local_rows.restore(saved.local.to(self.device))
        state = saved.state
        if self.algorithm.needs_total:
            # All clients have the same rows, which need not be computed for each.
            rows = {
                name: shared(values[:1], len(values)) for name, values in tensors_of(state).items()
            }
            state = replace(state, **rows)
        self.state, self.t, self.diverged = state, saved.step, saved.diverged
        self.net.bytes_sent = saved.bytes_sent
        if isinstance(self.net, ChangingNetwork):
            self.net.restore_late_rows(saved.late_rows)
        self._earlier_seconds = saved.wall_seconds

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
        first = self.hosted.group.minimum(self._first_divergence())
        if first is None:
            return
        iteration, field, row, is_client = first
        name = list(tensors_of(self._current))[field]
        kind = "client" if is_client else "row"
        self.diverged = f"{name} of {kind} {row} is not finite at iteration {iteration}"
        if not self.allow_divergence:
            raise Diverged(
                f"The run diverged: {self.diverged}. Try a smaller step size or less noise; "
                "to continue such a run to its end, set allow_divergence."
            )

    def _first_divergence(self) -> tuple[int, int, int, int] | None:
        """Iteration, field, row and whether it is a client's, of the first that is not finite.

        Rows are counted over all processes.
        """
        if (first := self._watchdog.first_found()) is None:
            return None
        fields = tensors_of(self._current)
        hosted, field = self.hosted, list(fields).index(first.field)
        is_client = len(fields[first.field]) == len(hosted.ids)
        rows = hosted.ids if is_client else hosted.partition.out_edges(hosted.group.rank)
        return first.iteration, field, int(rows[first.row]), int(is_client)
