"""Datasets and their partitions among clients.

Packages can register further datasets under the entry-point group `tacit.datasets`: a function
`(folder, *, option=…) -> Dataset`, or a `DatasetSource` that describes files to download.
"""

from tacit.data.dataset import Dataset, DatasetSource, Split
from tacit.data.loading import DATASETS, DatasetDescription, describe, fetch, load, names
from tacit.data.locate import data_folder
from tacit.data.partition import (
    Partition,
    classes_per_client,
    dirichlet,
    explicit,
    iid,
    missing_classes,
    partition,
    quantity,
)

__all__ = [
    "DATASETS",
    "Dataset",
    "DatasetDescription",
    "DatasetSource",
    "Partition",
    "Split",
    "classes_per_client",
    "data_folder",
    "describe",
    "dirichlet",
    "explicit",
    "fetch",
    "iid",
    "load",
    "missing_classes",
    "names",
    "partition",
    "quantity",
]
