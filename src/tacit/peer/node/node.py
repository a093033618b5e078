"""A node from start to end: load, train, save, switch to new rosters, finish."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from tacit.algorithms.algorithm import tensors_of
from tacit.algorithms.private_algorithm import PrivateAlgorithm
from tacit.config.build import make_algorithm_for
from tacit.core.errors import Diverged, Misuse
from tacit.core.storage import file_lock, write_json
from tacit.core.version import __version__
from tacit.peer.federation.folders import NodeFolder
from tacit.peer.federation.manifest import Manifest
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node.allowed_code import check_allowed
from tacit.peer.node.checkpoint_policy import CheckpointPolicy, write_with_retry
from tacit.peer.node.checkpoint_store import NodeCheckpoint
from tacit.peer.node.digest_comparison import DigestComparison, begin_witness, check_and_record
from tacit.peer.node.fresh_keys import BudgetSpent, FreshKeys
from tacit.peer.node.local_data import LocalData, load_local_data
from tacit.peer.node.node_state import ActiveRoster, NodeState, Stopped
from tacit.peer.node.results import Results
from tacit.peer.node.roster_context import RosterContext
from tacit.peer.node.salt_agreement import agree_on_salts
from tacit.peer.node.servers import run_servers
from tacit.peer.node.spent_budget import SpentBudget
from tacit.peer.wire.messages import is_finite
from tacit.privacy.guarantee import Budget

# How many iterations a guarantee allows to repeat: one for each change of the roster.
REPEATED_ITERATIONS = 8


@dataclass(frozen=True)
class NodeOptions:
    """How a node runs on its machine; no option changes the result."""

    data: str | None = None  # see load_local_data
    listen: str | None = None  # host:port; None: the address in the roster
    metrics_port: int = 0  # for monitoring on this machine; 0 chooses a free one
    save_seconds: float = 10.0  # between checkpoints, at most
    share_scores: bool = False  # whether members may query its loss and accuracy
    allowed_code: tuple[str, ...] = ()  # see check_allowed


class RemovedFromRoster(Exception):
    """The roster does not name this node."""


class Node:
    """One node. `run` returns when the run has finished for all its neighbours, or after `stop`.

    Attributes:
        state: The algorithm's state; None before a generation starts.
        theta: The newest model [1, P], also between two generations.
        step: Iterations done.
    """

    def __init__(self, folder: NodeFolder, options: NodeOptions, event_log: EventLog) -> None:
        self.folder, self.options, self.event_log = folder, options, event_log
        self.name = folder.name
        manifest = folder.manifest()
        self.local = self._load_data(manifest)
        task = self.local.task
        self._plan(manifest)
        active = ActiveRoster.load(folder, self.name, manifest)
        model = (task.parameters, str(task.dtype), options.share_scores)
        self.shared = NodeState(folder, self.name, active, event_log, *model)
        self.shared.report(steps=self.steps, round_length=self.round_length)
        self.state: Any = None
        self.theta: Tensor | None = None
        self.step = 0
        place = folder.run / "checkpoints"
        self._checkpoints = CheckpointPolicy(place, self.shared, options.save_seconds)
        self._results = Results(folder.run, self.shared)
        self._earlier_seconds, self._started = 0.0, time.monotonic()

    def stop(self) -> None:
        """Make `run` save and return; any thread may call this."""
        self.shared.request_stop()

    def run(self) -> None:
        """Serve and train to the end, then serve until the neighbours have finished too."""
        # The folder will hold gradients, which only this user may read.
        self.folder.run.mkdir(mode=0o700, parents=True, exist_ok=True)
        with file_lock(self.folder.run, wait=False) as acquired:
            if not acquired:
                problem = f"{self.name} is running already, from {self.folder.path}."
                raise Misuse(problem, "Stop that process first.")
            try:
                self._resume(self.shared.manifest)
                self._serve()
            except Stopped:  # while the disk was full
                self._log_stop()

    def _serve(self) -> None:
        options, manifest = self.options, self.shared.manifest
        with run_servers(self.shared, options.listen, options.metrics_port) as addresses:
            write_json(self.folder.run / "ports.json", addresses)
            self.event_log.write(
                "started",
                version=__version__,
                data=self.local.note,
                step=self.step,
                federation=manifest.federation,
                generation=manifest.generation,
                **addresses,
            )
            while not self._run_generation():
                self._switch_roster()

    def _run_generation(self) -> bool:
        """Train under the active roster; return False if there is a newer one."""
        self.shared.clock.start()
        fresh = self._open_records()
        check = partial(check_and_record, fresh, self.shared.witness)
        context = RosterContext.build(self.shared, self.algorithm, self.local, check)
        self.shared.on_interrupt(context.network.cancel)
        comparison = DigestComparison(self.shared, context.network.clients)
        try:
            salts = self._salts(context, fresh)
            context = context.with_salts(salts)
            begin_witness(self.shared, salts, fresh)
            with comparison.run():
                if self.state is None:
                    self._start(context)
                self._train(context)
                self.shared.witness.finish()
                comparison.compare()
                self._finish(context)
                # Neighbours have sent all by now.
                comparison.compare()
            self.event_log.write("finished", step=self.step)
        except BudgetSpent:
            self._save(context)
            self._write_model()
            raise
        except Stopped:
            if not self.shared.stop.is_set():
                return False
            if self.state is not None and not self._checkpoints.has_saved(self.step):
                self._check_finite(context)
                self._checkpoints.save(self._make_checkpoint(), retry=False)
            self._log_stop()
        finally:
            context.network.close()
        return True

    def _open_records(self) -> FreshKeys:
        """What was sent under the active roster; what that spends is shown in the status."""
        generation, budget = self.shared.manifest.generation, self.budget
        allowed = math.inf if budget is None else budget.allowed_steps
        records = FreshKeys(self.folder.run / "checkpoints", generation, allowed)
        if budget is not None:
            self.shared.show_spent(SpentBudget(budget, records))
        return records

    def _salts(self, context: RosterContext, fresh: FreshKeys) -> dict[str, bytes]:
        """The salts of all members: agreed on over the network, or as they were before a restart.

        A node with saved state must repeat its messages to the bit, so it keeps its keys.
        """
        if self.state is not None:
            return fresh.agreed_salts()
        digest = self.local.digest
        draw = partial(fresh.own_salt, self.name, digest)
        write_with_retry(self.shared, "the salt", draw)
        salts = agree_on_salts(context.network, draw())
        write_with_retry(self.shared, "the salts", partial(fresh.save, salts, digest))
        return salts

    def _start(self, context: RosterContext) -> None:
        """Make the first state of a generation."""
        phase = "rejoining" if context.manifest.generation > 1 else "starting"
        self.shared.report(phase=phase, step=self.step)
        self.state, self.step = context.start(self.algorithm, self.step, self.steps, self.theta)
        self.theta = self.state.theta
        self._evaluate(context)
        self._save(context)

    def _train(self, context: RosterContext) -> None:
        shared, network, run = self.shared, context.network, context.manifest.config.run
        shared.report(phase="training", step=self.step, waiting_for=(), problem="")
        shared.clock.start()
        network.saved = self._checkpoints.acknowledged
        while self.step < self.steps:
            shared.check_interrupted()
            begin = time.monotonic()
            self.state = context.step(self.algorithm, self.state, self.step)
            self.step += 1
            shared.clock.advance()
            self.theta = self.state.theta
            shared.report(step=self.step)
            shared.metrics.set("tacit_step", self.step)
            shared.metrics.set("tacit_round", self.step // self.round_length)
            shared.metrics.count("tacit_step_seconds_total", time.monotonic() - begin)
            last = self.step == self.steps
            if last or self.step % (run.evaluate_every * self.round_length) == 0:
                self._evaluate(context)
            if last or self._checkpoints.is_due(self.step, network.received_since_saved):
                self._save(context)

    def _finish(self, context: RosterContext) -> None:
        """Write the results, and serve until the neighbours have finished."""
        shared, peers = self.shared, self.shared.active.finished_peers
        shared.clock.stop()
        self._write_model()
        readers = shared.active.outbox.readers.keys()
        clients = {client.member.name: client for client in context.network.clients}
        while waiting := (readers - peers.finished) | (clients.keys() - peers.notified):
            shared.report(phase="finished", waiting_for=tuple(sorted(waiting)))
            for other in clients.keys() - peers.notified:
                shared.check_interrupted()
                notified = clients[other].notify_finished(context.manifest.generation, self.steps)
                if notified or peers.has_stopped(other):
                    write = partial(peers.add_notified, other)
                    write_with_retry(shared, "the list of finished neighbours", write)
            shared.stop.wait(0.2)
            shared.check_interrupted()
        shared.report(phase="finished", waiting_for=())

    def _write_model(self) -> None:
        theta, seconds = self.state.theta[0], self._seconds()
        self._results.write_final(theta, self.algorithm.name, self.step, seconds)

    def _switch_roster(self) -> None:
        """Continue under the announced roster; nothing more is sent under the old one."""
        announced = self.shared.announced
        assert announced is not None
        manifest = self.folder.manifest()
        # The operator may have installed it already.
        if manifest.generation < announced.manifest.generation:
            log = self.shared.changes.log.text
            signed = (announced.manifest.text, announced.signature, log)
            install = partial(self.folder.install, *signed)
            write_with_retry(self.shared, "the roster", install)
            manifest = announced.manifest
        generation, names = manifest.generation, manifest.names
        self.event_log.write("roster changed", generation=generation, members=names)
        self._activate(manifest)

    def _activate(self, manifest: Manifest) -> None:
        """Use a roster that is new to this node, and save that before anything else."""
        self.state = None
        # Some data depend on the number of clients: parts of a public dataset, generated data.
        self.local = self._load_data(manifest)
        # What clients add to hide a sum depends on how many there are.
        self._plan(manifest)
        self.shared.report(steps=self.steps)
        old = self.shared.active
        self.shared.activate(ActiveRoster.load(self.folder, self.name, manifest))
        old.outbox.close()
        self.shared.metrics.set("tacit_generation", manifest.generation)
        self._checkpoints.save(self._make_checkpoint(rejoin=True))

    def _resume(self, manifest: Manifest) -> None:
        """Continue from the newest checkpoint, if there is one."""
        self.shared.metrics.set("tacit_generation", manifest.generation)
        checkpoint = self._checkpoints.load(manifest, self.local.digest)
        if checkpoint is None:
            return
        self._earlier_seconds = checkpoint.wall_seconds
        self.step, self.theta = checkpoint.step, checkpoint.state.get("theta")
        if checkpoint.generation < manifest.generation:
            self._activate(manifest)
        elif not checkpoint.rejoin:
            self.state = self.algorithm.state_class(**checkpoint.state)
            for message in checkpoint.messages:
                self.shared.active.outbox.put(message)
        self._results.drop_from(manifest.generation, self.step + 1)
        self.shared.report(step=self.step, saved=checkpoint.step)
        self.event_log.write("resumed", generation=manifest.generation, step=self.step)

    def _save(self, context: RosterContext) -> None:
        self._check_finite(context)
        self._checkpoints.save(self._make_checkpoint())
        context.network.saved = self._checkpoints.acknowledged
        context.network.received_since_saved = 0

    def _make_checkpoint(self, *, rejoin: bool = False) -> NodeCheckpoint:
        manifest, messages = self.shared.manifest, self.shared.active.outbox.messages()
        model = {} if self.theta is None else {"theta": self.theta}
        state = model if rejoin else tensors_of(self.state)
        when = (manifest.federation, manifest.generation, self.step)
        return NodeCheckpoint(*when, rejoin, state, messages, self._seconds(), self.local.digest)

    def _evaluate(self, context: RosterContext) -> None:
        """Evaluate the model as of the batch of the last gradient: tasks may change over time."""
        task = self.local.task.to(context.manifest.config.run.device)
        number = self.step * self.algorithm.gradients_per_step
        scores = task.evaluation.at_batch(number).models(self.state.theta, [self.local.index])
        accuracy = None if scores.accuracy is None else float(scores.accuracy[0])
        self._results.record(self.step, float(scores.loss[0]), accuracy, self._seconds())

    def _check_finite(self, context: RosterContext) -> None:
        """Raise Diverged instead of saving a state that is not finite."""
        for name, rows in tensors_of(self.state).items():
            if not is_finite(rows):
                raise Diverged(
                    f"{name} is not finite at iteration {self.step}: this node stops and sends "
                    "nothing more. Its last checkpoint is kept. Try a smaller step size or less "
                    f"noise.{context.network.suspicion}"
                )

    def _log_stop(self) -> None:
        self.event_log.write("stopped", step=self.step, saved=self.shared.progress.saved)

    def _seconds(self) -> float:
        return self._earlier_seconds + time.monotonic() - self._started

    @property
    def budget(self) -> Budget | None:
        """What the run spends of a promised guarantee, if there is one."""
        algorithm = self.algorithm
        return algorithm.budget if isinstance(algorithm, PrivateAlgorithm) else None

    def _plan(self, manifest: Manifest) -> None:
        """Make the algorithm, and decide when the run ends: all nodes decide the same."""
        self.algorithm, self.round_length = make_algorithm_for(
            manifest.config, self.local.task, manifest.graph, reserve=REPEATED_ITERATIONS
        )
        self.steps = manifest.config.run.rounds * self.round_length
        # The noise was given, and the budget ends before the run.
        if self.budget is not None and self.budget.allowed_steps < self.steps:
            self.steps = max(1, int(self.budget.allowed_steps) - REPEATED_ITERATIONS)

    def _load_data(self, manifest: Manifest) -> LocalData:
        """The data of this node; raise RemovedFromRoster if the roster does not name it."""
        if self.name not in manifest.names:
            raise RemovedFromRoster(
                f"{self.name} is not in the roster of generation {manifest.generation} of "
                f"{manifest.federation}. To take part again, ask the operator to add it."
            )
        check_allowed(manifest.config, self.options.allowed_code)
        position, number = manifest.position(self.name), manifest.member(self.name).number
        clients, source = len(manifest.members), self.options.data
        return load_local_data(manifest.config, clients, position, number, self.name, source)
