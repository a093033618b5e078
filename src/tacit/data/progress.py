"""How far a download has come, on standard error."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar while the block runs; call what it yields with each number of bytes that arrived."""
    try:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            Progress,
            TextColumn,
            TransferSpeedColumn,
        )
    except ImportError:
        size = f" ({total / 1e6:.1f} MB)" if total else ""
        print(f"downloading {title}{size} ...", file=sys.stderr, flush=True)
        yield lambda arrived: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total)
        yield lambda arrived: bar.advance(task, arrived)
