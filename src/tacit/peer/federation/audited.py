"""The audit of a federation: what members can learn of each other, from the manifest alone.

What messages tell depends on the algorithm and the graph, which the manifest names, and not on the
data: the audit proves and bounds it for stand-in samples of the agreed shape. Attacks need data,
which only the members have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from tacit.auditing.adversary import Adversary
from tacit.auditing.client_names import client_position
from tacit.config.algorithms import make_algorithm_for
from tacit.config.build import Experiment
from tacit.config.tasks import clip_gradients, make_task, make_training_task
from tacit.core.errors import Misuse
from tacit.core.randomness import derive_key
from tacit.data import Target
from tacit.experiment.auditing import AuditSubject
from tacit.peer.federation.agreed_settings import agreed_data, disclosed_by
from tacit.peer.federation.folders import FederationFolder, NodeFolder
from tacit.peer.federation.manifest import Manifest
from tacit.peer.node.allowed_code import check_allowed
from tacit.tasks import Objective


@dataclass(frozen=True, eq=False)
class AuditedFederation:
    """A federation to audit.

    Attributes:
        manifest: Its newest manifest in the folder.
        member: The member whose folder it is; None for the operator's.
    """

    manifest: Manifest
    member: str | None

    @classmethod
    def load(cls, folder: Path) -> AuditedFederation:
        """The federation of an operator's or a node's folder."""
        if (folder / "node.pem").exists() or (folder / "node.key").exists():
            node = NodeFolder(folder)
            manifest, name = node.manifest(), node.name
            if name not in manifest.names:
                raise Misuse(f"{name} was removed from {manifest.federation}.", "Audit its run.")
            return cls(manifest, name)
        return cls(FederationFolder(folder).manifest(), None)

    def subject(self, allowed_code: Sequence[str] = ()) -> AuditSubject:
        """What the audit runs on: the federation's algorithm and graph, with stand-in samples."""
        manifest, config = self.manifest, self.manifest.config
        check_allowed(config, allowed_code)
        task = stand_in_task(manifest)
        algorithm, round_length = make_algorithm_for(config, task, manifest.graph)
        return AuditSubject(
            Experiment(config, manifest.graph, task, algorithm, round_length, None, None)
        )

    def victims(self, given: Sequence[str]) -> list[int]:
        """The positions of members by name or number; by default the folder's, or the first."""
        names = self.manifest.names
        chosen = list(given) or [self.member or names[0]]
        return [client_position(one.strip(), names) for one in chosen]

    def adversaries(self, victim: int) -> list[Adversary | str]:
        """Who is audited by default: the worst neighbour, the worst two, and all of them.

        No eavesdropper: messages between nodes are encrypted.
        """
        edges = self.manifest.graph.edges
        near = sorted({*edges[edges[:, 0] == victim, 1], *edges[edges[:, 1] == victim, 0]})
        every = Adversary.curious(*map(int, near))
        return [*(f"worst({size})" for size in (1, 2) if size < len(near)), every]

    def describe(self) -> str:
        """Who the members are, and what the audit does not cover."""
        members = ", ".join(self.manifest.names)
        return (
            f"Members of {self.manifest.federation}: {members}. Messages between nodes are "
            "encrypted: who listens on the network learns none of this."
        )


def stand_in_task(manifest: Manifest) -> Objective:
    """The federation's task with random samples of the agreed shape, two batches per member."""
    config, clients = manifest.config, len(manifest.members)
    if config.task is not None:
        return clip_gradients(config, make_task(config.task, clients))
    shape, classes = agreed_data(config)
    generator = torch.Generator().manual_seed(derive_key(config.run.seed, "stand-in") >> 1)
    count = 2 * config.run.batch_size
    parts = []
    for _ in range(clients):
        x = torch.randn(count, *shape, generator=generator)
        numbers = torch.randn(count, generator=generator) if not classes else None
        y = torch.randint(classes, (count,), generator=generator) if numbers is None else numbers
        parts.append((x, y))
    target = None if classes else Target(config.data.label or "y")
    task = make_training_task(config, shape, classes, parts, None, target)
    task = clip_gradients(config, task)
    return replace(task, names=tuple(manifest.names), disclosure=disclosed_by(config, clients))
