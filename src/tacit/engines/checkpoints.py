"""Checkpoints of rows that are spread over processes: one file, as one process that hosts all clients writes it.

So a run can go on with any number of ranks. The first process writes and reads the file, some rows at a time.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.algorithms.algorithm import Algorithm, state_type, tensors_of
from tacit.engines.group import Hosted
from tacit.record import checkpoint as whole
from tacit.record.checkpoint import Checkpoint

# How the safetensors format calls the kinds of numbers that states are made of.
NAMES = {torch.float32: "F32", torch.float64: "F64", torch.float16: "F16", torch.bfloat16: "BF16"}
KINDS = {name: kind for kind, name in NAMES.items()}


def save(folder: Path, checkpoint: Checkpoint, hosted: Hosted, keep: int = 2) -> None:
    """Write one checkpoint of all clients from each process's rows; see tacit.record.checkpoint.save."""
    if hosted.group.ranks == 1:
        whole.save(folder, checkpoint, keep)
        return
    fields = tensors_of(checkpoint.state)
    shapes = {name: (hosted.whole(len(rows)), rows.shape[1]) for name, rows in fields.items()}
    if hosted.group.rank != 0:
        for name in fields:
            _give(fields[name], shapes[name][0], hosted)
        return
    with whole.writing(folder, checkpoint.step, keep) as part:
        header: dict[str, Any] = {"__metadata__": whole.metadata(checkpoint)}
        end = 0
        for name, rows in fields.items():
            begin, end = end, end + shapes[name][0] * shapes[name][1] * rows.element_size()
            header[name] = {
                "dtype": NAMES[rows.dtype], "shape": shapes[name], "data_offsets": (begin, end)
            }  # fmt: skip
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with part.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            file.truncate(8 + len(text) + end)
        for name, rows in fields.items():
            count, width = shapes[name]
            offset = 8 + len(text) + header[name]["data_offsets"][0]
            bytes_of_a_row = width * rows.element_size()
            room = np.memmap(part, np.uint8, "r+", offset, (count, bytes_of_a_row))
            for rank, piece, slab in hosted.group.collect(rows, _counts(count, hosted)):
                places = hosted.places(count, rank)[piece]
                room[places] = slab.contiguous().view(torch.uint8).numpy()
            room.flush()


def load_latest(
    folder: Path, algorithm: Algorithm, fingerprint: str, device: torch.device | str, hosted: Hosted
) -> Checkpoint | None:
    """The newest readable checkpoint, of each process its rows; see tacit.record.checkpoint.load_latest."""
    group = hosted.group
    if group.ranks == 1:
        return whole.load_latest(folder, algorithm, fingerprint, device)

    def look() -> dict[str, Any] | None:
        outline = whole.load_latest(folder, algorithm, fingerprint, "meta")
        if outline is None:
            return None
        fields = tensors_of(outline.state)
        layout = {name: (NAMES[rows.dtype], *rows.shape) for name, rows in fields.items()}
        return {"facts": {name: getattr(outline, name) for name in whole.FACTS}, "layout": layout}

    found = group.tell(look)
    if found is None:
        return None
    state = {}
    path = whole.path_of(folder, found["facts"]["step"])
    opened: AbstractContextManager[Any] = _opened(path) if group.rank == 0 else nullcontext()
    with opened as tensors:
        for name, (kind, count, width) in found["layout"].items():
            mapped = tensors.get_tensor(name) if group.rank == 0 else torch.empty(0)
            places = [torch.as_tensor(hosted.places(count, rank)) for rank in range(group.ranks)]
            state[name] = torch.empty(
                len(places[group.rank]), width, dtype=KINDS[kind], device=device
            )

            def take(
                rank: int, part: slice, mapped: Tensor = mapped, places: Any = places
            ) -> Tensor:
                return mapped[places[rank][part]]

            group.deal(take, state[name], list(map(len, places)))
    return Checkpoint(state_type(type(algorithm))(**state), **found["facts"])


def _opened(path: Path) -> AbstractContextManager[Any]:
    from safetensors import safe_open

    opened: AbstractContextManager[Any] = safe_open(path, framework="pt")
    return opened


def _give(rows: Tensor, count: int, hosted: Hosted) -> None:
    """Send our rows to the first process."""
    for _ in hosted.group.collect(rows, _counts(count, hosted)):
        raise AssertionError("rows arrived at a process that writes nothing")


def _counts(rows: int, hosted: Hosted) -> list[int]:
    """How many of all `rows` each rank has."""
    return [len(hosted.places(rows, rank)) for rank in range(hosted.group.ranks)]
