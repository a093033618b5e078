"""Gradients of any module for many clients at once."""

from tacit.tasks.batching.gradients import saved_numbers, write_batched, write_looped
from tacit.tasks.batching.rules import attention_of_samples

__all__ = ["attention_of_samples", "saved_numbers", "write_batched", "write_looped"]
