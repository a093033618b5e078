"""Datasets and how they are divided among clients."""

from tacit.data.dataset import Dataset, Split
from tacit.data.datasets import DatasetDescription, describe, fetch, load, names
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
    "Dataset",
    "Description",
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
