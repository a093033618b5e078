"""Where a result comes from: when it was made, by which version and command, on which machine."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path

from tacit.core.shown_paths import without_folders
from tacit.core.version import __version__


def current_provenance() -> dict[str, str]:
    """Date, version, command and machine of this process."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": f"tacit {__version__}, Python {platform.python_version()}",
        "command": _command(sys.argv),
        "machine": f"{processor_name(Path('/proc/cpuinfo'))}, {available_cores()} cores, "
        f"{platform.system()} {platform.machine()}",
    }


def _command(words: list[str]) -> str:
    """The command line; the program by its name alone, and files without their folders."""
    program = Path(words[0]).name if words and words[0] else "python"
    program = "tacit" if program == "__main__.py" else program
    return shlex.join([program, *map(without_folders, words[1:])])


def available_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor_name(cpuinfo: Path) -> str:
    """The name of the processor, or its part number; on Linux `platform` does not know it."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        lines = []
    pairs = (line.partition(":") for line in lines)
    facts = {key.strip(): value.strip() for key, _, value in pairs}
    if name := facts.get("model name"):
        return name
    if "CPU part" in facts:
        return f"{platform.machine()} {facts.get('CPU implementer', '?')}/{facts['CPU part']}"
    return platform.processor() or platform.machine()
