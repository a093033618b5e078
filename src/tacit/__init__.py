"""Tacit: train together, tell nothing."""
