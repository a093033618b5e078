"""How we describe where a dataset comes from: the vocabulary of the table in `sources`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class RemoteFile:
    """A file to download, and what proves that it is the right one (at least one checksum)."""

    name: str
    urls: tuple[str, ...]
    """Mirrors, tried in this order."""
    size: int | None = None
    sha256: str | None = None
    """Of the file as it is downloaded."""
    contents_sha256: str | None = None
    """Of the decompressed contents, where the gzip wrapper may differ between copies."""
    members_sha1: Mapping[str, str] = field(default_factory=dict)
    """Of the members of a tar archive, by member name."""

    def __post_init__(self) -> None:
        if not (self.sha256 or self.contents_sha256 or self.members_sha1):
            raise ValueError(f"{self.name}: a download without any checksum cannot be trusted")


@dataclass(frozen=True)
class Form:
    """One set of files in which a dataset may lie in its folder; names are relative to the folder."""

    name: str
    needed: Mapping[str, tuple[str, ...]]
    """Role of the file → the names it may have. Every role must be filled."""
    some_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Parts of which at least one must be there (none may be listed); the rest make it complete."""


@dataclass(frozen=True)
class DatasetSource:
    """All that is known about a dataset without opening it."""

    name: str
    title: str
    folder: str
    """Name of its folder below the data folder; empty for data that ships with the package."""
    shape: tuple[int, ...]
    class_names: tuple[str, ...]
    counts: str
    """Training and test samples, in words (some datasets have no official split)."""
    licence: str
    citation: str
    page: str
    """Where a person would go to get it."""
    forms: tuple[Form, ...] = ()
    files: tuple[RemoteFile, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    """Option of `load` → what it means."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """File that we will not read → why not."""
    otherwise: Callable[[Path], list[Path]] | None = None
    """Makes the files in the given folder by another way, where there is no mirror or all failed."""
