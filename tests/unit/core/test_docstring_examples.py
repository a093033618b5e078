import doctest
from importlib import import_module

import pytest

import tacit

MODULES = [
    *("core.discrete_gaussian", "core.errors", "core.noise", "core.schedules"),
    *("graph.graph", "graph.topology"),
    *("compression.messages", "compression.qsgd", "compression.rand_k", "compression.sign_bits"),
    *("privacy.matrix_step", "privacy.protection", "privacy.guarantee"),
    "privacy.planning",
    *("privacy.accounting.calibration", "privacy.accounting.integer_noise"),
    "privacy.accounting.sampled_gaussian",
    *("algorithms.lppa", "algorithms.pdmm", "algorithms.defl_vp"),
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_docstrings_run(name):
    names = {"Topology": tacit.Topology, "Graph": tacit.Graph}
    result = doctest.testmod(import_module(f"tacit.{name}"), extraglobs=names)
    assert result.attempted > 0
    assert result.failed == 0
