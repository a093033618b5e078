"""Datasets and their partitions among clients.

Packages can register further datasets under the entry-point group `tacit.datasets`: a function
`(folder, *, option=…) -> Dataset`, or a `DatasetSource` that describes files to download. The
public names are listed in `__init__.pyi`.
"""

from tacit.core.lazy_names import lazy_names

__all__, __getattr__, __dir__ = lazy_names(__name__)
