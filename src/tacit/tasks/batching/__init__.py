"""Gradients of any module for many clients at once."""

from tacit.tasks.batching.gradients import batched_gradients, looped_gradients, saved_numbers

__all__ = ["batched_gradients", "looped_gradients", "saved_numbers"]
