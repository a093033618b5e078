"""Where the noise of a simulation comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from tacit.core.errors import Misuse, unknown_name
from tacit.core.randomness import Philox, Randomness
from tacit.core.workers import WorkerPool
from tacit.engines.setting import Generator
from tacit.tasks.objective import Objective

if TYPE_CHECKING:
    from tacit.privacy.keystreams import KeyRing  # Needs cryptography, which is optional.


def make_randomness(
    prg: Generator | KeyRing,
    seed: int,
    task: Objective,
    pool: WorkerPool,
    secret: bytes | None = None,
) -> Randomness:
    """The source of all clients' noise, and of the samples of private sums.

    Batches and initial weights always come from the seed. `secret` is the key of `prg = "secret"`.
    """
    if prg == "philox":
        return Philox(seed, task.parameters, task.dtype, pool)
    names = get_args(Generator)
    if isinstance(prg, str) and prg not in names:
        raise unknown_name(f"prg is {prg!r}.", prg, names, also=", or a KeyRing")
    from tacit.privacy.keystreams import KeyRing

    if prg == "secret":
        if secret is None:
            raise ValueError("a secret generator needs its key")
        return KeyRing.from_secret(task.clients, secret).randomness(task.parameters, task.dtype)
    ring = KeyRing.from_seed(task.clients, seed) if isinstance(prg, str) else prg
    if not isinstance(ring, KeyRing):
        raise unknown_name(f"prg is a {type(prg).__name__}.", "", names, also=", or a KeyRing")
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
