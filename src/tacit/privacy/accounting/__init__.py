"""Upper bounds on the privacy loss of noise, of one release and of many."""

from tacit.privacy.accounting.gaussian import (
    gaussian_compose,
    gaussian_delta,
    gaussian_epsilon,
    gaussian_rdp,
)
from tacit.privacy.accounting.information import gaussian_information, pure_information
from tacit.privacy.accounting.laplace import (
    laplace_delta,
    sum_cdf,
    sum_delta,
    sum_density,
    sum_pure_epsilon,
    sum_tail,
)
from tacit.privacy.accounting.loss_distribution import PrivacyLoss
from tacit.privacy.accounting.randomized_response import (
    response_delta,
    response_epsilon,
    response_method,
    response_pure_epsilon,
    response_rdp,
)
from tacit.privacy.accounting.renyi import rdp_delta, rdp_epsilon

__all__ = [
    "PrivacyLoss",
    "gaussian_compose",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_information",
    "gaussian_rdp",
    "laplace_delta",
    "pure_information",
    "rdp_delta",
    "rdp_epsilon",
    "response_delta",
    "response_epsilon",
    "response_method",
    "response_pure_epsilon",
    "response_rdp",
    "sum_cdf",
    "sum_delta",
    "sum_density",
    "sum_pure_epsilon",
    "sum_tail",
]
