"""Mistakes give one message with key, value and remedy, exit code 2, and leave no files."""

import gzip
import json

import pytest

from support.misuse import assert_mentions

NETS = """
from torch import nn
class Narrow(nn.Linear):
    def __init__(self):
        super().__init__(100, 10)
"""
# One of each layer: tests/unit/config has the mistakes in every key.
MISTAKES = {
    "unknown key": (["run.round=3"], ["base.toml", "'run.round'", "Did you mean 'rounds'?"]),
    "wrong type": (["run.rounds=soon"], ["run.rounds = 'soon'", "integer"]),
    "table expected": (["algorithm.lr.start=1"], ["'algorithm.lr.start=1'", "no table"]),
    "removes nothing": (["graph.degree="], ["'graph.degree='", "not set"]),
    "bad weights": (["graph.mixing=matrix", "graph.matrix=bad.csv"],
        ["doubly stochastic", "row 1 sums to 0.9", "metropolis"]),
    "batch too large": (["run.batch_size=81"], ["81 each", "batch size", "Lower"]),
    "no cuda": (["run.device=cuda"], ["run.device = 'cuda'", '"cpu"']),
    "an option's value": (["model.name=cnn2", "model.hidden=", "model.filters=[0,0]"],
        ["[model]", "filters is 0"]),
    "an algorithm's value": (["algorithm.noise.scale=-0.5"],
        ["algorithm.noise", "-0.5", "at least 0"]),
}  # fmt: skip


@pytest.fixture(autouse=True)
def files(tmp_path, config, monkeypatch):
    (tmp_path / "bad.csv").write_text("0.6,0.2,0.2\n0.2,0.6,0.1\n0.2,0.2,0.7\n")
    (tmp_path / "bad_nets.py").write_text(NETS)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.fixture
def refused(tacit_here, contents):
    """Run a command that must fail and leave no files; returns its message."""

    def running(*arguments):
        before = {name: text for name, text in contents().items() if "__pycache__" not in name}
        answer = tacit_here(*arguments)
        assert (answer.code, answer.out) == (2, "")
        assert "Traceback" not in answer.err
        after = {name: text for name, text in contents().items() if "__pycache__" not in name}
        assert after == before
        return answer.err

    return running


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_a_value(refused, config, tmp_path, mistake):
    if mistake == "no cuda" and __import__("torch").cuda.is_available():
        pytest.skip("this machine has CUDA")
    overrides, words = MISTAKES[mistake]
    sets = [word for override in overrides for word in ("--set", override)]
    message = refused("run", config, "--out", "out", *sets)
    assert message.startswith("Error: ")
    assert message.count("\n") == 1
    assert_mentions(message, *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("[graph]\nclients = 3\n", ["lppa needs algorithm.lr", "lr = 0.05"]),
        ("[algorithm]\nlr = 0.1\n", ["'ring' needs graph.clients"]),
        ("[run]\nrounds = = 3\n", ["e.toml", "not valid TOML", "line 2"]),
        ("[run]\nrounds = 3\n[run]\n", ["e.toml", "not valid TOML", "line 3"]),
        ("run = 3\n", ["e.toml", "run = 3", "[run]"]),
        ("rounds = 3\n", ["e.toml", "'rounds'"]),
    ],
)
def test_a_mistake_in_the_file(refused, tmp_path, lines, words):
    (tmp_path / "e.toml").write_text(lines)
    assert_mentions(refused("run", "e.toml", "--out", "out"), *words)


def test_a_file_that_cannot_be_read(refused, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    for name, word in [
        ("absent.toml", "There is no"),
        ("folder", "directory"),
        ("binary", "Cannot read"),
    ]:
        for command in (["run", name], ["grid", name, "--over", "algorithm=dsgt"]):
            message = refused(*command, "--out", "out")
            assert name in message
            assert word in message


def test_an_own_model_that_does_not_fit(refused, tmp_path, config):
    (tmp_path / config).write_text((tmp_path / config).read_text().replace("hidden = [8]\n", ""))
    message = refused("run", config, "--out", "out", "--set", "model.name=bad_nets:Narrow")
    assert "'bad_nets:Narrow' fails on inputs of shape (2, 1, 28, 28)" in message


def test_an_output_folder_that_is_taken(refused, tmp_path, config):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text("[run]\n")
    words = {
        "file": "is a file",
        "full": "is not empty",
        "run": "holds another run",
        "file/x": "Cannot make",
    }
    for out, word in words.items():
        message = refused("run", config, "--out", out)
        assert out in message
        assert word in message
    for out in ("file", "full", "run"):
        assert out in refused("grid", config, "--over", "algorithm=dsgt,lppa", "--out", out)
    for out in ("file", "full"):
        assert out in refused("run", config, "--out", out, "--resume")
        assert out in refused("demo", "--out", out)


def test_a_damaged_dataset(refused, tmp_path, config):
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (folder / f"{part}-ubyte.gz").write_bytes(gzip.compress(b"nonsense"))
    message = refused("run", config, "--out", "out", "--data", "data", "--set", "data.name=mnist")
    assert "data/mnist/train-images-idx3-ubyte.gz" in message
    assert "tacit data fetch" in message


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--over", "algorithm=,"], ["'algorithm=,'", "empty value"]),
        (["--over", "algorithm=dsgt", "--seeds", "0"], ["--seeds", "greater than or equal to 1"]),
        (["--over", "algorithm=dsgt", "--seeds", "few"], ["--seeds", "integer"]),
        (
            ["--over", "algorithm=dsgt,dp-dsgt", "--set", "algorithm.fresch=true"],
            ["algorithm.fresch", "dsgt, dp-dsgt"],
        ),
        ([], ["--over"]),
    ],
)
def test_a_grid_that_is_not_possible(refused, config, tmp_path, arguments, words):
    assert_mentions(refused("grid", config, "--out", "out", *arguments), *words)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["rum"], "Did you mean 'run'?"),
        (["run"], "Missing argument"),
        (["run", "base.toml", "--sett", "run.seed=1"], "--sett"),
        (["data", "show"], "Missing argument"),
        (["data", "show", "mnst"], "Did you mean 'mnist'?"),
        (["algorithms", "-p", "0"], "greater than or equal to 1"),
    ],
)
def test_a_mistake_on_the_command_line_itself(refused, arguments, word):
    assert word in refused(*arguments)


def test_errors_of_a_process_and_a_failed_download(tacit, config, tmp_path, contents):
    (tmp_path / "empty").mkdir()
    before = contents()
    # Nothing listens there: every download fails at once, with a network or without.
    proxy = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    answer = tacit(
        "run", config, "--out", "out", "--data", "empty", "--set", "data.name=covtype", **proxy
    )
    assert (answer.code, answer.out) == (2, "")
    assert_mentions(
        answer.err, "[data]", "covtype", "the download failed", "Put ", "empty", "TACIT_DATA"
    )
    assert "Traceback" not in answer.err
    assert contents() == before
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("out", ["base.toml", "base.toml/below", "x" * 300])
def test_an_audit_finds_a_folder_that_cannot_be_written_before_it_attacks(refused, config, out):
    message = refused("audit", config, "--out", out, "--no-attacks")
    assert_mentions(message, *((out, "another folder") if len(out) < 300 else ("too long",)))


@pytest.mark.parametrize("command", [["run"], ["grid", "--over", "algorithm=dsgt"]])
def test_names_that_are_too_long(refused, config, command):
    name, *rest = command
    assert_mentions(refused(name, config, *rest, "--out", "x" * 300), "File name too long")
    assert_mentions(refused(name, "y" * 300, *rest), "File name too long")


def test_an_absurd_model_size(refused):
    assert_mentions(refused("algorithms", "-p", "9" * 24), "--parameters", "1000000000000")


def test_a_victim_that_is_named_twice_is_audited_once(tacit_here, config):
    words = ("audit", config, "--no-attacks", "-n", "2", "--victim", "1", "--json")
    found = tacit_here(*words, "--victim", "1")
    assert found.code == 0, found.err
    assert json.loads(found.out)["victims"] == [1]
