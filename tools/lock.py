"""Write deploy/requirements.txt: what the container image installs, pinned and with hashes.

Run it with an index that has PyTorch's CPU builds (`PIP_EXTRA_INDEX_URL`), then review the diff:

    python tools/lock.py
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "deploy" / "requirements.txt"
# As in deploy/Dockerfile.
PYTHON = "3.11"
ARCHITECTURES = ("aarch64", "x86_64")
# Wheels that Debian 12 and newer can load.
PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_26", "manylinux_2_17")
HEADER = f"""\
# What deploy/Dockerfile installs, for Python {PYTHON} on {" and ".join(ARCHITECTURES)}.
# Written by tools/lock.py: do not edit.
"""


def requirements() -> list[str]:
    """What a node needs, with the CPU build of the torch that we test with."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["peer"]]
    pins = (ROOT / "constraints.txt").read_text("utf-8")
    [torch] = re.findall(r"^torch==\S+", pins, flags=re.MULTILINE)
    return [*wanted, f"{torch}+cpu"]


def resolve(architecture: str) -> dict[str, tuple[str, str]]:
    """Name → version and SHA-256 of the wheel that pip chooses for an architecture."""
    platforms = [part for each in PLATFORMS for part in ("--platform", f"{each}_{architecture}")]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--only-binary=:all:", "--python-version", PYTHON]
        command += ["--implementation", "cp", *platforms, "--target", folder]
        command += ["--constraint", str(ROOT / "constraints.txt"), "--report", str(report)]
        subprocess.run([*command, *requirements()], check=True)
        installed = json.loads(report.read_text("utf-8"))["install"]
    return {
        re.sub(r"[-_.]+", "-", each["metadata"]["name"]).lower(): (
            each["metadata"]["version"],
            each["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for each in installed
    }


def main() -> None:
    hashes: dict[str, set[str]] = defaultdict(set)
    versions: dict[str, set[str]] = defaultdict(set)
    for architecture in ARCHITECTURES:
        for name, (version, digest) in resolve(architecture).items():
            versions[name].add(version)
            hashes[name].add(digest)
    if different := [name for name, found in versions.items() if len(found) > 1]:
        sys.exit(f"Architectures need different versions of {', '.join(different)}.")
    lines = [
        f"{name}=={min(versions[name])}"
        + "".join(f" \\\n    --hash=sha256:{digest}" for digest in sorted(hashes[name]))
        for name in sorted(hashes)
    ]
    LOCK.write_text(HEADER + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"{LOCK.relative_to(ROOT)}: {len(lines)} packages")


if __name__ == "__main__":
    main()
