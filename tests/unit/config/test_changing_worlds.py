"""[graph] with matchings or phases, and [participation]."""

import pytest

from support.misuse import assert_mentions, misuse_message
from tacit import Absence, Matchings, Phases
from tacit.config.build import build
from tacit.config.graphs import make_world
from tacit.config.loading import load_config, make_config
from tacit.core.toml import to_toml
from tacit.experiment.folder import fingerprint

TASK = {"task": {"name": "adaptive-filtering"}, "run": {"rounds": 2}}
PHASE = {"kind": "ring", "clients": 5, "iterations": 2}
MATCHINGS = {"kind": "matchings", "clients": 5}


def config_of(graph, algorithm="dsg", **sections):
    return make_config(
        TASK | {"graph": graph, "algorithm": {"name": algorithm, "lr": 0.1}} | sections
    )


def test_matchings_of_all_pairs_or_of_another_graph():
    schedule = make_world(config_of(MATCHINGS)).schedule
    assert isinstance(schedule, Matchings)
    assert schedule.topology.name == "complete(5)"
    torus = {"kind": "matchings", "of": {"kind": "torus", "rows": 2, "columns": 3}}
    assert make_world(config_of(torus)).schedule.topology.name == "torus(2, 3)"


def test_phases_have_the_keys_of_graphs():
    other = {"kind": "star", "clients": 5, "iterations": 1, "lazy": True}
    schedule = make_world(config_of({"kind": "phases", "phases": [PHASE, other]})).schedule
    assert isinstance(schedule, Phases)
    assert [(str(graph), length) for graph, length in schedule.phases] == [
        ("ring(5), metropolis weights", 2),
        ("star(5), lazy metropolis weights", 1),
    ]


def test_participation_has_every_key_of_python():
    section = {"share": 0.5, "absences": [{"client": 1, "first": 3, "last": 4}, {"client": 2}]}
    world = make_world(config_of(PHASE_GRAPH, participation=section))
    assert world.participation.share == 0.5
    assert world.participation.absences == (Absence(1, 3, 4), Absence(2))
    late = make_world(config_of(PHASE_GRAPH, participation={"delay": 2, "stragglers": [1]}))
    assert (late.participation.delay, late.participation.stragglers) == (2, (1,))


PHASE_GRAPH = {"kind": "ring", "clients": 5}


@pytest.mark.parametrize(
    ("graph", "sections", "words"),
    [
        ({"kind": "matchings"}, {}, ["matchings", "graph.clients"]),
        (MATCHINGS | {"mixing": "sinkhorn"}, {}, ["own weights", "mixing"]),
        (MATCHINGS | {"degree": 3}, {}, ["graph.degree"]),
        (MATCHINGS | {"of": {"kind": "ring", "clients": 5}}, {}, ["graph.clients", "graph.of"]),
        ({"kind": "matchings", "of": {"kind": "rung"}}, {}, ["graph.of", "rung", "ring"]),
        ({"kind": "matchings", "of": MATCHINGS}, {}, ["graph.of", "matchings"]),
        ({"kind": "ring", "clients": 5, "of": PHASE_GRAPH}, {}, ["graph.of", "matchings"]),
        ({"kind": "phases"}, {}, ["phases", "[[graph.phases]]"]),
        ({"kind": "phases", "phases": []}, {}, ["[[graph.phases]]"]),
        ({"kind": "ring", "clients": 5, "phases": [PHASE]}, {}, ["graph.phases", "phases"]),
        ({"kind": "phases", "clients": 5, "phases": [PHASE]}, {}, ["graph.clients"]),
        ({"kind": "phases", "lazy": True, "phases": [PHASE]}, {}, ["lazy", "[[graph.phases]]"]),
        (
            {"kind": "phases", "phases": [PHASE, PHASE | {"clients": 6}]},
            {},
            ["[[graph.phases]]", "5 and 6 clients"],
        ),
        (
            {"kind": "phases", "phases": [PHASE, MATCHINGS | {"iterations": 1}]},
            {},
            ["[[graph.phases]] 2", "matchings"],
        ),
        (PHASE_GRAPH, {"participation": {"share": 0}}, ["[participation]", "share"]),
        (PHASE_GRAPH, {"participation": {"share": 0.5, "delay": 2}}, ["[participation]", "Late"]),
        (PHASE_GRAPH, {"participation": {"absences": [{"client": 7}]}}, ["client 7", "0 to 4"]),
        (
            PHASE_GRAPH,
            {"participation": {"absences": [{"client": 1, "first": 4, "last": 2}]}},
            ["[[participation.absences]] 1", "4 to 2"],
        ),
        (MATCHINGS, {"participation": {"delay": 2}}, ["Late messages", "changes"]),
        (MATCHINGS, {"algorithm": "edsg"}, ["edsg", "graph that changes"]),
        (MATCHINGS, {"robust": {}}, ["Robust mixing"]),
    ],
)  # fmt: skip
def test_what_is_not_possible_names_the_key_and_the_remedy(graph, sections, words):
    assert_mentions(misuse_message(lambda: build(config_of(graph, **sections))), *words)


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"shares": 1}, ["participation.shares", "share"]),
        ({"delay": -1}, ["participation.delay"]),
        ({"absences": [{"client": 1, "until": 3}]}, ["until", "first"]),
        ({"absences": [{"first": 1}]}, ["client"]),
        ({"absences": 3}, ["participation.absences"]),
    ],
)
def test_wrong_keys_and_types_are_named(section, words):
    assert_mentions(misuse_message(config_of, PHASE_GRAPH, participation=section), *words)


def test_a_phase_without_its_length_is_refused():
    graph = {"kind": "phases", "phases": [{"kind": "ring", "clients": 5}]}
    assert_mentions(misuse_message(config_of, graph), "iterations")


def test_files_of_phases_are_found_beside_the_configuration(tmp_path):
    (tmp_path / "edges.txt").write_text("0 1\n1 2\n2 3\n3 4\n")
    values = {
        "kind": "phases",
        "phases": [PHASE, {"kind": "edge-file", "path": "edges.txt", "iterations": 1}],
    }
    path = tmp_path / "x.toml"
    path.write_text(to_toml(TASK | {"graph": values, "algorithm": {"name": "dsg", "lr": 0.1}}))
    config = load_config(path)
    assert make_world(config).clients == 5
    # Another content is another run.
    before = fingerprint(config)
    (tmp_path / "edges.txt").write_text("0 1\n1 2\n2 3\n3 4\n4 0\n")
    assert fingerprint(config) != before


def test_a_configuration_without_these_keys_keeps_its_fingerprint():
    plain = config_of(PHASE_GRAPH).as_dict()
    assert not {"of", "phases"} & plain["graph"].keys()
    assert "participation" not in plain
