"""Session-wide fixtures and hooks."""

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
