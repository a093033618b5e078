"""Experiments: from a configuration to a run folder, comparisons, reports."""
