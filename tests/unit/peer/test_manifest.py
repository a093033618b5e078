"""Manifests: exact round trips, and a clear error for every text that is not one."""

import hashlib
import tomllib

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tacit.config.earlier import from_earlier
from tacit.config.graphs import make_graph
from tacit.config.loading import make_config
from tacit.core.errors import Misuse
from tacit.graph import Graph, Topology
from tacit.peer.federation.manifest import make_manifest, parse_manifest
from tacit.peer.federation.roster import Member

NAMES = ("berlin", "paris", "rome", "oslo", "wien")


def members(count, **changes):
    made = [
        Member(
            NAMES[k],
            f"{NAMES[k]}.example.org:{7400 + k}",
            k,
            hashlib.sha256(bytes([k])).digest(),
            1,
        )
        for k in range(count)
    ]
    made[0] = Member(**(vars(made[0]) | changes))
    return made


def configuration(**sections):
    return make_config(
        {"algorithm": {"name": "lppa", "lr": 0.1}, "run": {"iterations_per_round": 5}, **sections}
    )


def manifest(count=3, graph=None, config=None):
    graph = graph or Topology.ring(count).mixing("metropolis")
    config = config or configuration(graph={"kind": "ring", "clients": count})
    return make_manifest("hospitals-3f9a21bc", 1, "", members(count), graph, config)


TEXT = manifest().text.decode()


# --- the round trip -------------------------------------------------------------------------------


GRAPHS = {
    "ring": Topology.ring(5).mixing("metropolis"),
    "star": Topology.star(5).mixing("metropolis", lazy=True),
    "directed": Topology.exponential(5).mixing("sinkhorn", seed=3),
    "laplacian": Topology.complete(5).mixing("laplacian", kappa=7.3),
    "matrix": Graph.from_matrix(
        np.random.default_rng(0).dirichlet(np.ones(5), size=5).T @ np.full((5, 5), 0.2)
    ),
    "awkward": Graph.from_matrix(
        [[0, 1e-310, 1 / 3], [2**0.5, -0.1, 5e300], [np.nextafter(1, 2), 0.1 + 0.2, 1.0]]
    ),
}


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_weights_are_restored_bit_for_bit(graph):
    back = parse_manifest(manifest(graph.clients, graph).text).graph
    assert np.array_equal(back.edges, graph.edges)
    assert back.directed == graph.directed
    assert back.weights.toarray().tobytes() == graph.weights.toarray().tobytes()
    for part in ("indices", "indptr", "data"):  # sums depend on the storage order
        assert np.array_equal(getattr(back.weights, part), getattr(graph.weights, part))
    assert (back.rule, back.topology.name) == (graph.rule, graph.topology.name)


def test_everything_else_is_restored():
    config = configuration(
        graph={"kind": "ring", "clients": 3},
        model={"name": "mlp", "hidden": [8, 4], "note": 'odd "text" \\ with ü and \t'},
        algorithm={"name": "lppa", "lr": {"schedule": "exponential", "start": 0.02, "decay": 0.95}},
        transcript={"last": 3},
        run={"iterations_per_round": 7, "clip": {"bound": 1.5}},
    )
    made = manifest(config=config)
    back = parse_manifest(made.text)
    assert back.config == config == made.config
    assert back.members == made.members == tuple(members(3))
    assert (back.federation, back.generation, back.previous) == ("hospitals-3f9a21bc", 1, "")
    assert back.next_number == 3
    assert back.text == made.text
    assert back.hash == hashlib.sha256(made.text).digest()


def test_a_task_is_restored():
    config = make_config(
        {"task": {"name": "least-squares", "dimension": 4}, "algorithm": {"lr": 0.1}}
    )
    back = parse_manifest(manifest(config=config).text)
    assert back.config == config
    assert {"task", "algorithm", "run"} <= set(back.sections)
    assert not {"data", "partition", "model"} & set(back.sections)


def test_file_names_are_dropped(tmp_path):
    matrix, edges = tmp_path / "secret-place.txt", tmp_path / "edges-place.txt"
    np.savetxt(matrix, Topology.ring(3).mixing("metropolis").weights.toarray())
    edges.write_text("0 1\n1 2\n")
    for section in (
        {"kind": "matrix", "matrix": str(matrix)},
        {"kind": "ring", "clients": 3, "mixing": "matrix", "matrix": str(matrix)},
        {"kind": "edge-file", "path": str(edges)},
    ):
        config = configuration(graph=section)
        graph = make_graph(config.graph, 0)
        made = make_manifest(
            "hospitals-3f9a21bc",
            1,
            "",
            members(3),
            Graph(Topology(3, graph.edges, graph.directed, "edges(3)"), graph.weights, graph.rule),
            config,
        )
        assert b"place" not in made.text
        assert made.config.graph.mixing == ("metropolis" if "path" in section else "matrix")
        assert np.array_equal(made.graph.weights.toarray(), graph.weights.toarray())


def test_edges_are_stored_once():
    config = configuration(graph={"kind": "edges", "clients": 3, "edges": [[0, 1], [1, 2]]})
    made = manifest(graph=make_graph(config.graph, 0), config=config)
    assert "edges" not in made.config.graph.options
    assert made.graph.edges.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]


# --- methods --------------------------------------------------------------------------------------


def test_neighbours_follow_the_direction_of_edges():
    made = manifest(3, Topology.directed_ring(3).mixing("sinkhorn"))
    assert [m.name for m in made.out_neighbours("berlin")] == ["paris"]
    assert [m.name for m in made.in_neighbours("berlin")] == ["rome"]
    assert made.position("rome") == 2
    assert "london" not in made.names
    assert made.member("paris").number == 1
    for lookup in (made.position, made.member, made.in_neighbours, made.out_neighbours):
        with pytest.raises(Misuse, match="Did you mean 'paris'"):
            lookup("pariss")


def test_sections_show_where_two_manifests_differ():
    first = manifest()

    def differing(other):
        one, two = first.sections, other.sections
        return {name for name in one.keys() | two.keys() if one.get(name) != two.get(name)}

    assert differing(manifest()) == set()
    graph = {"kind": "ring", "clients": 3}
    run = {"iterations_per_round": 5, "seed": 4}
    changed = {
        "model": configuration(graph=graph, model={"name": "mlp", "hidden": [9]}),
        "run": configuration(graph=graph, run=run),
        "algorithm": configuration(graph=graph, algorithm={"name": "lppa", "lr": 0.2}),
        "data": configuration(graph=graph, data={"name": "mnist"}),
        "partition": configuration(graph=graph, partition={"kind": "dirichlet", "alpha": 0.5}),
    }
    for name, config in changed.items():
        assert differing(manifest(config=config)) == {name}
    assert differing(manifest(graph=Topology.ring(3).mixing("metropolis", lazy=True))) == {"graph"}
    moved = make_manifest(
        first.federation, 1, "", members(3, address="b:1"), first.graph, first.config
    )
    assert differing(moved) == {"roster"}


def test_keys_that_version_0_1_signed_have_their_new_spelling():
    lr = {"schedule": "exponential", "start": 0.1, "decay": 0.9, "steps": 10}
    sections = {
        "graph": {"kind": "ring", "clients": 3},
        "algorithm": {"name": "private-sgd", "lr": lr},
        "privacy": {"epsilon": 3.0, "samples": 60, "clip": 0.5},
    }
    made = manifest(config=configuration(**sections))
    text = made.text.decode().replace("clip = 0.5\n", "").replace("steps = 10", "every = 10")
    text = text.replace('name = "private-sgd"\n', 'name = "private-sgd"\nclip = 0.5\n')
    earlier = parse_manifest(text.encode())
    assert earlier.config == made.config
    assert earlier.hash != made.hash


@pytest.mark.parametrize(
    ("earlier", "today"),
    [
        ({"schedule": "inverse", "every": 5}, {"schedule": "inverse", "steps": 5}),
        ({"schedule": "multi-step", "at": [1, 2]}, {"schedule": "multi-step", "epochs": [1, 2]}),
        (
            {"schedule": "multi-step", "at": [1, 2], "every": 5},
            {"schedule": "multi-step", "steps": [5, 10]},
        ),
        (
            {"schedule": "warmup", "length": 1.5, "every": 4, "then": {"schedule": "constant"}},
            {"schedule": "warmup", "steps": 6, "then": {"schedule": "constant"}},
        ),
        ({"schedule": "warmup", "length": "x", "every": 1}, None),
    ],
)
def test_times_of_schedules_that_version_0_1_signed(earlier, today):
    assert from_earlier({"algorithm": {"lr": earlier}}) == {"algorithm": {"lr": today or earlier}}


# --- errors ---------------------------------------------------------------------------------------


def replaced(old, new):
    assert TEXT.count(old) >= 1, old
    return TEXT.replace(old, new, 1)


REFUSED = {
    "unknown key": (replaced("generation = 1", "generation = 1\nextra = 1"), "no key 'extra'"),
    "unknown key of a member": (replaced("number = 0", "number = 0\nrole = 'x'"), "no key 'role'"),
    "unknown key of topology": (
        replaced("directed = false", "directed = false\nx = 1"),
        "no key 'x'",
    ),
    "unknown section": (TEXT + "\n[config.servers]\nx = 1\n", "no section 'servers'"),
    "unknown key of a section": (
        replaced("rounds = 20", "rounds = 20\nround = 3"),
        "no key 'run.round'",
    ),
    "unknown top table": (TEXT + "\n[other]\nx = 1\n", "no key 'other'"),
    "another format": (replaced("federation-1", "federation-2"), "same version"),
    "missing key": (replaced("generation = 1\n", ""), "generation"),
    "a text as generation": (
        replaced("generation = 1", 'generation = "1"'),
        "generation = '1' is not a whole number",
    ),
    "a boolean as generation": (
        replaced("generation = 1", "generation = true"),
        "generation = True",
    ),
    "generation 0": (replaced("generation = 1", "generation = 0"), "generation"),
    "generation 2 without a previous manifest": (
        replaced("generation = 1", "generation = 2"),
        "does not go with previous",
    ),
    "generation 1 with a previous manifest": (
        replaced('previous = ""', f'previous = "{"a" * 64}"'),
        "previous",
    ),
    "a previous manifest that is no digest": (
        replaced('generation = 1\nprevious = ""', 'generation = 2\nprevious = "xyz"'),
        "previous",
    ),
    "another federation's name": (
        replaced("hospitals-3f9a21bc", "Hospitals"),
        "8 hexadecimal digits",
    ),
    "two of one name": (replaced('name = "paris"', 'name = "berlin"'), "Two nodes have the name"),
    "two of one address": (
        replaced("paris.example.org:7401", "BERLIN.example.org:7400"),
        "Two nodes have the address",
    ),
    "two of one number": (replaced("number = 1", "number = 0"), "numbers of the members"),
    "a number above those given": (
        replaced("numbers = 3", "numbers = 2"),
        "numbers of the members",
    ),
    "two of one mask key": (
        replaced(members(3)[1].mask_key.hex(), members(3)[0].mask_key.hex()),
        "Two nodes have the mask key",
    ),
    "a short mask key": (replaced(members(3)[1].mask_key.hex(), "ab"), "32 bytes"),
    "a mask key of no digits": (replaced(members(3)[1].mask_key.hex(), "zz"), "not hexadecimal"),
    "the operator's name": (
        replaced('name = "paris"', 'name = "operator"'),
        "reserved for the operator",
    ),
    "a name with a path in it": (replaced('name = "paris"', 'name = "../x"'), "cannot be the name"),
    "a member from the future": (replaced("since = 1", "since = 2"), "joined in generation 2"),
    "an edge to an unknown client": (replaced("[0, 1],", "[0, 3],"), "clients from 0 to 2"),
    "a negative edge": (replaced("[0, 1],", "[-1, 1],"), "clients from 0 to 2"),
    "a self loop": (replaced("[0, 1],", "[0, 0],"), "self loop"),
    "an edge of three": (replaced("[0, 1],", "[0, 1, 2],"), "pair of clients"),
    "a weight on no edge": (
        replaced("  [0, 1],\n  [0, 2],\n  [1, 2],\n]", "  [0, 1],\n  [1, 2],\n]"),
        "has no edge",
    ),
    "a weight twice": (replaced("  [0, 1, 0.3", "  [0, 1, 0.1],\n  [0, 1, 0.3"), "given twice"),
    "a weight that is not finite": (
        replaced("[0, 1, 0.3333333333333333]", "[0, 1, nan]"),
        "finite",
    ),
    "a weight that is a text": (replaced("[0, 1, 0.3333333333333333]", '[0, 1, "x"]'), "weights"),
    "a terminal's command as a name": (replaced('"ring(3)"', '"ring\\u001b[2J"'), "short line"),
    "a file": (replaced('kind = "ring"', 'kind = "ring"\nmatrix = "/etc/passwd"'), "names a file"),
    "another file": (
        replaced('kind = "ring"', 'kind = "ring"\npath = "/etc/passwd"'),
        "names a file",
    ),
    "a date": (replaced('name = "mlp"', 'name = "mlp"\nborn = 2020-01-01'), "config"),
    "one member": (
        TEXT[: TEXT.index("[[member]]", TEXT.index("[[member]]") + 1)]
        + TEXT[TEXT.index("[topology]") :],
        "needs two or more nodes",
    ),
    "no TOML": ("= = =", "not TOML"),
    "a long number": (replaced("generation = 1", f"generation = {'9' * 5000}"), "manifest"),
    "a deep list": ("x = " + "[" * 20_000, "manifest"),
    "a deep table": (
        replaced('name = "mlp"', f'name = "mlp"\n{".".join("a" * 3_000)} = 1'),
        "manifest",
    ),
    "members as a number": ("member = 3\n" + TEXT.split("\n\n")[0], "member"),
}


@pytest.mark.parametrize(("text", "reason"), REFUSED.values(), ids=REFUSED)
def test_errors_name_the_problem(text, reason):
    with pytest.raises(Misuse) as refusal:
        parse_manifest(text.encode())
    assert reason in str(refusal.value)
    assert refusal.value.remedy


def test_a_text_that_is_too_long_is_not_parsed(monkeypatch):
    monkeypatch.setattr(tomllib, "loads", lambda text: pytest.fail("it was parsed"))
    with pytest.raises(Misuse, match="more than 16777216"):
        parse_manifest(b"#" * (16 * 2**20 + 1))


def test_a_graph_of_another_size_is_refused():
    with pytest.raises(Misuse, match="4 clients, but there are 3 members"):
        manifest(3, Topology.ring(4).mixing("metropolis"))


PIECES = st.sampled_from([
    b"", b"[]", b"[[", b"{}", b"-1", b"1e400", b"nan", b"true", b'""', b"0.5", b"[config]\n",
    b"[[member]]\n", b"2020-01-01", b"9" * 30,
])  # fmt: skip


@given(st.data())
def test_a_changed_manifest_is_parsed_or_refused(data):
    """Bytes removed, inserted, doubled or replaced: Misuse is the only error."""
    text = bytearray(TEXT.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        cut = text[start : start + data.draw(st.integers(0, 40))]
        middle = data.draw(st.one_of(st.binary(max_size=8), PIECES, st.just(bytes(cut) * 2)))
        text[start : start + len(cut)] = middle
    try:
        read = parse_manifest(bytes(text))
    except Misuse:
        return
    parts = (read.federation, read.generation, read.previous, read.members, read.graph, read.config)
    assert parse_manifest(make_manifest(*parts, read.next_number).text).hash


VALUES = st.recursive(
    st.one_of(st.booleans(), st.integers(-5, 5), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(min_size=1, max_size=5), inner, max_size=3),
    ),
    max_leaves=6,
)


@given(st.data())
def test_values_of_any_type_in_any_place(data):
    """Each key of the manifest with a value of any type."""
    from tacit.core.toml import to_toml

    values = tomllib.loads(TEXT)
    places = [(table, key) for table in _tables(values) for key in table]
    table, key = data.draw(st.sampled_from(places))
    table[key] = data.draw(VALUES)
    lines = to_toml({"x": values}).split("\n", 1)[1]  # the tables written inline
    try:
        read = parse_manifest(lines.encode())
    except Misuse:
        return
    assert read.sections


def _tables(value):
    """All tables in a value."""
    if isinstance(value, dict):
        yield value
    for inner in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from _tables(inner)
