"""The algorithms, one file each, and their registry: a new one is registered by one line here."""

from __future__ import annotations

from importlib import import_module

from tacit.algorithms.algorithm import Algorithm
from tacit.errors import unknown

# file and class of each algorithm
FILES = {
    "dsgt": "DSGT",
    "dp_dsgt": "DPDSGT",
    "lppa": "LPPA",
    "dsg": "DSG",
    "edsg": "EDSG",
    "dsg_rms": "DSGRMS",
    "edsg_rms": "EDSGRMS",
    "dsgt_rms": "DSGTRMS",
    "pd_lms": "PDLMS",
    "psgt": "PSGT",
    "mdsg": "MDSG",
    "d_psgd": "DPSGD",
    "defl_vp": "DeFLVP",
    "pdmm": "PDMM",
    "admm": "ADMM",
    "fedavg": "FedAvg",
}

_CLASSES = [getattr(import_module(f"tacit.algorithms.{file}"), name) for file, name in FILES.items()]
ALGORITHMS: dict[str, type[Algorithm]] = {kind.name: kind for kind in _CLASSES}


def algorithm_class(name: str) -> type[Algorithm]:
    """The registered algorithm called `name`."""
    if name not in ALGORITHMS:
        raise unknown(f"There is no algorithm {name!r}.", name, ALGORITHMS)
    return ALGORITHMS[name]


__all__ = ["ALGORITHMS", "Algorithm", "algorithm_class"]
