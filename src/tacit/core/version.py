"""The version of Tacit."""

__version__ = "0.1.0"
