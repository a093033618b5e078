"""Which benches run, on what, and what happens to those that cannot."""

import pytest
import torch

from tacit import bench
from tacit.bench import mix, peer
from tacit.bench.machine import Machine, _processor
from tacit.bench.result import Asked
from tacit.core.errors import Misuse

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def test_without_names_all_that_fit_the_device():
    here = bench.choose([], Asked((), CPU))
    assert tuple(here) == bench.NAMES
    assert here["sim"].workloads == ("W1", "W2", "W3")
    there = bench.choose([], Asked((), GPU))
    assert there["sim"].workloads == ("W1", "W2", "W3", "W4", "W5")
    assert "peer" not in there


def test_workloads_choose_the_benches_that_have_them():
    chosen = bench.choose([], Asked(("W4", "degree"), CPU))
    assert {name: asked.workloads for name, asked in chosen.items()} == {
        "sim": ("W4",),
        "scaling": ("degree",),
    }


@pytest.mark.parametrize(
    ("names", "workloads", "device", "words"),
    [
        (["simm"], (), CPU, "Did you mean 'sim'"),
        (["noise"], ("philox-laplac",), CPU, "Did you mean 'philox-laplace'"),
        (["noise"], ("W1",), CPU, "There is no workload 'W1'"),
        (["codec"], (), GPU, "nothing of it runs on cuda"),
        (["codec"], ("sign",), GPU, "nothing of it runs on cuda"),
    ],
)
def test_what_is_not_there_is_refused(names, workloads, device, words):
    with pytest.raises(Misuse, match=words):
        bench.choose(names, Asked(workloads, device))


def test_a_bench_that_cannot_run_is_skipped_unless_it_was_named(monkeypatch):
    monkeypatch.setattr(mix, "free_memory", lambda: 10**9)
    asked = Asked(("ring",), CPU)
    skipped = []
    assert (
        list(bench.measure([], asked, lambda name, problem: skipped.append((name, str(problem)))))
        == []
    )
    ((name, why),) = skipped
    assert name == "mix"
    assert "8.0 GB of memory, and 1.0 GB are free" in why
    with pytest.raises(Misuse, match="--quick"):
        list(bench.measure(["mix"], asked, lambda name, problem: None))


def test_peers_are_refused_without_their_packages(monkeypatch):
    monkeypatch.setattr(peer, "EXTRA", ("grpc_that_is_not_there.child",))
    with pytest.raises(Misuse, match=r"pip install 'tacit\[peer\]'"):
        list(peer.measure(Asked(("bytes",), CPU)))


def test_a_busy_machine_is_told():
    facts = {
        "processor": "x", "cores": 4, "threads": 4, "wait_policy": None, "gpu": None,
        "system": "s", "python": "3", "torch_version": "2",
    }  # fmt: skip
    assert Machine(**facts, load=0.5).caution is None
    assert "load 3 on 4 cores" in Machine(**facts, load=3.0).caution
    assert Machine(**facts, load=None).caution is None
    assert Machine.here().as_dict()["gpu"] is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor\t: 0\nmodel name\t: Fast 9000\n", "Fast 9000"),
        ("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", " 0x41/0xd0c"),
    ],
)
def test_the_processor_is_named(tmp_path, text, name):
    (tmp_path / "cpuinfo").write_text(text)
    assert _processor(tmp_path / "cpuinfo").endswith(name)
    assert _processor(tmp_path / "absent")
