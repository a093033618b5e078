"""What the operator sets: how long members wait for others, and how few neighbours are too few."""

import math

import pytest

from tacit.config.loading import make_config
from tacit.core.errors import Misuse
from tacit.peer.federation.absence import parse_patience, roster_name, roster_number, roster_order
from tacit.peer.federation.agreed_settings import absence_cautions
from tacit.peer.federation.manifest import make_manifest, parse_manifest
from tacit.peer.federation.operator import add, create, remove, set_absence
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node.node import Node, NodeOptions

LPPA = {"name": "lppa", "lr": 0.1}


def made(tmp_path, count=4, graph="ring", algorithm=LPPA, edges=None, **rules):
    config = make_config({
        "algorithm": algorithm,
        "graph": {"kind": graph} if edges is None else {"kind": "edges", "edges": edges},
        "data": {"name": "mnist-mini", "limit_train": 100, "limit_test": 10},
        "model": {"name": "mlp", "hidden": [4]},
        "run": {"iterations_per_round": 5, "batch_size": 4},
    })  # fmt: skip
    nodes = {name: f"127.0.0.1:{7000 + i}" for i, name in enumerate("abcdefgh"[:count])}
    return create(tmp_path / "f", "clinics", nodes, config, **rules)


@pytest.mark.parametrize(("text", "seconds"), [
    ("10m", 600), ("2s", 2), ("1h", 3600), ("3d", 259_200), ("forever", math.inf),
])  # fmt: skip
def test_patience_is_a_time(text, seconds):
    assert parse_patience(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "10 m", "0s", "1s", "-5m", "1.5h", "never", None, 600])
def test_what_is_no_patience(text):
    with pytest.raises(Misuse, match="patience"):
        parse_patience(text)


def test_the_manifest_has_the_rules_and_they_can_be_changed(tmp_path):
    home = made(tmp_path, patience="10m")
    assert home.manifest().absence.as_dict() == {"patience": "10m", "min_neighbours": 2}
    after = set_absence(home.path, patience="forever", min_neighbours=1)
    assert (after.generation, after.absence.seconds) == (2, math.inf)
    assert home.node("a").manifest().text == after.text
    # A node takes it from another one, too.
    later = set_absence(home.path, patience="1h")
    assert home.node("b").check_update(*home.signed_manifest()).absence == later.absence
    assert add(home.path, "x", "h:1").absence == later.absence


def test_a_manifest_of_an_earlier_version_waits_for_ever(tmp_path):
    text = made(tmp_path).manifest().text.decode()
    start = text.index("[absence]")
    old = text[:start] + text[text.index("[topology]") :]
    assert parse_manifest(old.encode()).absence.as_dict() == {
        "patience": "forever", "min_neighbours": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    "wrong", ['patience = "soon"', "patience = 5", "min_neighbours = 0", "x = 1"]
)
def test_wrong_rules_in_a_manifest_are_refused(tmp_path, wrong):
    text = made(tmp_path).manifest().text.decode()
    key = wrong.split(" ")[0]
    lines = [wrong if line.startswith(f"{key} =") else line for line in text.splitlines()]
    if wrong not in lines:
        lines.insert(lines.index("[absence]") + 1, wrong)
    with pytest.raises(Misuse, match=key):
        parse_manifest("\n".join(lines).encode())


@pytest.mark.parametrize(("graph", "algorithm", "least"), [
    ("ring", LPPA, 2),
    ("star", LPPA, 1),
    ("ring", {"name": "dsgt", "lr": 0.1}, 1),
])  # fmt: skip
def test_masks_need_two_neighbours_if_the_graph_has_them(tmp_path, graph, algorithm, least):
    manifest = made(tmp_path, graph=graph, algorithm=algorithm).manifest()
    assert manifest.absence.min_neighbours == least
    cautions = " ".join(absence_cautions(manifest))
    assert ("protects nodes with 2 neighbours" in cautions) == (graph == "star")


def test_a_removal_that_leaves_two_who_cannot_protect_each_other_is_refused(tmp_path):
    home = made(tmp_path, 3)
    with pytest.raises(Misuse, match=r"a, b would have fewer than 2 .*--min-neighbours 1"):
        remove(home.path, "c")
    assert home.manifest().generation == 1
    set_absence(home.path, min_neighbours=1)
    assert remove(home.path, "c").names == ["a", "b"]


def test_a_node_does_not_train_with_too_few_neighbours_even_if_the_operator_signs_that(tmp_path):
    home = made(tmp_path, 3)
    before = home.manifest()
    set_absence(home.path, min_neighbours=1)
    two = remove(home.path, "c")
    forced = make_manifest(
        two.federation, 4, two.hash.hex(), two.members, two.graph, two.config, two.next_number,
        two.former_members, before.absence,
    )  # fmt: skip
    home.publish(forced)
    with pytest.raises(Misuse, match="too few to protect each other"):
        Node(home.node("a"), NodeOptions(), EventLog(open("/dev/null", "w"), "a"))  # noqa: SIM115


def test_numbers_of_rosters():
    numbers = [roster_number(*pair) for pair in [(1, 0), (1, 1), (1, 12), (2, 0), (2, 3), (10, 0)]]
    assert sorted(numbers, key=roster_order) == numbers
    assert len(set(numbers)) == len(numbers)
    assert roster_number(7, 0) == 7
    assert [roster_name(one) for one in numbers[:2]] == ["generation 1", "generation 1.1"]
