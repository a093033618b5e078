"""CIFAR-10: binary batches, as files or in their archive, or lossless WebP mosaics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.core.errors import Misuse
from tacit.data.dataset import LocatedFiles
from tacit.data.formats.raw import RawDataset, RawSplit, damaged, read_members

BATCHES = 5
RECORDS = 10_000
SIDE = 32
RECORD_BYTES = 1 + 3 * SIDE * SIDE
# Tiles per side of a mosaic: image i is the tile at row i // 100, column i % 100.
MOSAIC = 100

Batch = tuple[NDArray[np.uint8], NDArray[np.int64]]


def read(files: LocatedFiles) -> RawDataset:
    """Read the test batch and the training batches that exist."""
    readers = {"binary": _read_binary, "archive": _read_archive, "mosaic": _read_mosaics}
    test, train = readers[files.layout](files)
    present = sorted(train)
    note = ""
    if len(present) < BATCHES:
        note = (
            f"CIFAR-10 with training {'batch' if len(present) == 1 else 'batches'} "
            f"{', '.join(map(str, present))} of {BATCHES} only "
            f"({len(present) * RECORDS:,} of 50,000 images)"
        )
    images, labels = zip(*(train[number] for number in present), strict=True)
    split = RawSplit(np.concatenate(images), np.concatenate(labels))
    return RawDataset(split, RawSplit(*test), note)


def read_batch(contents: bytes, origin: Path | str) -> Batch:
    """Images [10000, 3, 32, 32] and labels of a batch: a label byte, then R, G and B planes."""
    expected = RECORDS * RECORD_BYTES
    if len(contents) != expected:
        raise damaged(origin, f"{len(contents):,} bytes", f"{expected:,} ({RECORDS:,} images)")
    table = np.frombuffer(contents, np.uint8).reshape(RECORDS, RECORD_BYTES)
    return table[:, 1:].reshape(RECORDS, 3, SIDE, SIDE), _checked_labels(table[:, 0], origin)


def read_mosaic(path: Path) -> NDArray[np.uint8]:
    """The images [10000, 3, 32, 32] of a mosaic of 100 x 100 tiles."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise Misuse(
            f"{path}: reading WebP needs Pillow.", "Install it: pip install pillow."
        ) from error
    try:
        with Image.open(path) as image:
            size, mode = image.size, image.mode
            pixels = np.asarray(image)
    except (UnidentifiedImageError, OSError, SyntaxError) as error:
        raise damaged(path, f"not a readable image ({error})", "a lossless WebP mosaic") from error
    side = MOSAIC * SIDE
    if size != (side, side) or mode != "RGB":
        raise damaged(path, f"a {mode} image of {size[0]}x{size[1]}", f"RGB, {side}x{side}")
    tiles = pixels.reshape(MOSAIC, SIDE, MOSAIC, SIDE, 3).transpose(0, 2, 4, 1, 3)
    return tiles.reshape(RECORDS, 3, SIDE, SIDE)


def _read_binary(files: LocatedFiles) -> tuple[Batch, dict[int, Batch]]:
    def batch(path: Path) -> Batch:
        return read_batch(path.read_bytes(), path)

    train = {number: batch(path) for number, path in _training_files(files).items()}
    return batch(files.paths["test"]), train


def _read_archive(files: LocatedFiles) -> tuple[Batch, dict[int, Batch]]:
    path = files.paths["archive"]
    names = [f"cifar-10-batches-bin/data_batch_{i}.bin" for i in range(1, BATCHES + 1)]
    test_name = "cifar-10-batches-bin/test_batch.bin"
    members = read_members(path, (*names, test_name), largest=RECORDS * RECORD_BYTES)
    missing = [name for name in (*names, test_name) if name not in members]
    if missing:
        found = f"the archive has no {', '.join(missing)}"
        raise damaged(path, found, "the five training batches and the test batch")
    batches = {name: read_batch(contents, f"{path}:{name}") for name, contents in members.items()}
    return batches[test_name], {i: batches[name] for i, name in enumerate(names, start=1)}


def _read_mosaics(files: LocatedFiles) -> tuple[Batch, dict[int, Batch]]:
    labels = _label_array(files.paths["train labels"], BATCHES * RECORDS)
    test = read_mosaic(files.paths["test"]), _label_array(files.paths["test labels"], RECORDS)
    return test, {
        number: (read_mosaic(path), labels[(number - 1) * RECORDS : number * RECORDS])
        for number, path in _training_files(files).items()
    }


def _training_files(files: LocatedFiles) -> dict[int, Path]:
    paths = {number: files.paths.get(f"batch {number}") for number in range(1, BATCHES + 1)}
    return {number: path for number, path in paths.items() if path is not None}


def _label_array(path: Path, count: int) -> NDArray[np.int64]:
    try:
        labels = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise damaged(path, f"not a readable .npy array ({error})", "uint8 labels") from error
    if not isinstance(labels, np.ndarray) or labels.shape != (count,) or labels.dtype != np.uint8:
        shape, dtype = getattr(labels, "shape", None), getattr(labels, "dtype", None)
        raise damaged(path, f"{dtype} of shape {shape}", f"uint8 of shape ({count},)")
    return _checked_labels(labels, path)


def _checked_labels(labels: NDArray[np.uint8], origin: Path | str) -> NDArray[np.int64]:
    if labels.max() > 9:
        raise damaged(origin, f"a label {labels.max()}", "labels from 0 to 9")
    return labels.astype(np.int64)
