"""Images: IDX files of MNIST and Fashion-MNIST, and the batches of CIFAR-10."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tacit.core import storage
from tacit.core.errors import Misuse
from tacit.data.dataset import LocatedFiles
from tacit.data.download import progress
from tacit.data.formats.raw import RawDataset, RawSplit, damaged, read_bytes, read_members

# IDX: this number plus the count of dimensions, the shape (big endian), then unsigned bytes.
IDX_BYTES = 0x0800
IDX_SIDE = 28
TRAINING_IMAGES = 60_000
# CIFAR-10: binary batches, as files or in their archive, or lossless WebP mosaics.
BATCHES = 5
RECORDS = 10_000
CIFAR_SIDE = 32
RECORD_BYTES = 1 + 3 * CIFAR_SIDE * CIFAR_SIDE
# Tiles per side of a mosaic: image i is the tile at row i // 100, column i % 100.
MOSAIC = 100

# The mean and the deviation of each channel, of pixels in [0, 1].
Channels = tuple[tuple[float, float], ...]
Batch = tuple[NDArray[np.uint8], NDArray[np.int64]]


def read_idx(files: LocatedFiles) -> RawDataset:
    """Read the four files of MNIST or Fashion-MNIST."""
    paths = files.paths
    return RawDataset(
        train=_idx_split(paths["train images"], paths["train labels"]),
        test=_idx_split(paths["test images"], paths["test labels"]),
    )


def standardise(images: NDArray[np.uint8], channels: Channels) -> NDArray[np.float32]:
    """Images [n, C, H, W] with pixels in [0, 1], less the mean and over the deviation."""
    mean, deviation = np.array(channels, np.float32).T[:, :, None, None]
    return np.asarray((images / np.float32(255) - mean) / deviation, dtype=np.float32)


def encode_idx(array: NDArray[np.uint8]) -> bytes:
    """The IDX bytes of images [n, rows, columns] or labels [n]."""
    header = np.array([IDX_BYTES + array.ndim, *array.shape], dtype=">u4")
    return header.tobytes() + array.tobytes()


def write_idx(openml_name: str, folder: Path) -> list[Path]:
    """Write MNIST or Fashion-MNIST from OpenML (version 1, the original order) as IDX files."""
    from sklearn.datasets import fetch_openml

    # liac-arff is slow, but the other parser needs pandas.
    with progress(f"{openml_name} by scikit-learn", None):
        bunch = fetch_openml(
            openml_name, version=1, as_frame=False, parser="liac-arff", cache=False
        )
    images = np.asarray(bunch.data).astype(np.uint8).reshape(-1, IDX_SIDE, IDX_SIDE)
    labels = np.asarray(bunch.target).astype(np.uint8)
    arrays: dict[str, NDArray[np.uint8]] = {
        "train-images-idx3-ubyte.gz": images[:TRAINING_IMAGES],
        "train-labels-idx1-ubyte.gz": labels[:TRAINING_IMAGES],
        "t10k-images-idx3-ubyte.gz": images[TRAINING_IMAGES:],
        "t10k-labels-idx1-ubyte.gz": labels[TRAINING_IMAGES:],
    }
    for name, array in arrays.items():
        storage.write_bytes(folder / name, gzip.compress(encode_idx(array), mtime=0))
    return [folder / name for name in arrays]


def _idx_split(images_path: Path, labels_path: Path) -> RawSplit:
    images = _idx_array(images_path, 3, "images")
    _, rows, columns = images.shape
    if (rows, columns) != (IDX_SIDE, IDX_SIDE):
        found = f"images of {rows}x{columns} pixels"
        raise damaged(images_path, found, f"{IDX_SIDE}x{IDX_SIDE}")
    labels = _checked_labels(_idx_array(labels_path, 1, "labels"), labels_path)
    if len(images) != len(labels):
        expected = f"{len(images):,}, one per image of {images_path.name}"
        raise damaged(labels_path, f"{len(labels):,} labels", expected)
    return RawSplit(images[:, None], labels)


def _idx_array(path: Path, dimensions: int, meaning: str) -> NDArray[np.uint8]:
    contents = read_bytes(path)
    start = 4 * (1 + dimensions)
    if len(contents) < start:
        raise damaged(path, f"only {len(contents)} bytes", f"an IDX header of {start} bytes")
    magic, *shape = np.frombuffer(contents, ">u4", 1 + dimensions).tolist()
    if magic != IDX_BYTES + dimensions:
        raise damaged(path, f"IDX magic number {magic}", f"{IDX_BYTES + dimensions}")
    length, expected = len(contents) - start, math.prod(shape)
    if length != expected:
        found = f"{length:,} bytes after the header"
        raise damaged(path, found, f"{expected:,} ({shape[0]:,} {meaning})")
    return np.frombuffer(contents, np.uint8, offset=start).reshape(shape)


def read_cifar(files: LocatedFiles) -> RawDataset:
    """Read the test batch and the training batches that exist."""
    readers = {"binary": _read_binary, "archive": _read_archive, "mosaic": _read_mosaics}
    test, train = readers[files.layout](files)
    note = ""
    if len(train) < BATCHES:
        note = (
            f"CIFAR-10 with training {'batch' if len(train) == 1 else 'batches'} "
            f"{', '.join(map(str, train))} of {BATCHES} only "
            f"({len(train) * RECORDS:,} of 50,000 images)"
        )
    images, labels = zip(*train.values(), strict=True)
    split = RawSplit(np.concatenate(images), np.concatenate(labels))
    return RawDataset(split, RawSplit(*test), note)


def _cifar_batch(contents: bytes, origin: Path | str) -> Batch:
    """Images [10000, 3, 32, 32] and labels of a batch: a label byte, then R, G and B planes."""
    expected = RECORDS * RECORD_BYTES
    if len(contents) != expected:
        raise damaged(origin, f"{len(contents):,} bytes", f"{expected:,} ({RECORDS:,} images)")
    table = np.frombuffer(contents, np.uint8).reshape(RECORDS, RECORD_BYTES)
    images = table[:, 1:].reshape(RECORDS, 3, CIFAR_SIDE, CIFAR_SIDE)
    return images, _checked_labels(table[:, 0], origin)


def _mosaic(path: Path) -> NDArray[np.uint8]:
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
    side = MOSAIC * CIFAR_SIDE
    if size != (side, side) or mode != "RGB":
        raise damaged(path, f"a {mode} image of {size[0]}x{size[1]}", f"RGB, {side}x{side}")
    tiles = pixels.reshape(MOSAIC, CIFAR_SIDE, MOSAIC, CIFAR_SIDE, 3).transpose(0, 2, 4, 1, 3)
    return tiles.reshape(RECORDS, 3, CIFAR_SIDE, CIFAR_SIDE)


def _read_binary(files: LocatedFiles) -> tuple[Batch, dict[int, Batch]]:
    def batch(path: Path) -> Batch:
        return _cifar_batch(path.read_bytes(), path)

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
    batches = {name: _cifar_batch(contents, f"{path}:{name}") for name, contents in members.items()}
    return batches[test_name], {i: batches[name] for i, name in enumerate(names, start=1)}


def _read_mosaics(files: LocatedFiles) -> tuple[Batch, dict[int, Batch]]:
    labels = _label_array(files.paths["train labels"], BATCHES * RECORDS)
    test = _mosaic(files.paths["test"]), _label_array(files.paths["test labels"], RECORDS)
    return test, {
        number: (_mosaic(path), labels[(number - 1) * RECORDS : number * RECORDS])
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
    if labels.max(initial=0) > 9:
        raise damaged(origin, f"a label {labels.max()}", "labels from 0 to 9")
    return labels.astype(np.int64)
