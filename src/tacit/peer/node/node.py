"""A node from start to end: load, train, save, switch to new rosters, finish."""

from __future__ import annotations

import math
import shutil
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from tacit.algorithms.algorithm import tensors_of
from tacit.config.algorithms import make_algorithm_for
from tacit.core.errors import Diverged, Misuse
from tacit.core.storage import file_lock, write_json
from tacit.core.version import __version__
from tacit.peer.federation.absence import check_neighbours, roster_order
from tacit.peer.federation.folders import NodeFolder
from tacit.peer.federation.manifest import Manifest
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node.allowed_code import check_allowed
from tacit.peer.node.checkpoint_policy import CheckpointPolicy, write_with_retry
from tacit.peer.node.checkpoint_store import NodeCheckpoint
from tacit.peer.node.column_sums import agree_on_columns, load_columns, save_columns
from tacit.peer.node.digest_comparison import DigestComparison, begin_witness, check_and_record
from tacit.peer.node.fresh_keys import BudgetSpent, FreshKeys, has_records
from tacit.peer.node.going_back import RejoinLimits
from tacit.peer.node.local_data import LocalData, load_local_data
from tacit.peer.node.node_scores import NodeScores
from tacit.peer.node.node_state import ActiveRoster, NodeState, Stopped
from tacit.peer.node.plausible_values import is_finite
from tacit.peer.node.results import Results
from tacit.peer.node.roster_agreement import RosterAgreement, agreed_roster
from tacit.peer.node.roster_context import RosterContext
from tacit.peer.node.salt_agreement import agree_on_salts
from tacit.peer.node.saved_node import save_layout
from tacit.peer.node.servers import run_servers
from tacit.peer.node.spent_budget import SpentBudget
from tacit.peer.node.transcript_log import TranscriptLog
from tacit.privacy.guarantee import Budget
from tacit.record.checkpoint import LOCAL
from tacit.tasks.constants import sketch_of_constants

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
    transcript: int | None = None  # bytes to keep of what is sent and received; None: nothing


class RemovedFromRoster(Exception):
    """The roster does not name this node."""


class Node:
    """One node. `run` returns when the run has finished for all its neighbours, or after `stop`.

    Attributes:
        state: The algorithm's state; None before a generation starts.
        theta: The newest model [1, P], also between two generations.
        personal: The local parameters [1, Q] that go with it, if there are any.
        step: Iterations done.
    """

    def __init__(self, folder: NodeFolder, options: NodeOptions, event_log: EventLog) -> None:
        self.folder, self.options, self.event_log = folder, options, event_log
        self.name = folder.name
        base = folder.manifest()
        self.local = self._load_data(base)
        task = self.local.task
        self._newest = agreed_roster(folder, base)
        # While it is suspended, a node does not train under any roster.
        manifest = self._newest if self.name in self._newest.names else base
        self._plan(manifest)
        active = ActiveRoster.load(folder, self.name, manifest)
        self.shared = NodeState(
            folder,
            self.name,
            active,
            event_log,
            task.parameters,
            str(task.dtype),
            options.share_scores,
            sketch_of_constants(task.loss),
        )
        self._agreement: RosterAgreement | None = None
        self._limits = RejoinLimits()
        self.shared.report(steps=self.steps, round_length=self.round_length)
        self.state: Any = None
        self.theta: Tensor | None = None
        self.personal: Tensor | None = None
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
                self._resume(self._newest)
                self._open_transcript()
                self._serve()
            except Stopped:  # while the disk was full
                self._log_stop()
            finally:
                if self.shared.transcript is not None:
                    self.shared.transcript.close()

    def _open_transcript(self) -> None:
        """Record what is sent and received, if the owner wants that."""
        folder = self.folder.run / "transcript"
        if not has_records(self.folder.run / "checkpoints"):
            # It would be that of an earlier run, whose folder was deleted in part.
            shutil.rmtree(folder, ignore_errors=True)
        if self.options.transcript is not None:
            self.shared.transcript = TranscriptLog(folder, self.options.transcript, self.event_log)
            metrics, log = self.shared.metrics, self.shared.transcript
            metrics.set_function("tacit_transcript_bytes", lambda: log.size)

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
            self._take_part_in_agreements()
            try:
                if self._newest != manifest:
                    self.shared.follow_agreement(self._newest)
                while not self._run_generation():
                    self._switch_roster()
            finally:
                self._leave_agreements()

    def _take_part_in_agreements(self) -> None:
        """Agree with the other members on who is suspended, if their patience ends."""
        self._leave_agreements()
        base = self.folder.manifest()
        if base.absence.seconds < math.inf and self.name in base.names:
            self._agreement = self.shared.agreement = RosterAgreement(self.shared, base)
            self._agreement.start()

    def _leave_agreements(self) -> None:
        if self._agreement is not None:
            self.shared.agreement = None
            self._agreement.close()
            self._agreement = None

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
            context = self._prepare_data(context.with_salts(salts))
            if context.local_rows is not None and self.personal is not None:
                # An iteration that was broken off may have changed them.
                context.local_rows.restore(self.personal)
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
            fresh.close()
        return True

    def _open_records(self) -> FreshKeys:
        """What was sent under the active roster; what that spends is shown in the status."""
        number, budget = self.shared.manifest.number, self.budget
        allowed = math.inf if budget is None else budget.allowed_steps
        records = FreshKeys(self.folder.run / "checkpoints", number, allowed)
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

    def _prepare_data(self, context: RosterContext) -> RosterContext:
        """Scale the columns of a table by statistics of all members, if it needs some."""
        rows, folder, digest = self.local.rows, self.folder.run, self.local.digest
        if rows is None:
            return context
        sums = load_columns(folder, digest)
        if self.state is not None and sums is None:
            problem = f"{folder} has a checkpoint, but lacks the sums of columns of its data."
            raise Misuse(problem, "Ask the operator to remove this node and to add it again.")
        if self.state is None or sums is None:
            sums = agree_on_columns(
                context.network, context.here.graph, context.keys, rows.sums(), sums
            )
            save = partial(save_columns, folder, digest, sums)
            write_with_retry(self.shared, "the sums of columns", save)
        self.local = self.local.prepared(context.manifest.config, sums)
        self.event_log.write("columns standardised", by=self.local.task.disclosure)
        return context.with_data(self.local, self.algorithm)

    def _start(self, context: RosterContext) -> None:
        """Make the first state of a generation."""
        phase = "rejoining" if context.manifest.number > 1 else "starting"
        self.shared.report(phase=phase, step=self.step)
        before, has_model = self.step, self.theta is not None
        limits, spent = self._limits, self.shared.spent
        if self.budget is not None and spent is not None:
            ahead = self.steps - self.step
            limits = limits.within_budget(
                self.step, self.budget.allowed_steps - spent.records.sums - ahead
            )
        begin = partial(context.start, self.algorithm, self.step, self.steps, self.theta)
        self.state, self.step = begin(limits)
        if has_model and self.step != before:
            self._log_jump(before)
        self._keep_model(context)
        self._evaluate(context)
        self._save(context)

    def _keep_model(self, context: RosterContext) -> None:
        self.theta = self.state.theta
        if context.local_rows is not None:
            self.personal = context.local_rows.value

    @property
    def _whole_model(self) -> Tensor:
        """The model [1, W] of this node, with its local parameters."""
        theta: Tensor = self.state.theta
        local = self.local.task.local
        if local is None:
            return theta
        assert self.personal is not None
        return local.join(theta, self.personal)

    def _log_jump(self, before: int) -> None:
        """Log that this node repeats or skips iterations after a change of the roster."""
        repeated = max(0, before - self.step)
        event = "iterations repeated" if repeated else "iterations skipped"
        why = "a member is behind" if repeated else "this node was behind; it has a newer model now"
        self.event_log.write(event, "warning", why=why, before=before, step=self.step)
        self.shared.metrics.count("tacit_repeated_iterations_total", repeated)

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
            self._keep_model(context)
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
        while waiting := (
            (readers - peers.finished) | (clients.keys() - peers.notified) | self._unfinished()
        ):
            shared.report(phase="finished", waiting_for=tuple(sorted(waiting)))
            for other in clients.keys() - peers.notified:
                shared.check_interrupted()
                notified = clients[other].notify_finished(context.manifest.number, self.steps)
                if notified or peers.has_stopped(other):
                    write = partial(peers.add_notified, other)
                    write_with_retry(shared, "the list of finished neighbours", write)
            shared.stop.wait(0.2)
            shared.check_interrupted()
        shared.report(phase="finished", waiting_for=())

    def _write_model(self) -> None:
        theta, seconds = self._whole_model[0], self._seconds()
        shared = self.local.task.disclosure
        self._results.write_final(theta, self.algorithm.name, self.step, seconds, shared)
        place = (self.local.task, self.shared.manifest, self.local.note, self.folder.run)
        write_with_retry(self.shared, "the model's layout", partial(save_layout, *place))

    def _unfinished(self) -> set[str]:
        """Members that are no neighbours, but may need this node to agree on a roster."""
        return set() if self._agreement is None else self._agreement.unfinished()

    def _switch_roster(self) -> None:
        """Continue under the announced roster; nothing more is sent under the old one."""
        while True:
            manifest = self._next_roster()
            if self.name not in dict(manifest.suspended):
                break
            self._wait_while_suspended(manifest)
        self.event_log.write(
            "roster changed",
            generation=manifest.generation,
            epoch=manifest.epoch,
            members=manifest.names,
        )
        self._activate(manifest, self.shared.manifest.number)

    def _next_roster(self) -> Manifest:
        """The announced roster; installed, if it is the operator's."""
        announced = self.shared.take_announced()
        if announced.manifest.epoch:
            return announced.manifest
        manifest = self.folder.manifest()
        # The operator may have installed it already.
        if manifest.generation < announced.manifest.generation:
            log = self.shared.changes.log.text
            signed = (announced.manifest.text, announced.signature, log)
            install = partial(self.folder.install, *signed)
            write_with_retry(self.shared, "the roster", install)
            manifest = announced.manifest
        # Its members start with no votes.
        self._take_part_in_agreements()
        return manifest

    def _wait_while_suspended(self, manifest: Manifest) -> None:
        """Wait until another roster is announced; this node does not train in the meantime."""
        shared = self.shared
        shared.suspended_by = manifest
        since = dict(manifest.suspended)[self.name]
        self.state = None
        self.event_log.write(
            "suspended", "warning", epoch=manifest.epoch, since=since,
            why="this node was silent for longer than the patience, so the others go on without it",
            remedy="Nothing to do: it takes part again once a majority of the members hears it.",
        )  # fmt: skip
        shared.report(phase="suspended", waiting_for=(), problem="")
        shared.clock.stop()
        while shared.announced is None:
            if shared.stop.wait(0.1):
                raise Stopped

    def _activate(self, manifest: Manifest, before: int) -> None:
        """Use a roster that is new to this node, and save that before anything else.

        Args:
            manifest: The new roster.
            before: The number of the roster that this node used before.
        """
        # Without a state it has never trained under that roster, and keeps the limits it had.
        if self.state is not None or before != self.shared.manifest.number:
            clients, kept = len(self.shared.manifest.members), self._checkpoints.kept_steps(before)
            runs = self.state is not None
            self._limits = RejoinLimits.of(self.step, clients, kept, runs=runs)
        self.state = None
        generation, epoch = roster_order(before)
        last = epoch if generation == manifest.generation else 0
        if dict(manifest.returned).get(self.name, 0) > last:
            # The others went on without it: it gets their model.
            self.theta, self.step = None, 0
        # Some data depend on the number of clients: parts of a public dataset, generated data. A
        # suspended member keeps its data, so that those of the others stay the same.
        self.local = self._load_data(self.folder.manifest() if manifest.epoch else manifest)
        # What clients add to hide a sum depends on how many there are.
        self._plan(manifest)
        self.shared.report(steps=self.steps)
        old = self.shared.active
        self.shared.activate(ActiveRoster.load(self.folder, self.name, manifest))
        old.outbox.close()
        self.shared.metrics.set("tacit_generation", manifest.generation)
        self.shared.metrics.set("tacit_suspended_members", len(manifest.suspended))
        self._checkpoints.save(self._make_checkpoint(rejoin=True))

    def _resume(self, manifest: Manifest) -> None:
        """Continue from the newest checkpoint, if there is one."""
        self.shared.metrics.set("tacit_generation", manifest.generation)
        checkpoint = self._checkpoints.load(manifest, self.local.digest)
        if checkpoint is None:
            return
        self._earlier_seconds = checkpoint.wall_seconds
        state = dict(checkpoint.state)
        self.personal = state.pop(LOCAL, None)
        self.step, self.theta = checkpoint.step, state.get("theta")
        if self.name not in manifest.names:
            pass  # it is suspended
        elif roster_order(checkpoint.generation) < roster_order(manifest.number):
            self._activate(manifest, checkpoint.generation)
        elif not checkpoint.rejoin:
            self.state = self.algorithm.state_class(**state)
            for message in checkpoint.messages:
                self.shared.active.outbox.put(message)
        self._results.drop_from(manifest.generation, self.step + 1)
        self.shared.report(step=self.step, saved=checkpoint.step)
        self.event_log.write("resumed", generation=manifest.generation, step=self.step)

    def _save(self, context: RosterContext) -> None:
        self._check_finite(context)
        if self.shared.transcript is not None:
            # From here on, a restarted node does not repeat what it has received before.
            self.shared.transcript.flush()
        self._checkpoints.save(self._make_checkpoint())
        context.network.saved = self._checkpoints.acknowledged
        context.network.received_since_saved = 0

    def _make_checkpoint(self, *, rejoin: bool = False) -> NodeCheckpoint:
        manifest, messages = self.shared.manifest, self.shared.active.outbox.messages()
        model = {} if self.theta is None else {"theta": self.theta}
        state = model if rejoin else tensors_of(self.state)
        state = state | ({} if self.personal is None else {LOCAL: self.personal})
        when = (manifest.federation, manifest.number, self.step)
        return NodeCheckpoint(*when, rejoin, state, messages, self._seconds(), self.local.digest)

    def _evaluate(self, context: RosterContext) -> None:
        """Evaluate the model as of the batch of the last gradient: tasks may change over time."""
        task = self.local.task.to(context.manifest.config.run.device)
        number = self.step * self.algorithm.gradients_per_step
        theta = self._whole_model
        scores = task.evaluation.at_batch(number).models(theta, [self.local.index])
        tests = task.own_tests
        own_test = None if tests is None else tests[self.local.index]
        own = None if own_test is None else own_test.models(theta, [self.local.index])
        found = NodeScores.of(scores, own, self.local.class_names)
        self._results.record(self.step, found, self._seconds())

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
        return self.algorithm.budget

    def _plan(self, manifest: Manifest) -> None:
        """Make the algorithm, and decide when the run ends: all nodes decide the same."""
        # Also a manifest that the operator has signed must not leave a node unprotected.
        check_neighbours(manifest.graph, manifest.names, manifest.absence)
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
