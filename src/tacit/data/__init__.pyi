from tacit.data.augmentation import Augment as Augment
from tacit.data.dataset import (
    Dataset as Dataset,
    DatasetSource as DatasetSource,
    Split as Split,
    Target as Target,
)
from tacit.data.loading import (
    DatasetDescription as DatasetDescription,
    describe as describe,
    fetch as fetch,
    load as load,
    names as names,
)
from tacit.data.locate import data_folder as data_folder
from tacit.data.own.loading import from_tables as from_tables
from tacit.data.partitions import (
    Partition as Partition,
    classes_per_client as classes_per_client,
    dirichlet as dirichlet,
    explicit as explicit,
    iid as iid,
    missing_classes as missing_classes,
    partition as partition,
    quantity as quantity,
)
from tacit.data.registry import DATASETS as DATASETS
