"""The registry of the datasets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tacit.core.plugins import Registry

if TYPE_CHECKING:
    from tacit.data.dataset import Dataset, DatasetSource

# A plugin registers a DatasetSource, or a function `(folder, *, option=…) -> Dataset`.
# In the order in which they are listed: the embedded one first.
DATASETS: Registry[DatasetSource | Callable[..., Dataset]] = Registry(
    "tacit.datasets",
    "dataset",
    {
        "mnist-mini": "tacit.data.sources.images:MNIST_MINI",
        "mnist": "tacit.data.sources.images:MNIST",
        "fashion-mnist": "tacit.data.sources.images:FASHION_MNIST",
        "cifar10": "tacit.data.sources.images:CIFAR10",
        "adult": "tacit.data.sources.tables:ADULT",
        "covtype": "tacit.data.sources.tables:COVTYPE",
        "covtype7": "tacit.data.sources.tables:COVTYPE7",
        "rcv1": "tacit.data.sources.tables:RCV1",
        "location30": "tacit.data.sources.tables:LOCATION30",
    },
)
