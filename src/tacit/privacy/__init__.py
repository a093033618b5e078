"""Protections of gradients and models, and the accounting of what they guarantee."""
