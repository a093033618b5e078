"""The algorithms, one file each, and their registry.

The public names are listed in `__init__.pyi`.
"""

from tacit.core.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
