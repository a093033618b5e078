"""How the processes of a run find each other after a restart.

torchrun's store outlives its processes: after a restart it still has the addresses of dead ones. So
the live processes first agree on a new name for their group, made of one random token per process.
Rank 0 proposes the tokens it finds; each process confirms a proposal that has its own token; when
all have confirmed, the name is final. A dead process's token is never confirmed. It is replaced as
soon as its successor writes its own, and rank 0 proposes again.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from datetime import timedelta

from torch.distributed.distributed_c10d import Store

from tacit.core.errors import RankLost

POLL_SECONDS = 0.02


def agree_on_name(store: Store, rank: int, ranks: int, timeout: timedelta) -> tuple[str, bool]:
    """The name that all live processes agree on, and whether others agreed on one before."""
    restarted = store.check(["final"])
    token = secrets.token_hex(16)
    store.set(f"token/{rank}", token)
    deadline = time.monotonic() + timeout.total_seconds()
    while time.monotonic() < deadline:
        if rank == 0:
            _propose(store, ranks)
        proposal = _read(store, "proposal").split()
        if len(proposal) == ranks and proposal[rank] == token:
            name = hashlib.sha256(" ".join(proposal).encode()).hexdigest()
            store.set(f"confirmed/{name}/{rank}", "")
            if rank == 0 and store.check([f"confirmed/{name}/{other}" for other in range(ranks)]):
                store.set("final", name)
            if _read(store, "final") == name:
                return name, restarted
        time.sleep(POLL_SECONDS)
    raise RankLost(f"Rank {rank}: the {ranks} ranks of this run did not connect within {timeout}.")


def _propose(store: Store, ranks: int) -> None:
    keys = [f"token/{rank}" for rank in range(ranks)]
    if store.check(keys):
        proposal = " ".join(store.get(key).decode() for key in keys)
        if proposal != _read(store, "proposal"):
            store.set("proposal", proposal)


def _read(store: Store, key: str) -> str:
    return store.get(key).decode() if store.check([key]) else ""
