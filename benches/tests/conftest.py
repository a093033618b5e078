"""Session-wide fixtures and hooks, the same as in tests/, and those that run `tacit`."""

from support.command_line import environment, tacit, tacit_here
from support.session import (
    few_threads,
    one_drawing,
    own_cache,
    pytest_collection_modifyitems,
    pytest_ignore_collect,
)

__all__ = [
    "environment",
    "few_threads",
    "one_drawing",
    "own_cache",
    "pytest_collection_modifyitems",
    "pytest_ignore_collect",
    "tacit",
    "tacit_here",
]
