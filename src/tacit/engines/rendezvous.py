"""How the processes of a run find each other, and nobody who has died.

The store where torchrun's processes meet outlives them: after a restart it still holds the addresses of the dead. So
the living first agree on a name under which to meet, made of a token of each. The first process collects tokens and
proposes; whoever finds its own token in the proposal seconds it; when all have, it is settled. A token of the dead is
seconded by nobody, and is replaced as soon as the living one has written its own.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from datetime import timedelta

from torch.distributed.distributed_c10d import Store

from tacit.core.errors import RankLost

GLANCE = 0.02  # seconds between two looks


def rendezvous_name(store: Store, rank: int, ranks: int, patience: timedelta) -> tuple[str, bool]:
    """The name that all living processes agree on, and whether others have met in this store before."""
    before = store.check(["settled"])
    token = secrets.token_hex(16)
    store.set(f"token/{rank}", token)
    deadline = time.monotonic() + patience.total_seconds()
    while time.monotonic() < deadline:
        if rank == 0:
            _propose(store, ranks)
        proposal = _read(store, "proposal").split()
        if len(proposal) == ranks and proposal[rank] == token:
            name = hashlib.sha256(" ".join(proposal).encode()).hexdigest()
            store.set(f"second/{name}/{rank}", "")
            if rank == 0 and store.check([f"second/{name}/{other}" for other in range(ranks)]):
                store.set("settled", name)
            if _read(store, "settled") == name:
                return name, before
        time.sleep(GLANCE)
    raise RankLost(f"Rank {rank}: the {ranks} ranks of this run did not meet within {patience}.")


def _propose(store: Store, ranks: int) -> None:
    """Propose the tokens that are there now."""
    tokens = [f"token/{rank}" for rank in range(ranks)]
    if store.check(tokens):
        proposal = " ".join(store.get(token).decode() for token in tokens)
        if proposal != _read(store, "proposal"):
            store.set("proposal", proposal)


def _read(store: Store, key: str) -> str:
    return store.get(key).decode() if store.check([key]) else ""
