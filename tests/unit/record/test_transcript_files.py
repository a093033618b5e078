import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import tacit
from tacit import LPPA, PDMM, FedAvg, Laplace, Misuse, Topology, quadratic
from tacit.record.transcript import Keep, Transcript
from tacit.record.transcript_files import load, save

GRAPH = Topology.ring(4).mixing("metropolis")
TASK = quadratic(
    torch.eye(3).repeat(4, 1, 1), torch.randn(4, 3, generator=torch.Generator().manual_seed(1))
)


def recorded(algorithm=None, task=TASK, **keep):
    algorithm = algorithm or LPPA(lr=0.1, noise=Laplace(1.0), masks="sent")
    return tacit.run(task, algorithm, GRAPH, steps=2, seed=5, transcript=Keep(**keep)).transcript


@pytest.fixture
def folder(tmp_path):
    save(recorded(insides=(1, 3)), tmp_path)
    return tmp_path


def assert_same(a, b):
    assert (a.keep, a.clients, a.edges, a.steps) == (b.keep, b.clients, b.edges, b.steps)
    assert len(a.messages) == len(b.messages)
    for x, y in zip(a.messages, b.messages, strict=True):
        assert (x.tick, x.verb, x.tag, x.private) == (y.tick, y.verb, y.tag, y.private)
        assert x.rows.dtype == y.rows.dtype
        assert torch.equal(x.rows, y.rows)
        assert torch.equal(x.source, y.source)
        assert (x.target is None) == (y.target is None)
        assert x.target is None or torch.equal(x.target, y.target)
    assert list(a.held) == list(b.held)
    assert all(torch.equal(a.held[name], b.held[name]) for name in a.held)


DOUBLE = quadratic(torch.eye(2).double().repeat(4, 1, 1), torch.full((4, 2), 1 / 3).double())


@pytest.mark.parametrize(
    "transcript",
    [
        recorded(insides=(0, 2)),  # private sends, shared noise
        recorded(),
        recorded(PDMM(), clients=(1,), ticks=(1, 2), tags=("dz",)),
        recorded(FedAvg(lr=0.1), insides=(3,), theta0=True),  # a server's rows
        recorded(task=DOUBLE, insides=(0,)),
        Transcript(clients=2, edges=[(0, 1)]),
    ],
)
def test_round_trip(tmp_path, transcript):
    index = save(transcript, tmp_path / "new" / "folder", fingerprint="of this run")
    assert index.name == "transcript.json"
    loaded, fingerprint = load(index.parent)
    assert fingerprint == "of this run"
    assert_same(loaded, transcript)
    assert {path.name for path in index.parent.iterdir()} == {
        "transcript.json",
        "transcript.safetensors",
    }


def test_a_later_transcript_replaces_an_earlier_one(folder):
    other = recorded(PDMM())
    save(other, folder)
    assert_same(load(folder)[0], other)


def check_error(folder, match):
    with pytest.raises(Misuse, match=match) as caught:
        load(folder)
    assert caught.value.remedy


def test_no_transcript(tmp_path):
    check_error(tmp_path, r"There is no transcript in .*Record one")
    check_error(tmp_path / "nowhere", r"There is no transcript")


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (Path.unlink, "cannot be read"),
        (lambda path: path.write_bytes(b""), "cut short or altered"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "cut short or altered"),
        (lambda path: path.write_bytes(b"{" + path.read_bytes()[1:]), "cut short or altered"),
        (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"!"), "cut short or altered"),
    ],
)
def test_damaged_numbers(folder, damage, match):
    damage(folder / "transcript.safetensors")
    check_error(folder, rf"{match}.*Record the run again")


def test_safetensors_of_another_run(folder):
    numbers, index = folder / "transcript.safetensors", folder / "transcript.json"
    save_file({name: 2 * rows for name, rows in load_file(numbers).items()}, numbers)
    check_error(folder, r"cut short or altered")
    facts = json.loads(index.read_text())
    facts["numbers_sha256"] = hashlib.sha256(numbers.read_bytes()).hexdigest()
    index.write_text(json.dumps(facts))
    check_error(folder, r"transcript\.json was altered: its checksum does not match")


@pytest.mark.parametrize(
    "alter",
    [
        lambda facts: facts["messages"][0].update(private=False),
        lambda facts: facts["messages"][1]["source"].reverse(),
        lambda facts: facts.update(edges=facts["edges"][1:]),
        lambda facts: facts.update(steps=9),
        lambda facts: facts["keep"].update(insides=[0]),
        lambda facts: facts["held"][0].__setitem__(2, 0),
        lambda facts: facts.update(fingerprint="another"),
        lambda facts: facts.update(more=1),
        lambda facts: facts.pop("clients"),
        lambda facts: facts.update(index_sha256="0" * 64),
    ],
)
def test_an_altered_index(folder, alter):
    index = folder / "transcript.json"
    facts = json.loads(index.read_text())
    alter(facts)
    index.write_text(json.dumps(facts))
    check_error(folder, r"transcript\.json was altered.*Record the run again")


def test_whitespace_and_key_order_of_the_index_do_not_matter(folder):
    index = folder / "transcript.json"
    before = load(folder)[0]
    index.write_text(json.dumps(json.loads(index.read_text()), indent=2, sort_keys=True))
    assert_same(load(folder)[0], before)


@pytest.mark.parametrize("content", [b"", b'{"format": "tacit-tr', b"[1, 2]", b"\xff\xfe", b"null"])
def test_malformed_index(folder, content):
    (folder / "transcript.json").write_bytes(content)
    check_error(folder, r"cannot be read")


@pytest.mark.parametrize(
    ("alter", "match"),
    [
        (lambda facts: facts.update(format="tacit-transcript-2"), "format 'tacit-transcript-2'"),
        (lambda facts: facts.pop("format"), "unknown format None"),
        (lambda facts: facts.pop("index_sha256"), "cannot be read"),
    ],
)
def test_an_index_of_another_format_or_without_checksum(folder, alter, match):
    index = folder / "transcript.json"
    facts = json.loads(index.read_text())
    alter(facts)
    index.write_text(json.dumps(facts))
    check_error(folder, match)
