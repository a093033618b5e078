from tacit.peer.node import finished_peers as module
from tacit.peer.node.finished_peers import FinishedPeers


def test_a_restarted_node_still_has_them(tmp_path):
    path = tmp_path / "finished.json"
    first = FinishedPeers(path, generation=2)
    first.add("b")
    first.add("c")
    assert FinishedPeers(path, generation=2).finished == {"b", "c"}
    assert FinishedPeers(path, generation=2).notified == frozenset()
    first.add_notified("d")
    again = FinishedPeers(path, generation=2)
    assert (again.finished, again.notified) == ({"b", "c"}, {"d"})
    assert FinishedPeers(path, generation=3).finished == frozenset()


def test_an_unreadable_file_names_none(tmp_path):
    path = tmp_path / "finished.json"
    for content in ("", "[]", '{"generation": 1}', '{"generation": 1, "finished": 3}'):
        path.write_text(content)
        assert FinishedPeers(path, generation=1).finished == frozenset()


def test_only_a_finished_neighbour_can_have_stopped(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    one = FinishedPeers(tmp_path / "finished.json", generation=1)
    one.add("b")
    assert not one.has_stopped("b")
    assert not one.has_stopped("c")
    now[0] = module.SILENCE_SECONDS + 1
    assert one.has_stopped("b")
    assert not one.has_stopped("c")
