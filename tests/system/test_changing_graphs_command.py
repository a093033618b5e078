"""Runs with graphs that change, absent clients, late messages, robust mixing and keystreams."""

import json

import pytest

# Overrides, and what the run says about them.
RUNS = {
    "matchings": (["graph.kind=matchings", "graph.clients=5"], "random matchings of complete(5)"),
    "matchings of a graph": (
        ["graph.kind=matchings", "graph.of={kind = 'torus', rows = 2, columns = 2}"],
        "random matchings of torus(2, 2)",
    ),
    "phases": (
        [
            "graph.kind=phases",
            "graph.phases=[{kind = 'ring', clients = 4, iterations = 3}, "
            "{kind = 'star', clients = 4, iterations = 2}]",
        ],
        "ring(4), metropolis weights for 3 iterations",
    ),
    "directed": (
        [
            "algorithm.name=push-sum",
            "graph.kind=phases",
            "graph.phases=["
            "{kind = 'directed-ring', clients = 4, iterations = 3, mixing = 'out-degree'}, "
            "{kind = 'exponential', clients = 4, iterations = 1, mixing = 'out-degree'}]",
        ],
        "directed_ring(4), out-degree weights for 3 iterations",
    ),
    "share": (["graph.clients=5", "participation.share=0.6"], "0.6 of the clients take part"),
    "absences": (
        [
            "algorithm.name=dsgt",
            "graph.clients=5",
            "participation.absences=[{client = 1, first = 2, last = 6}, {client = 3, first = 5}]",
        ],
        "clients 1, 3 absent for some iterations",
    ),
    "delay": (
        ["graph.clients=5", "participation.delay=3", "participation.stragglers=[0, 2]"],
        "messages of clients 0, 2 arrive up to 3 iterations late",
    ),
    "robust mixing": (["graph.kind=complete", "graph.clients=5", "robust.liars=1"], ""),
    "keystreams": (
        [
            "graph.clients=5",
            "algorithm.name=lppa",
            "algorithm.noise={law='laplace', scale=0.01}",
            "run.prg=chacha20",
        ],
        "",
    ),
}


@pytest.fixture
def dsg(tmp_path, config):
    """A configuration without options that only some algorithms have."""
    text = (tmp_path / config).read_text()
    lines = [line for line in text.splitlines() if not line.startswith(("noise", "clients"))]
    text = "\n".join(lines).replace('"lppa"', '"dsg"')
    (tmp_path / config).write_text(text + "\nkeep_checkpoints = 10\n")
    return config


def overrides(kind):
    return [word for override in RUNS[kind][0] for word in ("--set", override)]


@pytest.mark.parametrize("kind", RUNS)
def test_runs_resume_to_the_same_bits_and_say_what_changes(
    kind, dsg, tacit_here, history, newest, tmp_path
):
    done = tacit_here("run", dsg, *overrides(kind), "--set", "run.rounds=4", "--out", "whole")
    assert done.code == 0, done.err
    says = RUNS[kind][1]
    summary = json.loads((tmp_path / "whole" / "summary.json").read_text())
    assert not says or any(says in note for note in summary["notes"])
    assert says in " ".join((done.out + done.err).split())
    assert (tmp_path / "whole" / "report.html").exists()

    whole, folder = (history("whole"), newest("whole")), tmp_path / "whole" / "checkpoints"
    first, *later = sorted(folder.glob("*.safetensors"))
    assert len(later) == 3
    for checkpoint in later:
        checkpoint.unlink()
    again = tacit_here("run", "whole/config.toml", "--out", "whole", "--resume")
    assert again.code == 0, again.err
    assert (history("whole"), newest("whole")) == whole
    assert first.exists()


def test_a_resumed_run_records_the_same_transcript(dsg, tacit_here, tmp_path):
    words = [*overrides("phases"), "--set", "run.rounds=4", "--set", "transcript.last=12"]
    assert tacit_here("run", dsg, *words, "--out", "whole").code == 0
    folder = tmp_path / "whole"
    before = json.loads((folder / "transcript.json").read_text())
    assert [tick for tick, _ in before["changes"]][:3] == [0, 4, 6]
    for checkpoint in sorted((folder / "checkpoints").glob("*.safetensors"))[1:]:
        checkpoint.unlink()
    assert tacit_here("run", "whole/config.toml", "--out", "whole", "--resume").code == 0
    assert json.loads((folder / "transcript.json").read_text()) == before


def test_an_audit_follows_the_schedule(dsg, tacit_here, tmp_path):
    words = [*overrides("matchings"), "--victim", "0", "--adversary", "curious(1)"]
    done = tacit_here("audit", dsg, *words, "--iterations", "4", "--no-attacks", "--out", "audit")
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert any("random matchings" in remark for remark in found["remarks"])
    # Not everybody meets the adversary in four iterations.
    assert "nothing" in {level for row in found["exposure"]["learns"] for level in row}


def test_what_theory_does_not_allow_is_refused_before_anything_is_written(
    dsg, tacit_here, tmp_path
):
    words = [*overrides("matchings"), "--set", "algorithm.name=edsg", "--out", "refused"]
    done = tacit_here("run", dsg, *words)
    assert done.code == 2
    assert "edsg does not allow a graph that changes" in " ".join(done.err.split())
    assert not (tmp_path / "refused").exists()


def test_algorithms_list_what_they_allow(tacit_here):
    rows = {row["name"]: row for row in json.loads(tacit_here("algorithms", "--json").out)}
    assert rows["d-psgd"]["allows"] == ["changing graph", "absent clients", "late messages"]
    assert rows["dsgt"]["allows"] == ["changing graph", "absent clients"]
    assert rows["pdmm"]["allows"] == []


@pytest.mark.parametrize("key", ["graph.kind=matchings", "participation.share=0.6"])
def test_a_federation_has_a_fixed_graph(key, dsg, tacit_here):
    nodes = ",".join(f"{name}=127.0.0.1:{port}" for port, name in enumerate("abc", start=7001))
    words = ["--config", dsg, "--set", "run.iterations_per_round=2", "--set", key]
    done = tacit_here("federation", "create", "fed", "--nodes", nodes, *words)
    assert done.code == 2
    assert "simulations" in " ".join(done.err.split())
