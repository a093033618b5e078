"""A real second package: what it registers is everywhere, and a broken one harms nothing."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
PLUGIN = ROOT / "examples" / "plugin"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The plugin, built and installed by pip into a folder of its own."""
    folder = tmp_path_factory.mktemp("plugin")
    source = folder / "source"
    copied = ["cp", "-r", str(PLUGIN), str(source)]  # a build leaves files beside its sources
    subprocess.run(copied, check=True)
    target = folder / "site"
    install = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(target)]
    subprocess.run([sys.executable, "-m", "pip", *install, str(source)], check=True)
    return target


@pytest.fixture
def tacit_with(tmp_path, installed):
    """Run `tacit` as a process that has the plugin."""

    def running(*arguments, extra=()):
        path = os.pathsep.join(map(str, [*extra, installed]))
        return subprocess.run(
            [sys.executable, "-m", "tacit", *map(str, arguments)],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": path, "COLUMNS": "160"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    return running


def test_its_dataset_and_command_are_listed(tacit_with):
    datasets = tacit_with("data", "list")
    assert "two-moons" in datasets.stdout
    assert "spectrum" in tacit_with("--help").stdout
    mixed = tacit_with("spectrum", "complete", "4")
    assert mixed.stdout == "complete of 4: spectral gap 1.0000\n"
    refused = tacit_with("spectrum", "torus", "4")
    assert refused.returncode == 2
    assert "Choose one of ring, complete, star." in refused.stderr


def test_it_runs_is_compared_and_audited(tacit_with, tmp_path):
    config = PLUGIN / "moons.toml"
    compared = tacit_with(
        "grid", config, "--over", "algorithm=dsgt,nids", "--out", "both", "--json"
    )
    assert compared.returncode == 0, compared.stderr
    found = {one["label"]: one for one in json.loads(compared.stdout)["settings"]}
    assert found["nids"]["mean"] > 85
    audit = tacit_with(
        "audit",
        config,
        "--no-attacks",
        "-n",
        "3",
        "--adversary",
        "curious(1,4)",
        "--out",
        "audit",
        "--json",
    )
    assert audit.returncode == 0, audit.stderr
    found = json.loads(audit.stdout)
    assert found["algorithm"] == "nids"
    # Both neighbours of a client on the ring together compute its gradients.
    assert "exact" in found["adversaries"][0]["proved"][0]["gradient"]["status"]


def test_its_codec_is_used_by_name(tacit_with):
    settings = [
        "algorithm.name=defl-vp", "algorithm.lr=0.01", "algorithm.randomized_response=false",
        'algorithm.codec={codec="bfloat16"}', "algorithm.variance_reduction=false", "run.rounds=2",
    ]  # fmt: skip
    options = [word for setting in settings for word in ("--set", setting)]
    done = tacit_with("run", PLUGIN / "moons.toml", *options, "--out", "coded", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["algorithm"] == "defl-vp"


def test_its_codec_is_unbiased_and_half_as_long(installed, monkeypatch):
    monkeypatch.syspath_prepend(installed)
    from tacit_example_plugin.bfloat16 import BFloat16

    from tacit.core.randomness import Philox

    codec, rows = BFloat16(), torch.tensor([[1.0 + 2.0**-9, -3.14159, 0.0, 1e-3]])
    client, source = torch.zeros(1, dtype=torch.int64), Philox(0, 4)
    total = torch.zeros_like(rows)
    for tick in range(4000):
        words = partial(source.words, tick=tick, source=client)
        total += codec.received(rows, lambda purpose, count, w=words: w(purpose, width=count))
    torch.testing.assert_close(total / 4000, rows, rtol=4e-4, atol=1e-9)
    assert codec.size(100, torch.float32) == 200


def test_a_broken_plugin_is_named_and_the_algorithms_of_others_are_listed(tacit_with, tmp_path):
    broken = tmp_path / "broken"
    info = broken / "nonsense-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nonsense\nVersion: 1.0\n")
    groups = ("algorithms", "commands", "datasets", "models", "codecs")
    entries = [f"[tacit.{group}]\nbad = missing.module:thing\n" for group in groups]
    (info / "entry_points.txt").write_text("\n".join(entries))
    assert tacit_with("--version", extra=[broken]).returncode == 0
    listed = tacit_with("algorithms", "--json", extra=[broken])
    assert listed.returncode == 0, listed.stderr
    assert "Left out: The algorithm 'bad' is registered by nonsense" in listed.stderr
    assert "nids" in {row["name"] for row in json.loads(listed.stdout)}
    used = tacit_with("bad", extra=[broken])
    assert used.returncode == 2
    assert "nonsense" in used.stderr
    assert "missing" in used.stderr
