"""Fixtures that run `tacit` commands."""

from support.command_line import (
    config,
    contents,
    environment,
    history,
    newest,
    start,
    tacit,
    tacit_here,
    type_line,
)

__all__ = [
    "config",
    "contents",
    "environment",
    "history",
    "newest",
    "start",
    "tacit",
    "tacit_here",
    "type_line",
]
