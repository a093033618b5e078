"""Robust mixing of a configuration."""

from __future__ import annotations

from tacit.algorithms.algorithm import Algorithm
from tacit.config.sections import Config
from tacit.core.errors import prefix_errors
from tacit.engines.robust_mixing import Robust


def with_robust_mixing(config: Config, algorithm: Algorithm) -> Algorithm:
    """The algorithm as [robust] changes it; itself without that section."""
    section = config.robust
    if section is None:
        return algorithm
    with prefix_errors("[robust]"):
        return Robust(algorithm, section.rule, section.liars, section.allow_inexact)
