"""Files of arrays, .npz and .safetensors: read them and check them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from tacit.core.errors import Misuse, NotReady, unknown_name
from tacit.data.own.files import TABLE_SUFFIXES

ARRAYS = ("x", "y", "x_test", "y_test")

Pair = tuple[Any, Any]  # inputs and classes


def read_arrays(path: Path, key: str = "--data") -> tuple[Pair, Pair | None]:
    """Read the arrays to train on and, if the file has them, those to test on.

    Errors begin with `key`, the option or setting that names the file.
    """
    readers: dict[str, Callable[[Path], dict[str, Any]]]
    readers = {".npz": _read_npz, ".safetensors": load_file}
    if not path.is_file():
        remedy = "Check the name, and that its disk is mounted."
        raise NotReady(f"{key}: there is no file or folder {path}.", remedy)
    if path.suffix not in readers:
        raise Misuse(
            f"{key}: {path} is neither a table nor a file of arrays.",
            f"Give a table ({', '.join(TABLE_SUFFIXES)}) with [data] label set, a .npz or "
            '.safetensors file with arrays x and y, or a "package.module:function".',
        )
    try:
        arrays = readers[path.suffix](path)
    except OSError as problem:
        kind = Misuse if isinstance(problem, PermissionError) else NotReady
        remedy = "Check its disk and its permissions."
        raise kind(f"{key}: {path} cannot be read: {problem}.", remedy) from None
    except Exception as problem:  # damaged files fail in many ways: zip, header, sizes, pickles
        raise Misuse(
            f"{key}: {path} cannot be read: {type(problem).__name__}: {problem}.",
            "Write plain arrays x and y (numbers, not objects) with numpy.savez or safetensors.",
        ) from None
    for name in arrays:
        if name not in ARRAYS:
            raise unknown_name(f"{key}: {path} holds an array {name!r}.", name, ARRAYS)
    tested = "x_test" in arrays or "y_test" in arrays
    for name in ARRAYS if tested else ("x", "y"):
        if name not in arrays:
            remedy = f"It has {', '.join(arrays)}: add it."
            raise Misuse(f"{key}: {path} holds no array {name!r}.", remedy)
    test = (arrays["x_test"], arrays["y_test"]) if tested else None
    return (arrays["x"], arrays["y"]), test


def _read_npz(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def check_samples(
    samples: Pair, agreed: tuple[tuple[int, ...], int], origin: str, suffix: str = ""
) -> tuple[Tensor, Tensor]:
    """Inputs [n, *shape] as finite float32, bytes scaled to 0…1, and classes [n] as int64.

    `agreed` is the shape of one input and the number of classes; without classes, labels are
    numbers to predict, float32. Errors name x and y with `origin` before and `suffix` after them.
    """
    (x, y), (shape, classes) = samples, agreed
    inputs, labels = f"{origin}: x{suffix}", f"{origin}: y{suffix}"
    for what, array in ((inputs, x), (labels, y)):
        if not isinstance(array, Tensor | np.ndarray):
            raise Misuse(f"{what} is a {type(array).__name__}.", "Give a tensor or a numpy array.")
    if tuple(x.shape[1:]) != shape:
        raise Misuse(
            f"{inputs} has shape {tuple(x.shape)}, the agreed inputs have "
            f"[n, {', '.join(map(str, shape))}].",
            "Reshape it, or agree on another data.shape.",
        )
    if tuple(y.shape) != (len(x),) or not len(x):
        problem = f"{labels} has shape {tuple(y.shape)} for {len(x)} inputs."
        what = "class number" if classes else "number"
        raise Misuse(problem, f"Give one {what} per input, shape [n], of at least one.")
    numbers, values = _to_tensor(inputs, x), _to_tensor(labels, y)
    if numbers.is_complex():
        raise Misuse(f"{inputs} holds {numbers.dtype} numbers.", "Give real numbers.")
    as_float = numbers.float()
    if numbers.dtype == torch.uint8:
        as_float /= 255  # like the pictures of the public datasets
    finite = torch.isfinite(as_float)
    if not bool(finite.all()):
        sample = int(finite.logical_not().flatten(1).any(1).nonzero()[0])
        what = "is NaN" if bool(torch.isnan(as_float[sample]).any()) else "is infinite (as float32)"
        problem = f"{inputs} {what} in sample {sample}."
        raise Misuse(problem, "Remove such samples, or fill in their values.")
    if not classes:
        numbers = values.float() if not values.is_complex() else torch.full((1,), torch.nan)
        if not bool(torch.isfinite(numbers).all()):
            remedy = "Give finite real numbers."
            raise Misuse(f"{labels} has values that are not finite real numbers.", remedy)
        return as_float, numbers
    if values.is_floating_point() or values.is_complex() or values.dtype == torch.bool:
        problem = f"{labels} holds {values.dtype} values."
        raise Misuse(problem, f"Give whole numbers from 0 to {classes - 1}: y.astype('int64').")
    values = values.to(torch.int64)
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= classes:
        raise Misuse(
            f"{labels} goes from {low} to {high}, there are {classes} classes.",
            f"Number them from 0 to {classes - 1}, in the order that all clients agreed on.",
        )
    return as_float, values


def _to_tensor(what: str, array: Tensor | np.ndarray[Any, Any]) -> Tensor:
    """The array as a dense tensor in main memory, without gradients."""
    if isinstance(array, Tensor):
        array = array.detach().cpu()
        return array if array.layout is torch.strided else array.to_dense()
    if array.dtype.kind not in "biufc":
        raise Misuse(f"{what} holds {array.dtype} values.", "Give numbers.")
    native = array.dtype.newbyteorder("=")
    # Torch has no wider types than these.
    if native.itemsize > (16 if native.kind == "c" else 8):
        native = np.dtype(np.complex128 if native.kind == "c" else np.float64)
    return torch.from_numpy(np.require(array, native, ["C", "W", "A"]))
