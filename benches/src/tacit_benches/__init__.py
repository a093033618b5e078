"""Reproducible benchmarks: each result is a ratio of two things timed in turn within one run."""
