"""Random numbers of a changing graph: keyed by seed, iteration and purpose."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt


def random_words(seed: int, t: int, purpose: str, count: int) -> npt.NDArray[np.uint64]:
    """Uniform 64-bit words [count], the same for the same arguments on every machine."""
    key = hashlib.sha256(f"{purpose}/{seed}/{t}".encode()).digest()[:16]
    words = np.random.Philox(key=np.frombuffer(key, dtype="<u8")).random_raw(count)
    return np.asarray(words, dtype=np.uint64).reshape(count)
