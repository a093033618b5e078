"""Scores of attacks: the only part of an audit that uses the true data."""
