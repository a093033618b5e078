"""Gradients of single samples inside vmap."""

from tacit.tasks.batching.rules import attention_of_samples

__all__ = ["attention_of_samples"]
