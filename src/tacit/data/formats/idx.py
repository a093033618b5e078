"""IDX, the format of MNIST and Fashion-MNIST: a big-endian header, then unsigned bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.data.dataset import LocatedFiles
from tacit.data.formats.raw import RawDataset, RawSplit, damaged, read_bytes

IMAGES_MAGIC = 2051
LABELS_MAGIC = 2049
SIDE = 28


def read(files: LocatedFiles) -> RawDataset:
    """Read the four files of MNIST or Fashion-MNIST."""
    paths = files.paths
    return RawDataset(
        train=_split(paths["train images"], paths["train labels"]),
        test=_split(paths["test images"], paths["test labels"]),
    )


def read_images(path: Path) -> NDArray[np.uint8]:
    """The images of an IDX file, [n, 28, 28]."""
    header, pixels = _read(path, IMAGES_MAGIC, words=4)
    count, rows, columns = header
    if (rows, columns) != (SIDE, SIDE):
        raise damaged(path, f"images of {rows}x{columns} pixels", f"{SIDE}x{SIDE}")
    _check_length(path, pixels, count * rows * columns, f"{count:,} images")
    return pixels.reshape(count, rows, columns)


def read_labels(path: Path) -> NDArray[np.int64]:
    """The labels of an IDX file, [n]."""
    (count,), labels = _read(path, LABELS_MAGIC, words=2)
    _check_length(path, labels, count, f"{count:,} labels")
    if count and labels.max() > 9:
        raise damaged(path, f"a label {labels.max()}", "labels from 0 to 9")
    return labels.astype(np.int64)


def encode(array: NDArray[np.uint8]) -> bytes:
    """The IDX bytes of images [n, rows, columns] or labels [n]."""
    magic = {3: IMAGES_MAGIC, 1: LABELS_MAGIC}[array.ndim]
    return np.array([magic, *array.shape], dtype=">u4").tobytes() + array.tobytes()


def _split(images_path: Path, labels_path: Path) -> RawSplit:
    images, labels = read_images(images_path), read_labels(labels_path)
    if len(images) != len(labels):
        raise damaged(
            labels_path,
            f"{len(labels):,} labels",
            f"{len(images):,}, one per image of {images_path.name}",
        )
    return RawSplit(images[:, None], labels)


def _read(path: Path, magic: int, words: int) -> tuple[list[int], NDArray[np.uint8]]:
    contents = read_bytes(path)
    if len(contents) < 4 * words:
        raise damaged(path, f"only {len(contents)} bytes", f"an IDX header of {4 * words} bytes")
    found, *header = (int(word) for word in np.frombuffer(contents, ">u4", words))
    if found != magic:
        raise damaged(path, f"IDX magic number {found}", f"{magic}")
    return header, np.frombuffer(contents, np.uint8, offset=4 * words)


def _check_length(path: Path, body: NDArray[np.uint8], expected: int, meaning: str) -> None:
    if len(body) != expected:
        raise damaged(path, f"{len(body):,} bytes after the header", f"{expected:,} ({meaning})")
