"""The artifacts of each paper."""
