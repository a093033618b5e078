"""Fixtures that run `tacit` commands."""

from support.command_line import environment, start, tacit, tacit_here

__all__ = ["environment", "start", "tacit", "tacit_here"]
