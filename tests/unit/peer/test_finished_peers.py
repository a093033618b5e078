from tacit.peer.node import finished_peers as farewells
from tacit.peer.node.finished_peers import FinishedPeers


def test_a_farewell_is_remembered_by_a_node_that_comes_back(tmp_path):
    path = tmp_path / "farewells.json"
    first = FinishedPeers(path, generation=2)
    first.add("b")
    first.add("c")
    assert FinishedPeers(path, generation=2).names == {"b", "c"}
    assert FinishedPeers(path, generation=2).told == frozenset()
    first.add_told("d")
    again = FinishedPeers(path, generation=2)
    assert (again.names, again.told) == ({"b", "c"}, {"d"})
    assert FinishedPeers(path, generation=3).names == frozenset()


def test_a_file_that_cannot_be_read_holds_no_farewells(tmp_path):
    path = tmp_path / "farewells.json"
    for content in ("", "[]", '{"generation": 1}', '{"generation": 1, "names": 3}'):
        path.write_text(content)
        assert FinishedPeers(path, generation=1).names == frozenset()


def test_only_who_said_farewell_can_be_gone(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(farewells.time, "monotonic", lambda: now[0])
    one = FinishedPeers(tmp_path / "farewells.json", generation=1)
    one.add("b")
    assert not one.gone("b")
    assert not one.gone("c")
    now[0] = farewells.GONE + 1
    assert one.gone("b")
    assert not one.gone("c")
