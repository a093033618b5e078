"""`tacit data`: list, show, fetch."""

import json

import pytest

from support.plugins import register_plugin
from tacit.data import loading


def test_list(tacit_here, tmp_path):
    answer = tacit_here("data", "list", "--data", "empty", "--json")
    assert answer.code == 0
    known = {row["name"]: row for row in json.loads(answer.out)}
    assert known["mnist-mini"]["present"] is True
    assert known["mnist"]["present"] is False
    assert known["mnist"]["shape"] == [1, 28, 28]
    assert not (tmp_path / "empty").exists()
    table = tacit_here("data", "list", "--data", "empty").out
    for name in known:
        assert name in table


def test_files_are_found(tacit_here, tmp_path):
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (folder / f"{part}-ubyte").write_bytes(b"")
    shown = json.loads(tacit_here("data", "show", "mnist", "--data", "data", "--json").out)
    assert shown["present"] is True
    assert all(path.startswith("data/mnist/") for path in shown["files"])
    assert len(shown["files"]) == 4


def test_show(tacit_here):
    answer = tacit_here("data", "show", "mnist-mini")
    assert answer.code == 0
    assert "4,000 / 1,000" in answer.out
    assert "looked in" not in answer.out
    assert "looked in" in tacit_here("data", "show", "cifar10").out


def test_fetch_of_the_embedded_dataset(tacit_here):
    answer = tacit_here("data", "fetch", "mnist-mini")
    assert answer.code == 0
    assert "nothing to fetch" in answer.out


@pytest.mark.parametrize("command", ["show", "fetch"])
def test_unknown_name_suggests_the_closest(tacit_here, command):
    answer = tacit_here("data", command, "fashon-mnist")
    assert (answer.code, answer.out) == (2, "")
    assert "Did you mean 'fashion-mnist'?" in answer.err


def test_failed_download(tacit_here, tmp_path, monkeypatch):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setattr("tacit.data.download.time.sleep", lambda seconds: None)
    answer = tacit_here("data", "fetch", "covtype", "--data", "data")
    assert (answer.code, answer.out) == (2, "")
    for word in ("covtype", "the download failed", "Put ", "data", "TACIT_DATA"):
        assert word in answer.err
    assert not [path for path in (tmp_path / "data").rglob("*") if path.is_file()]


def test_plugins_are_listed(tacit_here, monkeypatch, tmp_path):
    text = "def load(folder, *, leads=1):\n    '''Electrocardiograms.'''\n"
    (tmp_path / "listed_package.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    register_plugin(monkeypatch, loading, "DATASETS", "hearts", "listed_package:load")
    *_, last = json.loads(tacit_here("data", "list", "--json").out)
    assert (last["name"], last["options"]) == ("hearts", {"leads": "default 1"})
    assert "hearts" in tacit_here("data", "list").out
    register_plugin(monkeypatch, loading, "DATASETS", "hearts", "listed_package:missing")
    answer = tacit_here("data", "list")
    assert answer.code == 0
    assert "mnist-mini" in answer.out
    assert "cannot be imported" in answer.err
