"""The registry of the algorithms: a new one is registered by one line here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.core.plugins import Registry

if TYPE_CHECKING:
    from tacit.algorithms.algorithm import Algorithm

ALGORITHMS: Registry[type[Algorithm]] = Registry(
    "tacit.algorithms",
    "algorithm",
    {
        "dsgt": "tacit.algorithms.dsgt:DSGT",
        "dp-dsgt": "tacit.algorithms.dp_dsgt:DPDSGT",
        "lppa": "tacit.algorithms.lppa:LPPA",
        "dsg": "tacit.algorithms.dsg:DSG",
        "edsg": "tacit.algorithms.edsg:EDSG",
        "dsg-rms": "tacit.algorithms.dsg_rms:DSGRMS",
        "edsg-rms": "tacit.algorithms.edsg_rms:EDSGRMS",
        "dsgt-rms": "tacit.algorithms.dsgt_rms:DSGTRMS",
        "pd-lms": "tacit.algorithms.pd_lms:PDLMS",
        "psgt": "tacit.algorithms.psgt:PSGT",
        "mdsg": "tacit.algorithms.mdsg:MDSG",
        "d-psgd": "tacit.algorithms.d_psgd:DPSGD",
        "defl-vp": "tacit.algorithms.defl_vp:DeFLVP",
        "pdmm": "tacit.algorithms.pdmm:PDMM",
        "admm": "tacit.algorithms.admm:ADMM",
        "fedavg": "tacit.algorithms.fedavg:FedAvg",
        "push-sum": "tacit.algorithms.push_sum:PushSum",
        "decor": "tacit.algorithms.decor:Decor",
        "private-sgd": "tacit.algorithms.private_sgd:PrivateSGD",
    },
)
