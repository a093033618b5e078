"""Datasets that were read: the cells of a table share a few of them."""

from __future__ import annotations

from pathlib import Path

from tacit.config.build import load_data
from tacit.config.sections import DataSection
from tacit.data import Dataset

ROOM = 2 << 30  # bytes of samples that are kept


class DatasetCache:
    """Keeps datasets as long as there is room; those not asked for the longest are put away first."""

    def __init__(self, room: int = ROOM) -> None:
        self._room = room
        self._kept: dict[str, Dataset] = {}

    def dataset(self, section: DataSection, folder: Path | None) -> Dataset:
        """As `load_data` reads it."""
        name = f"{section.model_dump_json()} in {folder}"
        found = self._kept.pop(name, None) or load_data(section, folder)
        self._kept[name] = found  # the last one
        while len(self._kept) > 1 and sum(map(_size, self._kept.values())) > self._room:
            del self._kept[next(iter(self._kept))]
        return found


def _size(dataset: Dataset) -> int:
    parts = (dataset.train, dataset.test)
    return sum(int(array.nbytes) for part in parts for array in (part.x, part.y))
