"""Readers of the files in which datasets are distributed: one module per format, none unpickles."""
