"""Session-wide fixtures and hooks, the same as in tests/."""

from support.session import (
    few_threads,
    one_drawing,
    own_cache,
    pytest_collection_modifyitems,
    pytest_ignore_collect,
)

__all__ = [
    "few_threads",
    "one_drawing",
    "own_cache",
    "pytest_collection_modifyitems",
    "pytest_ignore_collect",
]
