"""What is kept of a run: metrics over time, messages and checkpoints."""

from tacit.record.history import History, Record, Spread

__all__ = ["History", "Record", "Spread"]
