"""The node whose transcript is audited: its algorithm, its data, its keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm
from tacit.auditing.adversary import Adversary
from tacit.auditing.symbolic.symbolic_run import SymbolicRun
from tacit.auditing.symbolic.symbols import run_on_symbols, step_on_symbols
from tacit.config.algorithms import make_algorithm_for
from tacit.core.errors import Misuse
from tacit.core.fixed_point import RESERVED
from tacit.engines.gradients.objective import HostedObjective
from tacit.peer.federation.audited import stand_in_task
from tacit.peer.federation.folders import NodeFolder
from tacit.peer.federation.manifest import Manifest
from tacit.peer.node.allowed_code import check_allowed
from tacit.peer.node.column_sums import load_columns
from tacit.peer.node.fresh_keys import read_salts, salts_file
from tacit.peer.node.kept_messages import KeptMessages, unit_of
from tacit.peer.node.local_data import LocalData, load_local_data
from tacit.peer.node.node import REPEATED_ITERATIONS
from tacit.peer.node.roster_agreement import agreed_roster
from tacit.privacy.keystreams import KeyRing, Keystreams
from tacit.record.transcript import Keep
from tacit.record.unknowns import NO_CLIENT, Unknown
from tacit.tasks import Objective


@dataclass(frozen=True, eq=False)
class AuditedNode:
    """A node as its owner sees it.

    Attributes:
        folder: The node's folder.
        manifest: The newest roster.
        algorithm: What the node runs.
        task: With stand-in samples, for what does not depend on data.
        local: The node's data; None if they are not here.
        salts: The salts of all members by name.
    """

    folder: NodeFolder
    manifest: Manifest
    algorithm: Algorithm
    task: Objective
    local: LocalData | None
    salts: dict[str, bytes] = field(repr=False)

    @classmethod
    def load(
        cls, folder: NodeFolder, data: str | None, allowed_code: Sequence[str]
    ) -> AuditedNode | None:
        """A node from its folder; None if it has not begun its newest roster.

        Without `data`, its data are loaded if the configuration names them.

        Raises:
            Misuse: `data` cannot be loaded, or are not those that the node trained on.
        """
        base, name = folder.manifest(), folder.name
        newest = agreed_roster(folder, base)
        manifest = newest if name in newest.names else base
        config = manifest.config
        check_allowed(config, allowed_code)
        task = stand_in_task(manifest)
        algorithm, _ = make_algorithm_for(config, task, manifest.graph, reserve=REPEATED_ITERATIONS)
        position, number = manifest.position(name), manifest.member(name).number
        stored = salts_file(folder.run / "checkpoints", manifest.number)
        digest, salts = read_salts(stored)
        if set(manifest.names) - set(salts):
            return None
        if task.local is not None:
            if data is not None:
                raise Misuse(
                    f"{name} has local parameters, which are not in its transcript: what it sent "
                    "cannot be compared with its data.",
                    "Leave --data out.",
                )
            return cls(folder, manifest, algorithm, task, None, salts)
        local = None
        try:
            # Data of a federation do not depend on who is suspended.
            clients = len((base if manifest.epoch else manifest).members)
            local = load_local_data(config, clients, position, number, name, data)
        except Misuse:
            if data is not None:
                raise
        if local is not None and local.rows is not None:
            sums = load_columns(folder.run, local.digest)
            local = None if sums is None else local.prepared(config, sums)
        if local is not None and local.digest != digest:
            if data is not None:
                problem = f"--data {data} are not the data that {name} trained on."
                raise Misuse(problem, "Give the --data that the node was started with.")
            local = None
        return cls(folder, manifest, algorithm, task, local, salts)

    @property
    def own(self) -> int:
        """The position of the node."""
        return self.manifest.position(self.folder.name)

    @property
    def number(self) -> int:
        """The permanent number of the node."""
        return self.manifest.member(self.folder.name).number

    @property
    def neighbours(self) -> list[int]:
        """The positions of those that the node sends to or receives from."""
        edges = self.manifest.graph.edges.tolist()
        return sorted({end for edge in edges if self.own in edge for end in edge} - {self.own})

    @cached_property
    def objective(self) -> HostedObjective:
        """The node's gradients, from its own data."""
        assert self.local is not None
        run, task = self.manifest.config.run, self.local.task
        at, keyed_by = torch.tensor([self.local.index]), torch.tensor([self.number])
        loader = task.loader(keyed_by, run.seed, "cpu", positions=at)
        # In the precision of the gradients that were sent.
        return HostedObjective(
            task, [self.number], loader, "looped", run.seed, "cpu", precision=run.precision
        )

    def run_on_symbols(self, kept: KeptMessages, last: int) -> SymbolicRun:
        """The messages of this node and its neighbours up to an iteration, as symbols.

        If the beginning is not in the transcript, the state before is unknown.
        """
        graph, keep = self.manifest.graph, Keep(clients=(self.own,), ticks=(kept.first, last))
        if not kept.is_start:
            steps = last - kept.first + 1
            return step_on_symbols(self.algorithm, graph, kept.first - 1, steps=steps, keep=keep)
        models = self.task.initial(self.manifest.config.run.seed, range(graph.clients))
        alike = bool((models == models[0]).all())
        return run_on_symbols(self.algorithm, graph, last, keep, common_start=alike)

    def held_rows(self, run: SymbolicRun, adversary: Adversary) -> dict[Unknown, Tensor]:
        """The numbers of what an adversary knows without messages: noise and the first model."""
        held = {}
        for unknown in filter(adversary.knows, run.unknowns):
            if unknown.kind == "theta0":
                task, seed = self.task, self.manifest.config.run.seed
                held[unknown] = task.initial(seed, [self.number])[0]
            elif (row := self._drawn(unknown, run)) is not None:
                held[unknown] = row
        return held

    def _drawn(self, unknown: Unknown, run: SymbolicRun) -> Tensor | None:
        """Noise or a mask of this node, derived from its keys as it was when it was sent."""
        source, tick = torch.tensor([unknown.client]), unknown.when
        other = None if unknown.other == NO_CLIENT else torch.tensor([unknown.other])
        if not unknown.tag.startswith(RESERVED):
            law = run.laws[unknown]
            return self._randomness.rows(unknown.tag, law, tick, source, other).tensor()[0]
        tag, _, kind = unknown.tag.removeprefix(f"{RESERVED} ").rpartition("/")
        if kind != "mask" or other is None:
            return None  # Noise of sums depends on the data.
        message = next(one for one in run.transcript.messages if one.modulus is not None)
        masks = self._randomness.masks(tag, tick, source, other)
        return unit_of(message) * masks[0].double()

    @cached_property
    def _randomness(self) -> Keystreams:
        manifest = self.manifest
        keys = KeyRing(
            federation=manifest.federation,
            generation=manifest.number,
            names=manifest.names,
            publics=[one.mask_key for one in manifest.members],
            secrets={self.own: self.folder.mask_secret()},
            salts={manifest.position(name): self.salts[name] for name in manifest.names},
        )
        return keys.randomness(self.task.parameters, self.task.dtype)
