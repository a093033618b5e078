"""Engines: what runs an algorithm's text, and where."""
