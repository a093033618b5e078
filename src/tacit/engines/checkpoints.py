"""Checkpoints of rows that are spread over processes, in one file.

The file is the one that a single process would write, so a run can continue with any number of
ranks. Rank 0 writes and reads it, a block of rows at a time.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm
from tacit.engines.group import Hosted
from tacit.record import checkpoint as single
from tacit.record.checkpoint import Checkpoint

# Names of data types in the safetensors format.
DTYPES = {"F32": torch.float32, "F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16}
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def save(folder: Path, checkpoint: Checkpoint, hosted: Hosted, keep: int = 2) -> None:
    """Like `tacit.record.checkpoint.save`, from the rows of all processes."""
    if hosted.group.ranks == 1:
        single.save(folder, checkpoint, keep)
        return
    fields = checkpoint.tensors
    shapes = {name: (hosted.total_rows(len(rows)), rows.shape[1]) for name, rows in fields.items()}
    if hosted.group.rank != 0:
        for name, rows in fields.items():
            for _ in hosted.group.gather(rows, _counts(shapes[name][0], hosted)):
                raise AssertionError("rows arrived at a process that writes nothing")
        return
    files, file_name = single.files_in(folder), single.name_of(checkpoint.step)
    with files.writing(file_name) as part:
        metadata = files.metadata(single.facts_of(checkpoint))
        header: dict[str, Any] = {"__metadata__": metadata}
        end = 0
        for name, rows in fields.items():
            count, width = shapes[name]
            begin, end = end, end + count * width * rows.element_size()
            header[name] = {
                "dtype": DTYPE_NAMES[rows.dtype],
                "shape": (count, width),
                "data_offsets": (begin, end),
            }
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with part.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + end)
        for name, rows in fields.items():
            count, width = shapes[name]
            offset = 8 + len(text) + header[name]["data_offsets"][0]
            shape = (count, width * rows.element_size())
            mapped = np.memmap(part, np.uint8, "r+", offset, shape)
            for rank, piece, block in hosted.group.gather(rows, _counts(count, hosted)):
                indices = hosted.row_indices(count, rank)[piece]
                mapped[indices] = block.contiguous().view(torch.uint8).numpy()
            mapped.flush()
    files.remove_old(keep, but=file_name)


def load_latest(
    folder: Path, algorithm: Algorithm, fingerprint: str, device: torch.device | str, hosted: Hosted
) -> Checkpoint | None:
    """Like `tacit.record.checkpoint.load_latest`, with the rows of this process only.

    Args:
        folder: Folder of the checkpoints.
        algorithm: Tells the dataclass of the state.
        fingerprint: Of the run; checkpoints of other runs are ignored.
        device: Where the rows go.
        hosted: The clients of this process.
    """
    from safetensors import safe_open

    group = hosted.group
    if group.ranks == 1:
        return single.load_latest(folder, algorithm, fingerprint, device)

    def read_layout() -> dict[str, Any] | None:
        outline = single.load_latest(folder, algorithm, fingerprint, "meta")
        if outline is None:
            return None
        fields = outline.tensors
        layout = {name: (DTYPE_NAMES[rows.dtype], *rows.shape) for name, rows in fields.items()}
        return {"facts": {name: getattr(outline, name) for name in single.FACTS}, "layout": layout}

    outline = group.run_on_first(read_layout)
    if outline is None:
        return None
    state = {}
    path = folder / single.name_of(outline["facts"]["step"])
    opened: Any = safe_open(path, framework="pt") if group.rank == 0 else nullcontext()
    with opened as tensors:
        for name, (dtype, count, width) in outline["layout"].items():
            mapped = tensors.get_tensor(name) if group.rank == 0 else torch.empty(0)
            indices = [
                torch.as_tensor(hosted.row_indices(count, rank)) for rank in range(group.ranks)
            ]
            state[name] = torch.empty(
                len(indices[group.rank]), width, dtype=DTYPES[dtype], device=device
            )

            def read(
                rank: int, part: slice, mapped: Tensor = mapped, indices: Any = indices
            ) -> Tensor:
                return mapped[indices[rank][part]]

            group.scatter(read, state[name], list(map(len, indices)))
    local = state.pop(single.LOCAL, None)
    return Checkpoint(algorithm.state_class(**state), **outline["facts"], local=local)


def _counts(rows: int, hosted: Hosted) -> list[int]:
    """The number of rows that each rank has of a tensor with `rows` in total."""
    return [len(hosted.row_indices(rows, rank)) for rank in range(hosted.group.ranks)]
