"""The wheel has all that it needs, and runs where the sources are not."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
FILES = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "constraints.txt")
ONLY_IN_SDIST = (".c", ".h", ".proto")


def build(source, target, kind, **environment):
    """Build a distribution of a folder with setuptools, as pip does; return its path."""
    code = f"from setuptools import build_meta; build_meta.build_{kind}({str(target)!r})"
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run(
        [sys.executable, "-c", code],
        cwd=source,
        env=clean | environment,
        capture_output=True,
        check=True,
    )
    [built] = target.iterdir()
    return built


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A copy of the sources without anything that was built."""
    folder = tmp_path_factory.mktemp("source")
    unwanted = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
    shutil.copytree(ROOT / "src", folder / "src", ignore=unwanted)
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def sdist(source, tmp_path_factory):
    """The source distribution, unpacked."""
    archive = build(source, tmp_path_factory.mktemp("sdist"), "sdist")
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(archive) as opened:
        opened.extractall(folder)
    [unpacked] = folder.iterdir()
    return unpacked


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    return build(sdist, tmp_path_factory.mktemp("wheel"), "wheel")


def package_files(folder):
    paths = (folder / "src" / "tacit").rglob("*")
    return {path.relative_to(folder / "src").as_posix() for path in paths if path.is_file()}


def contents(wheel):
    """The files of a wheel, without its metadata and what is compiled."""
    names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if ".dist-info/" not in name and not name.endswith(".so")}


def test_contents(source, sdist, wheel):
    everything = package_files(source)
    assert package_files(sdist) == everything
    wanted = {name for name in everything if not name.endswith(ONLY_IN_SDIST)}
    assert contents(wheel) == wanted
    assert not [path for path in sdist.iterdir() if path.name in ("tests", "papers", "docs")]


def install(wheel, folder):
    """An environment with the wheel; what it depends on comes from the running one."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True)
    [site] = folder.glob("lib/python*/site-packages")
    # Paths in .pth files are added, but .pth files in these paths (of sources) are not read.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder


def run(command, folder):
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        list(map(str, command)), cwd=folder, env=clean, capture_output=True, text=True, check=False
    )


def test_the_demo_shows_that_masks_cost_no_accuracy(wheel, tmp_path):
    environment = install(wheel, tmp_path / "environment")
    folder = tmp_path / "empty"
    folder.mkdir()
    where = run(
        [environment / "bin" / "python", "-c", "import tacit; print(tacit.__file__)"], folder
    )
    assert Path(where.stdout.strip()).is_relative_to(environment)
    done = run([environment / "bin" / "tacit", "demo", "--json"], folder)
    assert done.returncode == 0, done.stderr
    assert [path.name for path in folder.iterdir()] == ["tacit-demo"]
    shown = json.loads(done.stdout)
    assert shown["report"] == "tacit-demo/report.html"
    assert "What a neighbour sees" in (folder / shown["report"]).read_text()
    labels = [row["label"] for row in shown["algorithms"]]
    assert labels == ["dsgt", "dp-dsgt", "lppa", "private-sgd"]
    dsgt, dp, lppa, private = shown["algorithms"]
    assert private["epsilon"] == 3
    assert dsgt["first_message_error"] == 0
    assert min(dp["first_message_error"], lppa["first_message_error"]) > 0.5
    accuracy = {row["label"]: row["accuracy"]["mean"] for row in shown["algorithms"]}
    assert abs(accuracy["lppa"] - accuracy["dsgt"]) <= 2
    assert accuracy["dsgt"] - accuracy["dp-dsgt"] > 3
    assert accuracy["lppa"] - accuracy["dp-dsgt"] > 3
    assert accuracy["dsgt"] > 80
    # A guarantee for the whole run, and still more accurate than noise without one.
    assert accuracy["private-sgd"] > accuracy["dp-dsgt"] + 3


def test_without_a_compiler_the_loops_are_left_out(source, tmp_path):
    """`CC` names a program that fails, as if no compiler were installed."""
    fresh = shutil.copytree(source, tmp_path / "source")
    made = build(fresh, tmp_path / "wheel", "wheel", CC="false")
    assert not [name for name in zipfile.ZipFile(made).namelist() if name.endswith(".so")]
    environment = install(made, tmp_path / "environment")
    code = """
import torch, tacit
from tacit.core import native
task = tacit.quadratic(torch.eye(2).repeat(3, 1, 1), torch.ones(3, 2))
graph = tacit.Topology.ring(3).mixing("metropolis")
run = tacit.run(task, tacit.LPPA(lr=0.1), graph, steps=3)
print(native.is_compiled(), tuple(run.theta.shape))
"""
    done = run([environment / "bin" / "python", "-c", code], tmp_path)
    assert done.stdout == "False (3, 2)\n", done.stderr
