"""Findings of our own, as artifacts."""
