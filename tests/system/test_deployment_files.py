"""The files in deploy/: what they name exists, and the versions agree."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def normalised(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def locked():
    """Name → version and hashes of what the image installs."""
    text = (DEPLOY / "requirements.txt").read_text("utf-8").replace("\\\n", "")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    found = {}
    for line in lines:
        match = re.fullmatch(r"([a-z0-9-]+)==(\S+)((?:\s+--hash=sha256:[0-9a-f]{64})+)", line)
        assert match, line
        found[match[1]] = (match[2], match[3].split())
    return found


def test_everything_that_a_node_needs_is_pinned_by_hashes():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["peer"]]
    names = {normalised(re.match(r"[A-Za-z0-9._-]+", each)[0]) for each in needed}
    # setuptools builds our own package in the image.
    assert names | {"setuptools"} <= locked().keys()


def test_torch_is_the_version_that_we_test_with():
    [pin] = re.findall(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text("utf-8"), re.M)
    version, hashes = locked()["torch"]
    assert version == f"{pin}+cpu"
    assert len(hashes) == 2  # one per architecture


def test_what_the_image_copies_exists_and_is_not_ignored():
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (DEPLOY / "Dockerfile").read_text(), re.M)
    sources = " ".join(copied).split()
    ignored = (DEPLOY / "Dockerfile.dockerignore").read_text("utf-8").splitlines()
    assert "src" in sources
    for source in sources:
        assert (ROOT / source).exists()
        assert f"!{source}" in ignored


def test_the_image_drops_privileges():
    last_stage = (DEPLOY / "Dockerfile").read_text("utf-8").split("\nFROM ")[-1]
    [user] = re.findall(r"^USER (\d+):\d+$", last_stage, re.M)
    assert int(user) > 0
    compose = (DEPLOY / "compose.yaml").read_text("utf-8")
    for line in ("read_only: true", "cap_drop: [ALL]", '["no-new-privileges:true"]'):
        assert line in compose


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
@pytest.mark.parametrize("kind", ["node", "relay"])
def test_the_unit_is_valid(tmp_path, kind):
    text = (DEPLOY / f"tacit-{kind}@.service").read_text("utf-8")
    # The program must exist.
    unit = tmp_path / f"tacit-{kind}@a.service"
    unit.write_text(text.replace("/opt/tacit/bin/tacit", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
