"""Tacit: train together, tell nothing. Privacy-preserving decentralized federated learning.

import tacit

graph = tacit.Topology.ring(5).mixing("metropolis")
task = tacit.Task.from_module(module, parts, batch_size=32)
run = tacit.simulate(tacit.LPPA(lr=0.1, noise=tacit.Laplace(1.0)), task, graph, steps=300, seed=0)
run.theta, run.history
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.algorithms import ALGORITHMS
    from tacit.algorithms.admm import ADMM
    from tacit.algorithms.d_psgd import DPSGD
    from tacit.algorithms.defl_vp import DeFLVP
    from tacit.algorithms.dp_dsgt import DPDSGT
    from tacit.algorithms.dsg import DSG
    from tacit.algorithms.dsg_rms import DSGRMS
    from tacit.algorithms.dsgt import DSGT
    from tacit.algorithms.dsgt_rms import DSGTRMS
    from tacit.algorithms.edsg import EDSG
    from tacit.algorithms.edsg_rms import EDSGRMS
    from tacit.algorithms.fedavg import FedAvg
    from tacit.algorithms.lppa import LPPA
    from tacit.algorithms.mdsg import MDSG
    from tacit.algorithms.pd_lms import PDLMS
    from tacit.algorithms.pdmm import PDMM
    from tacit.algorithms.psgt import PSGT
    from tacit.algorithms.solvers import ExactSolver, GradientSolver, InnerSolver, QuadraticSolver
    from tacit.auditing.adversary import Adversary
    from tacit.auditing.result import Audit
    from tacit.compression import QSGD, Identity, RandK, SignBits
    from tacit.core.errors import Diverged, Misuse, TacitError
    from tacit.core.noise import Gaussian, Laplace
    from tacit.core.schedules import Constant, Cosine, Exponential, Inverse
    from tacit.experiment.auditing import audit
    from tacit.graph import Graph, Topology
    from tacit.privacy.matrix_step import MatrixStep
    from tacit.privacy.protection import ErfVector, NormVector, TanhVector
    from tacit.record.transcript import Keep
    from tacit.simulation import Run, Setting, Simulation, simulate
    from tacit.tasks import Task, adaptive_filtering, least_squares, localization, quadratic

__version__ = "0.1.0"

__all__ = [
    "ADMM",
    "ALGORITHMS",
    "DPDSGT",
    "DPSGD",
    "DSG",
    "DSGRMS",
    "DSGT",
    "DSGTRMS",
    "EDSG",
    "EDSGRMS",
    "LPPA",
    "MDSG",
    "PDLMS",
    "PDMM",
    "PSGT",
    "QSGD",
    "Adversary",
    "Audit",
    "Constant",
    "Cosine",
    "DeFLVP",
    "Diverged",
    "ErfVector",
    "ExactSolver",
    "Exponential",
    "FedAvg",
    "Gaussian",
    "GradientSolver",
    "Graph",
    "Identity",
    "InnerSolver",
    "Inverse",
    "Keep",
    "Laplace",
    "MatrixStep",
    "Misuse",
    "NormVector",
    "QuadraticSolver",
    "RandK",
    "Run",
    "Setting",
    "SignBits",
    "Simulation",
    "TacitError",
    "TanhVector",
    "Task",
    "Topology",
    "adaptive_filtering",
    "audit",
    "least_squares",
    "localization",
    "quadratic",
    "simulate",
]

# Where each public name lives. They are imported when first used, so that `tacit --help` need not load torch.
_ROOMS = {
    "tacit.algorithms": ("ALGORITHMS",),
    "tacit.algorithms.admm": ("ADMM",),
    "tacit.algorithms.d_psgd": ("DPSGD",),
    "tacit.algorithms.defl_vp": ("DeFLVP",),
    "tacit.algorithms.dp_dsgt": ("DPDSGT",),
    "tacit.algorithms.dsg": ("DSG",),
    "tacit.algorithms.dsg_rms": ("DSGRMS",),
    "tacit.algorithms.dsgt": ("DSGT",),
    "tacit.algorithms.dsgt_rms": ("DSGTRMS",),
    "tacit.algorithms.edsg": ("EDSG",),
    "tacit.algorithms.edsg_rms": ("EDSGRMS",),
    "tacit.algorithms.fedavg": ("FedAvg",),
    "tacit.algorithms.lppa": ("LPPA",),
    "tacit.algorithms.mdsg": ("MDSG",),
    "tacit.algorithms.pd_lms": ("PDLMS",),
    "tacit.algorithms.pdmm": ("PDMM",),
    "tacit.algorithms.psgt": ("PSGT",),
    "tacit.algorithms.solvers": (
        "ExactSolver",
        "GradientSolver",
        "InnerSolver",
        "QuadraticSolver",
    ),
    "tacit.auditing.adversary": ("Adversary",),
    "tacit.auditing.result": ("Audit",),
    "tacit.experiment.auditing": ("audit",),
    "tacit.compression": (
        "QSGD",
        "Identity",
        "RandK",
        "SignBits",
    ),
    "tacit.core.errors": ("Diverged", "Misuse", "TacitError"),
    "tacit.graph": ("Graph", "Topology"),
    "tacit.privacy.matrix_step": ("MatrixStep",),
    "tacit.core.noise": ("Gaussian", "Laplace"),
    "tacit.privacy.protection": (
        "ErfVector",
        "NormVector",
        "TanhVector",
    ),
    "tacit.record.transcript": ("Keep",),
    "tacit.core.schedules": ("Constant", "Cosine", "Exponential", "Inverse"),
    "tacit.simulation": ("Run", "Setting", "Simulation", "simulate"),
    "tacit.tasks": ("Task", "adaptive_filtering", "least_squares", "localization", "quadratic"),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name, or a room such as tacit.data, on first use."""
    if name in ("compression", "data", "models"):
        return import_module(f"tacit.{name}")
    if name not in _ROOM_OF:
        raise AttributeError(f"module 'tacit' has no attribute {name!r}")
    value = getattr(import_module(_ROOM_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return [*__all__, "__version__"]
