"""The algorithms, one file each, and their registry: a new one is registered by one line here."""

from __future__ import annotations

from tacit.algorithms.algorithm import Algorithm
from tacit.algorithms.dp_dsgt import DPDSGT
from tacit.algorithms.dsgt import DSGT
from tacit.algorithms.lppa import LPPA
from tacit.errors import unknown

ALGORITHMS: dict[str, type[Algorithm]] = {
    DSGT.name: DSGT,
    DPDSGT.name: DPDSGT,
    LPPA.name: LPPA,
}


def algorithm_class(name: str) -> type[Algorithm]:
    """The registered algorithm called `name`."""
    if name not in ALGORITHMS:
        raise unknown(f"There is no algorithm {name!r}.", name, ALGORITHMS)
    return ALGORITHMS[name]


__all__ = ["ALGORITHMS", "DPDSGT", "DSGT", "LPPA", "Algorithm", "algorithm_class"]
