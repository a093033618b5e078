"""Gradients of any module for many clients at once."""

from tacit.tasks.batching.gradients import saved_numbers, write_batched, write_looped

__all__ = ["saved_numbers", "write_batched", "write_looped"]
