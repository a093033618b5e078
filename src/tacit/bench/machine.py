"""What a measurement was made on."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

BUSY = 0.25  # of the cores wanted by others: from here on, times are not to be trusted


@dataclass(frozen=True)
class Machine:
    """Processor, GPU, versions, and how busy it was before the measurement."""

    processor: str
    cores: int  # that this process may use
    threads: int  # of torch
    wait_policy: (
        str | None
    )  # OMP_WAIT_POLICY: whether threads that wait spin; the command line sets PASSIVE
    gpu: str | None
    system: str
    python: str
    torch_version: str
    load: float | None  # the average over the last minute

    @classmethod
    def here(cls, device: torch.device | str = "cpu") -> Machine:
        """This machine, now."""
        on_gpu = torch.device(device).type == "cuda"
        return cls(
            processor=_processor(Path("/proc/cpuinfo")),
            cores=cores(),
            threads=torch.get_num_threads(),
            wait_policy=os.environ.get("OMP_WAIT_POLICY"),
            gpu=torch.cuda.get_device_name(device) if on_gpu else None,
            system=f"{platform.system()} {platform.machine()}",
            python=platform.python_version(),
            torch_version=str(torch.__version__),
            load=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        )

    @property
    def caution(self) -> str | None:
        """Why the times are not to be trusted, if so."""
        if self.load is None or self.load < BUSY * self.cores:
            return None
        return (
            f"the machine was busy (load {self.load:g} on {self.cores} cores): "
            "ratios are better than times, but measure again when it is quiet"
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"caution": self.caution}


def free_memory() -> int | None:
    """Bytes that can still be taken, where the system tells."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    fields = (line.split() for line in lines)
    return next((1024 * int(words[1]) for words in fields if words[0] == "MemAvailable:"), None)


def cores() -> int:
    """As many as this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor(told: Path) -> str:
    """The processor's name, or what it tells instead of one; Python itself knows none on Linux."""
    try:
        lines = told.read_text().splitlines()
    except OSError:
        lines = []
    facts = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)
    }
    if name := facts.get("model name"):
        return name
    if "CPU part" in facts:
        return f"{platform.machine()} {facts.get('CPU implementer', '?')}/{facts['CPU part']}"
    return platform.processor() or platform.machine()
