"""The life of a node: load, train, save, go over to a new roster, end."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

import tacit
from tacit.algorithms.algorithm import Algorithm, gradients_per_step, state_type, tensors_of
from tacit.config.options import make_algorithm
from tacit.core.errors import Diverged, Misuse
from tacit.core.storage import file_lock, write_json
from tacit.peer.federation.manifest import Manifest
from tacit.peer.federation.operator import NodeFolder
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.monitoring.metrics import Metrics
from tacit.peer.node.checkpoint_policy import CheckpointPolicy
from tacit.peer.node.checkpoint_store import Saved
from tacit.peer.node.disk import persist
from tacit.peer.node.finished_peers import FinishedPeers
from tacit.peer.node.local_data import LocalData, load_local_data
from tacit.peer.node.outbox import Outbox
from tacit.peer.node.results import Results
from tacit.peer.node.roster_context import RosterContext
from tacit.peer.node.serving import serving
from tacit.peer.node.state import ActiveRoster, Announced, NodeState
from tacit.peer.wire.frames import is_finite
from tacit.peer.wire.neighbour_client import Stopped
from tacit.simulation import check_fit


@dataclass(frozen=True)
class Options:
    """How a node runs on its machine; nothing of it changes the result."""

    data: str | None = None
    listen: str | None = None  # host:port, if not the address in the roster
    metrics_port: int = 0
    save_seconds: float = 10.0


class Removed(Exception):
    """The roster does not name this node."""


class Node:
    """One peer: `run` returns when training has ended and nobody needs it any more, or when it is asked to stop."""

    def __init__(self, folder: NodeFolder, options: Options, event_log: EventLog) -> None:
        self.folder, self.options, self.event_log = folder, options, event_log
        self.name = folder.name
        manifest = folder.manifest()
        refuse_strangers(manifest, self.name)
        self.share = self._load(manifest)
        self._digest = self.share.digest()
        self.algorithm, self.round_length = prepare(manifest, self.share)
        self.steps = manifest.config.run.rounds * self.round_length
        task = self.share.task
        self.desk = NodeState(
            folder,
            self.name,
            self._standing(manifest),
            Metrics(),
            event_log,
            task.parameters,
            str(task.dtype),
        )
        self.desk.report(steps=self.steps, round_length=self.round_length)
        self.state: Any = None  # none before the first of a generation
        self.theta: Tensor | None = None  # the model so far [1, P], also between two generations
        self.step = 0
        self._keeper = CheckpointPolicy(folder.run / "checkpoints", self.desk, options.save_seconds)
        self._results = Results(folder.run, self.desk)
        self._farewells = FinishedPeers(folder.run / "farewells.json", manifest.generation)
        self.desk.farewell = lambda name: self._farewells.add(name)
        self._earlier_seconds, self._begun = 0.0, time.monotonic()

    def stop(self) -> None:
        """Ask the node to save and end; may be called from any thread."""
        self.desk.end()

    def run(self) -> None:
        """Serve, train to the end, and stay until the neighbours have all they need."""
        # States hold gradients: nobody else on this machine may read them.
        self.folder.run.mkdir(mode=0o700, parents=True, exist_ok=True)
        with file_lock(self.folder.run, wait=False) as acquired:
            if not acquired:
                raise Misuse(
                    f"{self.name} is running already, from {self.folder.path}.",
                    "Stop that one first.",
                )
            try:
                self._restore(self.desk.manifest)
                self._serve()
            except Stopped:  # asked to stop while there was no room on the disk
                self.event_log.write("stopped", step=self.step, saved=self.desk.progress.saved)

    def _serve(self) -> None:
        """Listen while the node lives."""
        with serving(self.desk, self.options.listen, self.options.metrics_port) as where:
            write_json(self.folder.run / "ports.json", where)
            facts = {
                "federation": self.desk.manifest.federation,
                "generation": self.desk.manifest.generation,
                **where,
            }
            self.event_log.write(
                "started",
                "info",
                version=tacit.__version__,
                data=self.share.note,
                step=self.step,
                **facts,
            )
            self._live()

    def _live(self) -> None:
        """One generation after the other."""
        while True:
            stage = RosterContext.of(self.desk, self.algorithm, self.share)
            self.desk.on_interrupt(stage.network.cancel)
            try:
                if self.state is None:
                    self._begin(stage)
                self._train(stage)
                self._linger(stage)
                self.event_log.write("ended", step=self.step)
                return
            except Stopped:
                if self.desk.stop.is_set():
                    self._leave(stage)
                    return
            finally:
                stage.network.close()
            self._go_over()

    def _begin(self, stage: RosterContext) -> None:
        """The first state of a generation."""
        self.desk.report(
            phase="meeting" if stage.manifest.generation > 1 else "starting", step=self.step
        )
        self.state, self.step = stage.first_state(
            self.algorithm, self.name, self.step, self.steps, self.theta
        )
        self.theta = self.state.theta
        self._evaluate(stage)
        self._save(stage)

    def _train(self, stage: RosterContext) -> None:
        desk, network, run = self.desk, stage.network, stage.manifest.config.run
        desk.report(phase="training", step=self.step, waiting_for=(), problem="")
        network.saved = self._keeper.acknowledged
        while self.step < self.steps:
            if desk.interrupted:
                raise Stopped
            began = time.monotonic()
            network.at(self.step + 1)
            self.state = self.algorithm.step(self.state, stage.here.at(self.step))
            self.step += 1
            self.theta = self.state.theta
            desk.report(step=self.step)
            desk.metrics.set("tacit_step", self.step)
            desk.metrics.set("tacit_round", self.step // self.round_length)
            desk.metrics.count("tacit_step_seconds_total", time.monotonic() - began)
            last = self.step == self.steps
            if last or self.step % (run.evaluate_every * self.round_length) == 0:
                self._evaluate(stage)
            if last or self._keeper.due(network.received_since_saved):
                self._save(stage)

    def _linger(self, stage: RosterContext) -> None:
        """Leave the result, and stay until nobody needs this node any more."""
        desk, farewells = self.desk, self._farewells
        self._results.finish(self.state.theta[0], self.algorithm.name, self.step, self._seconds())
        readers = set(desk.standing.outbox.readers)
        lines = {line.member.name: line for line in stage.network.lines}
        while waiting := sorted((readers - farewells.names) | (set(lines) - farewells.told)):
            desk.report(phase="finished", waiting_for=tuple(waiting))
            for name in set(lines) - farewells.told:
                if desk.interrupted:
                    raise Stopped
                if lines[name].say_farewell(
                    stage.manifest.generation, self.steps
                ) or farewells.gone(name):
                    persist(desk, "a farewell", partial(farewells.add_told, name))
            if desk.stop.wait(0.2) or desk.interrupted:
                raise Stopped
        desk.report(phase="finished", waiting_for=())

    def _leave(self, stage: RosterContext) -> None:
        """End as asked; what is done is saved, if that is possible."""
        if self.state is not None and not self._keeper.has(self.step):
            self._check()
            self._keeper.write(self._snapshot(stage.manifest), insist=False)
        self.event_log.write("stopped", step=self.step, saved=self.desk.progress.saved)

    def _go_over(self) -> None:
        """To the newest roster: from now on nothing is said under the old one."""
        announced = self.desk.newer
        assert announced is not None
        manifest = self.folder.manifest()  # the operator may have put it there already
        if manifest.generation < announced.manifest.generation:
            persist(self.desk, "the roster", lambda: self._install(announced))
            manifest = announced.manifest
        self.event_log.write(
            "roster changed",
            generation=manifest.generation,
            members=[one.name for one in manifest.members],
        )
        refuse_strangers(manifest, self.name)
        self._enter(manifest)

    def _install(self, announced: Announced) -> None:
        self.folder.install(announced.text, announced.signature)

    def _enter(self, manifest: Manifest) -> None:
        """Take a place in a roster that is new to this node, with the model it has, and save that first."""
        self.state = None
        # A trial deals its dataset by the number of clients; a task that makes its own data makes them for so many.
        self.share = self._load(manifest)
        self._digest = self.share.digest()
        self._farewells = FinishedPeers(self.folder.run / "farewells.json", manifest.generation)
        before = self.desk.standing
        self.desk.enter(self._standing(manifest))
        before.outbox.close()
        self.desk.metrics.set("tacit_generation", manifest.generation)
        model = {} if self.theta is None else {"theta": self.theta}
        self._keeper.write(
            Saved(
                manifest.federation, manifest.generation, self.step, True, model, [], self._seconds(), self._digest
            )
        )  # fmt: skip

    def _restore(self, manifest: Manifest) -> None:
        """Go on from the newest checkpoint that is whole."""
        self.desk.metrics.set("tacit_generation", manifest.generation)
        saved = self._keeper.load(manifest, self._digest)
        if saved is None:
            return
        self._earlier_seconds = saved.wall_seconds
        self.step, self.theta = saved.step, saved.state.get("theta")
        if saved.generation < manifest.generation:
            self._enter(manifest)
        elif not saved.meeting:
            self.state = state_type(type(self.algorithm))(**saved.state)
            for letter in saved.letters:
                self.desk.standing.outbox.post(letter)
        self._results.go_back(manifest.generation, self.step + 1)
        self.desk.report(step=self.step, saved=saved.step)
        self.event_log.write("resumed", generation=manifest.generation, step=self.step)

    def _save(self, stage: RosterContext) -> None:
        self._check()
        self._keeper.write(self._snapshot(stage.manifest))
        stage.network.saved = self._keeper.acknowledged
        stage.network.received_since_saved = 0

    def _snapshot(self, manifest: Manifest) -> Saved:
        letters, state = self.desk.standing.outbox.held(), tensors_of(self.state)
        return Saved(
            manifest.federation,
            manifest.generation,
            self.step,
            False,
            state,
            letters,
            self._seconds(),
            self._digest,
        )

    def _evaluate(self, stage: RosterContext) -> None:
        """Judge the model by what held when the last gradient was taken."""
        task = self.share.task.on(stage.manifest.config.run.device)
        number = self.step * gradients_per_step(self.algorithm)
        scores = task.evaluation.at(number).models(self.state.theta, [self.share.place])
        accuracy = None if scores.accuracy is None else float(scores.accuracy[0])
        self._results.record(self.step, float(scores.loss[0]), accuracy, self._seconds())

    def _check(self) -> None:
        """Stop before a state that is not finite is saved; what is said is checked in the network."""
        for name, rows in tensors_of(self.state).items():
            if not is_finite(rows):
                raise Diverged(
                    f"{name} is not finite at iteration {self.step}: this node stops and says nothing more. Its last "
                    "checkpoint is kept. Try a smaller step size or less noise."
                )

    def _seconds(self) -> float:
        return self._earlier_seconds + time.monotonic() - self._begun

    def _load(self, manifest: Manifest) -> LocalData:
        member, position = manifest.member(self.name), manifest.position(self.name)
        assert position is not None
        clients = len(manifest.members)
        return load_local_data(
            manifest.config, clients, position, member.number, self.name, self.options.data
        )

    def _standing(self, manifest: Manifest) -> ActiveRoster:
        names = [member.name for member in manifest.out_neighbours(self.name)]
        return ActiveRoster(manifest, Outbox.to(manifest.generation, names))


def prepare(manifest: Manifest, share: LocalData) -> tuple[Algorithm, int]:
    """The algorithm of a federation, and the iterations of a round."""
    config = manifest.config
    name, options = config.algorithm.name, config.algorithm.options
    draft = make_algorithm(name, options, round_length=1, steps=1)
    check_fit(draft, share.task)
    epoch = max(1, share.task.steps_per_epoch // gradients_per_step(draft))
    round_length = config.run.iterations_per_round or epoch
    return make_algorithm(
        name, options, round_length, round_length * config.run.rounds
    ), round_length


def refuse_strangers(manifest: Manifest, name: str) -> None:
    """Refuse to go by a roster that does not name this node."""
    if manifest.position(name) is None:
        raise Removed(
            f"{name} is not in the roster of generation {manifest.generation} of {manifest.federation}."
        )
