# The public names of Tacit: the only list of them. `__init__.py` reads it to import each name when
# it is first used; type checkers and editors read it as any stub.

from tacit import (
    compression as compression,
    data as data,
    models as models,
)
from tacit.algorithms import (
    ALGORITHMS as ALGORITHMS,
    Algorithm as Algorithm,
)
from tacit.algorithms.admm import ADMM as ADMM
from tacit.algorithms.d_psgd import DPSGD as DPSGD
from tacit.algorithms.decor import Decor as Decor
from tacit.algorithms.defl_vp import DeFLVP as DeFLVP
from tacit.algorithms.dp_dsgt import DPDSGT as DPDSGT
from tacit.algorithms.dsg import DSG as DSG
from tacit.algorithms.dsg_rms import DSGRMS as DSGRMS
from tacit.algorithms.dsgt import DSGT as DSGT
from tacit.algorithms.dsgt_rms import DSGTRMS as DSGTRMS
from tacit.algorithms.edsg import EDSG as EDSG
from tacit.algorithms.edsg_rms import EDSGRMS as EDSGRMS
from tacit.algorithms.fedavg import FedAvg as FedAvg
from tacit.algorithms.lppa import LPPA as LPPA
from tacit.algorithms.mdsg import MDSG as MDSG
from tacit.algorithms.pd_lms import PDLMS as PDLMS
from tacit.algorithms.pdmm import PDMM as PDMM
from tacit.algorithms.private_sgd import PrivateSGD as PrivateSGD
from tacit.algorithms.psgt import PSGT as PSGT
from tacit.algorithms.push_sum import PushSum as PushSum
from tacit.algorithms.solvers import (
    ExactSolver as ExactSolver,
    GradientSolver as GradientSolver,
    InnerSolver as InnerSolver,
    QuadraticSolver as QuadraticSolver,
)
from tacit.auditing.adversary import Adversary as Adversary
from tacit.auditing.result import Audit as Audit
from tacit.auditing.run_evidence import evidence as evidence
from tacit.compression import (
    QSGD as QSGD,
    Identity as Identity,
    RandK as RandK,
    SignBits as SignBits,
)
from tacit.core.errors import (
    Caution as Caution,
    Diverged as Diverged,
    Misuse as Misuse,
    TacitError as TacitError,
)
from tacit.core.noise import (
    Gaussian as Gaussian,
    Laplace as Laplace,
)
from tacit.core.schedules import (
    Constant as Constant,
    Cosine as Cosine,
    Exponential as Exponential,
    Inverse as Inverse,
    MultiStep as MultiStep,
    Warmup as Warmup,
)
from tacit.data.augmentation import Augment as Augment
from tacit.engines import callbacks as callbacks
from tacit.engines.hosting import host as host
from tacit.engines.robust_mixing import Robust as Robust
from tacit.engines.run import Run as Run
from tacit.engines.running import run as run
from tacit.engines.setting import Setting as Setting
from tacit.engines.simulation import Simulation as Simulation
from tacit.experiment.auditing import audit as audit, save_audit as save_audit
from tacit.experiment.saved import SavedRun as SavedRun, load as load
from tacit.experiment.task_grid import grid as grid
from tacit.graph import (
    Absence as Absence,
    Graph as Graph,
    GraphFunction as GraphFunction,
    Matchings as Matchings,
    Participation as Participation,
    Phases as Phases,
    Topology as Topology,
)
from tacit.privacy.guarantee import Budget as Budget, Privacy as Privacy
from tacit.privacy.matrix_step import MatrixStep as MatrixStep
from tacit.privacy.protection import (
    ErfVector as ErfVector,
    NormVector as NormVector,
    TanhVector as TanhVector,
)
from tacit.record.transcript import Keep as Keep
from tacit.tasks import (
    Objective as Objective,
    Task as Task,
    adaptive_filtering as adaptive_filtering,
    least_squares as least_squares,
    localization as localization,
    quadratic as quadratic,
)

__version__: str
__all__: list[str]
