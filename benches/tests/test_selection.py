"""Which benchmarks run, and the machine they run on."""

import pytest
import torch

from tacit.core.errors import Misuse
from tacit.core.provenance import processor_name
from tacit_benches import mix, peer, selection as bench
from tacit_benches.benchmark import BenchOptions
from tacit_benches.machine import Machine
from tacit_benches.workloads import WORKLOADS

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def test_defaults_of_a_device():
    on_cpu = bench.select([], BenchOptions((), CPU))
    assert tuple(on_cpu) == bench.NAMES
    assert on_cpu["sim"].workloads == ("W1", "W2", "W3", "W6s")
    on_gpu = bench.select([], BenchOptions((), GPU))
    assert on_gpu["sim"].workloads == tuple(WORKLOADS)
    assert "peer" not in on_gpu


def test_workloads_select_the_benchmarks_that_have_them():
    chosen = bench.select([], BenchOptions(("W4", "degree"), CPU))
    workloads = {name: options.workloads for name, options in chosen.items()}
    assert workloads == {"sim": ("W4",), "scaling": ("degree",)}


@pytest.mark.parametrize(
    ("names", "workloads", "device", "words"),
    [
        (["simm"], (), CPU, "Did you mean 'sim'"),
        (["noise"], ("philox-laplac",), CPU, "Did you mean 'philox-laplace'"),
        (["noise"], ("W1",), CPU, "There is no workload 'W1'"),
        (["codec"], (), GPU, "cannot run on cuda"),
        (["codec"], ("sign",), GPU, "cannot run on cuda"),
    ],
)
def test_impossible_selections(names, workloads, device, words):
    with pytest.raises(Misuse, match=words):
        bench.select(names, BenchOptions(workloads, device))


def test_benchmark_that_cannot_run_is_skipped_unless_named(monkeypatch):
    monkeypatch.setattr(mix, "available_memory", lambda: 10**9)
    options = BenchOptions(("ring",), CPU)
    skipped = []
    results = bench.measure([], options, lambda name, problem: skipped.append((name, str(problem))))
    assert list(results) == []
    ((name, reason),) = skipped
    assert name == "mix"
    assert "8.0 GB of memory, and 1.0 GB are free" in reason
    with pytest.raises(Misuse, match="--quick"):
        list(bench.measure(["mix"], options, lambda name, problem: None))


def test_missing_packages_of_peers(monkeypatch):
    monkeypatch.setattr(peer, "EXTRA", ("grpc_that_is_not_there.child",))
    with pytest.raises(Misuse, match=r"pip install 'tacit-learn\[peer\]'"):
        list(peer.measure(BenchOptions(("bytes",), CPU)))


def test_caution_about_a_busy_machine():
    facts = {
        "processor": "x", "cores": 4, "threads": 4, "wait_policy": None, "gpu": None,
        "system": "s", "python": "3", "torch_version": "2",
    }  # fmt: skip
    assert Machine(**facts, load=0.5).caution is None
    assert "load 3 on 4 cores" in Machine(**facts, load=3.0).caution
    assert Machine(**facts, load=None).caution is None
    assert Machine.current().as_dict()["gpu"] is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor\t: 0\nmodel name\t: Fast 9000\n", "Fast 9000"),
        ("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", " 0x41/0xd0c"),
    ],
)
def testprocessor_name(tmp_path, text, name):
    (tmp_path / "cpuinfo").write_text(text)
    assert processor_name(tmp_path / "cpuinfo").endswith(name)
    assert processor_name(tmp_path / "absent")
