"""The machine that a measurement was made on."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from tacit.core.provenance import available_cores, processor_name

# Load per core above which other processes disturb the times.
BUSY = 0.25


@dataclass(frozen=True)
class Machine:
    """Processor, GPU, versions, and the load of the last minute before the measurement.

    `cores` are those this process may use; `wait_policy` is OMP_WAIT_POLICY.
    """

    processor: str
    cores: int
    threads: int
    wait_policy: str | None
    gpu: str | None
    system: str
    python: str
    torch_version: str
    load: float | None

    @classmethod
    def current(cls, device: torch.device | str = "cpu") -> Machine:
        on_gpu = torch.device(device).type == "cuda"
        return cls(
            processor=processor_name(Path("/proc/cpuinfo")),
            cores=available_cores(),
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
        """Why the times cannot be trusted, if so."""
        if self.load is None or self.load < BUSY * self.cores:
            return None
        return (
            f"the machine was busy (load {self.load:g} on {self.cores} cores); "
            "ratios suffer less than times, but measure again when it is idle"
        )

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"caution": self.caution}


def available_memory() -> int | None:
    """Free memory in bytes; None if the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    fields = (line.split() for line in lines)
    return next((1024 * int(words[1]) for words in fields if words[0] == "MemAvailable:"), None)
