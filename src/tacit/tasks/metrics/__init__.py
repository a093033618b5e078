"""Metrics of models on a test set, computed in one pass over it."""
