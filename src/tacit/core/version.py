"""The version of Tacit."""

__version__ = "0.2.0"
