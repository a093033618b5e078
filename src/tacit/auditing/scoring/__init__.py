"""Scores of attacks: the only place that holds the truth."""
