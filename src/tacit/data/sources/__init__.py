"""The datasets: which files they consist of, where these come from, and under what terms."""

from __future__ import annotations

from collections.abc import Mapping

from tacit.data.source import DatasetSource
from tacit.data.sources.images import IMAGES
from tacit.data.sources.tables import TABLES

SOURCES: Mapping[str, DatasetSource] = {source.name: source for source in (*IMAGES, *TABLES)}
"""In the order in which people should meet them: the embedded one first."""
