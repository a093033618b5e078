"""Readers of dataset files, one module per format. None of them unpickles."""
