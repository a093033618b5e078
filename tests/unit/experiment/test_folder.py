import json

import pytest

from tacit.config.loading import make_config
from tacit.core.errors import Misuse
from tacit.experiment.folder import RunFolder, fingerprint
from tacit.graph import Topology
from tacit.record.history import History, Record, Spread
from tacit.record.run_files import MAX_DRAWN_EDGES
from tacit.report.finished_run import StoredGraph, StoredPartition


def record(step):
    spread = Spread(1.0, 0.5, 1.5, 0.9)
    return Record(step, step, None, spread, 0.1, 8 * step, 0.25)


def test_a_new_or_empty_folder_gets_the_configuration(tmp_path, tiny):
    for folder in (RunFolder(tmp_path), RunFolder(tmp_path / "a" / "b")):
        folder.create(tiny())
        assert folder.read_config() == tiny()
        assert [path.name for path in folder.path.iterdir() if path.is_file()] == ["config.toml"]


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda path: path.write_text("x"), "is a file"),
        (lambda path: (path.mkdir(), (path / "notes").write_text("x")), "is not empty"),
        (lambda path: (path.mkdir(), (path / "config.toml").write_text("x")), "holds another run"),
    ],
)
def test_a_used_path_is_refused_and_not_changed(tmp_path, tiny, make, word):
    path = tmp_path / "out"
    make(path)
    before = {file: file.read_text() for file in [path, *path.glob("*")] if file.is_file()}
    with pytest.raises(Misuse, match=word) as caught:
        RunFolder(path).create(tiny())
    assert str(path) in str(caught.value)
    assert "--out" in caught.value.remedy
    assert {file: file.read_text() for file in [path, *path.glob("*")] if file.is_file()} == before


def test_a_folder_that_cannot_be_made_is_refused(tmp_path, tiny):
    (tmp_path / "file").write_text("x")
    with pytest.raises(Misuse, match="Cannot make the output folder"):
        RunFolder(tmp_path / "file" / "out").create(tiny())


@pytest.mark.parametrize("contents", [None, b"= 3", b"\xff\xfe"])
def test_a_folder_without_a_readable_configuration_is_not_a_run(tmp_path, contents):
    if contents is not None:
        (tmp_path / "config.toml").write_bytes(contents)
    with pytest.raises(Misuse, match="is not a run folder"):
        RunFolder(tmp_path).read_config()


def test_an_incomplete_last_line_of_the_history_is_ignored(tmp_path):
    folder = RunFolder(tmp_path)
    assert list(folder.read_history()) == []
    text = History([record(0), record(5)]).to_jsonl()
    folder.history.write_text(text)
    assert list(folder.read_history()) == [record(0), record(5)]
    folder.history.write_text(text[:-9])  # killed in the middle of a line
    assert list(folder.read_history()) == [record(0)]


@pytest.mark.parametrize("text", ["nonsense\n", '{"round": 1}\n', "[]\n"])
def test_a_damaged_history_is_refused_by_name(tmp_path, text):
    folder = RunFolder(tmp_path)
    folder.history.write_text(text)
    with pytest.raises(Misuse, match=r"history\.jsonl cannot be read: line 1"):
        folder.read_history()


def test_the_graph_and_the_data_are_kept_for_drawing(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write("graph.json", StoredGraph.of(Topology.ring(4).mixing("metropolis")))
    partition = StoredPartition(description="by hand", classes=["a", "b"], counts=[[1, 2]] * 4)
    folder.write("partition.json", partition)
    graph = json.loads((tmp_path / "graph.json").read_text())
    assert (graph["clients"], graph["directed"]) == (4, False)
    assert (len(graph["edges"]), len(graph["positions"])) == (8, 4)
    table = json.loads((tmp_path / "partition.json").read_text())
    assert table == {"description": "by hand", "classes": ["a", "b"], "counts": [[1, 2]] * 4}


def test_a_graph_of_too_many_edges_is_not_drawn(tmp_path):
    many = Topology.ring(MAX_DRAWN_EDGES + 1).mixing("metropolis")
    RunFolder(tmp_path).write("graph.json", StoredGraph.of(many))
    graph = json.loads((tmp_path / "graph.json").read_text())
    assert graph["edges"] is graph["positions"] is None
    assert graph["clients"] == MAX_DRAWN_EDGES + 1


@pytest.mark.parametrize(
    "override",
    ["run.seed=1", "run.rounds=4", "run.batch_size=8", "algorithm.lr=0.2",
     "algorithm.noise.scale=0.02", "graph.clients=4", "data.limit_train=200", "data.seed=1",
     "model.init=independent", "partition.seed=0"],
)  # fmt: skip
def test_the_fingerprint_depends_on_what_changes_the_states(tiny, override):
    assert fingerprint(tiny()) != fingerprint(tiny(override))


@pytest.mark.parametrize(
    "override",
    ["run.device=cuda", "run.evaluate_every=2", "run.checkpoint_every=7", "run.keep_checkpoints=5",
     "run.gradients=looped", "run.allow_divergence=true"],
)  # fmt: skip
def test_the_fingerprint_ignores_device_and_intervals(tiny, override):
    assert fingerprint(tiny()) == fingerprint(tiny(override))


def test_the_fingerprint_is_the_same_after_writing_and_reading(tmp_path, tiny):
    folder = RunFolder(tmp_path)
    config = tiny('algorithm.lr={schedule="cosine", start=0.30000000000000004}')
    folder.create(config)
    assert (
        fingerprint(folder.read_config())
        == fingerprint(config)
        == fingerprint(make_config(config.as_dict()))
    )
