"""The built-in datasets: their files, where these come from, and their licences."""

from __future__ import annotations

from collections.abc import Mapping

from tacit.data.dataset import DatasetSource
from tacit.data.sources.images import IMAGES
from tacit.data.sources.tables import TABLES

SOURCES: Mapping[str, DatasetSource] = {source.name: source for source in (*IMAGES, *TABLES)}
