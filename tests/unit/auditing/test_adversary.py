from dataclasses import replace

import pytest
import torch

import tacit
from tacit.auditing.adversary import Adversary
from tacit.auditing.symbolic.symbols import run_on_symbols
from tacit.core.errors import Misuse
from tacit.record.transcript import SERVER, Message, Transcript
from tacit.record.unknowns import EVERY_CLIENT, Unknown

PATH = [(0, 1), (1, 0), (1, 2), (2, 1), (2, 3), (3, 2)]  # 0 – 1 – 2 – 3
CURIOUS, TAP = Adversary.curious, Adversary.eavesdropper
OPERATOR = Adversary.server()


def mixed(*source):
    return Message(1, "mix", "x", torch.zeros(len(source), 2), torch.tensor(source))


def sent(private=False, edges=PATH):
    ends = torch.tensor(edges)
    return Message(1, "send", "z", torch.zeros(len(edges), 2), ends[:, 0], ends[:, 1], private)


def up(*source):
    return Message(1, "average", "g", torch.zeros(len(source), 2), torch.tensor(source))


DOWN = Message(1, "broadcast", "g", torch.zeros(1, 2), torch.tensor([SERVER]))


# --- Parsing ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("eavesdropper", TAP()),
        ("server", OPERATOR),
        ("curious(3)", CURIOUS(3)),
        (" curious( 0 ,12 )+ eavesdropper ", CURIOUS(0, 12) | TAP()),
        ("curious(1)+curious(2)", CURIOUS(1, 2)),
        ("eavesdropper+theta0", Adversary(listens=True, knows_theta0=True)),
        ("theta0+server", Adversary(is_server=True, knows_theta0=True)),
    ],
)
def test_parse(text, expected):
    assert Adversary.parse(text) == expected
    assert Adversary.parse(str(expected)) == expected


MALFORMED = "curious()|curious(-1)|curious(a)|curious(1|curious 1|curious(0)+|Eavesdropper|spy"


@pytest.mark.parametrize("text", MALFORMED.split("|"))
def test_a_parse_error_shows_the_syntax(text):
    with pytest.raises(Misuse, match=r'not understood.*Give e\.g\. "eavesdropper"'):
        Adversary.parse(text)


def test_an_adversary_must_see_messages():
    with pytest.raises(Misuse, match="sees no messages"):
        Adversary.parse("theta0")


@pytest.mark.parametrize("clients", [(), (-1,), (True,), (1.0,), ("0",)])
def test_curious_needs_numbers_of_clients(clients):
    with pytest.raises(Misuse, match=r"Give their numbers"):
        Adversary.curious(*clients)


def test_union():
    both = CURIOUS(1) | TAP((0, 1)) | OPERATOR
    assert both == Adversary(frozenset({1}), True, frozenset({(0, 1)}), True)
    assert (TAP((0, 1)) | TAP((2, 3))).edges == {(0, 1), (2, 3)}
    assert (TAP((0, 1)) | TAP()) == (TAP() | TAP((0, 1))) == TAP()  # all edges and some of them
    assert (CURIOUS(1) | TAP((0, 1))).edges == {(0, 1)}  # curious clients tap no other edges
    assert (Adversary(knows_theta0=True) | CURIOUS(1)).knows_theta0
    assert str(CURIOUS(2, 1) | TAP((0, 1))) == "curious(1,2)+eavesdropper on [(0, 1)]"


# --- Visible messages ---


@pytest.mark.parametrize(
    ("adversary", "sources"),
    [
        (CURIOUS(1), [0, 1, 2]),  # its neighbours' and its own
        (CURIOUS(0), [0, 1]),
        (CURIOUS(0, 3), [0, 1, 2, 3]),
        (TAP(), [0, 1, 2, 3]),
        (TAP((2, 3)), [2]),
        (TAP((2, 3)) | CURIOUS(0), [0, 1, 2]),
        (OPERATOR, []),
        (Adversary(knows_theta0=True), []),
    ],
)
def test_mixed_rows_go_to_all_neighbours(adversary, sources):
    assert adversary.sees(mixed(0, 1, 2, 3), PATH).nonzero().flatten().tolist() == sources
    backwards = adversary.sees(mixed(3, 1), PATH).tolist()  # by source, not by index
    assert backwards == [3 in sources, 1 in sources]


def test_only_the_target_of_a_directed_edge_sees_a_message():
    assert CURIOUS(1).sees(mixed(0, 1), [(0, 1)]).tolist() == [True, True]
    assert CURIOUS(0).sees(mixed(0, 1), [(0, 1)]).tolist() == [True, False]
    assert TAP().sees(mixed(0, 1), [(0, 1)]).tolist() == [True, False]


@pytest.mark.parametrize(
    ("adversary", "clear", "private"),
    [
        (CURIOUS(0), [(0, 1), (1, 0)], [(0, 1), (1, 0)]),
        (CURIOUS(1), PATH[:4], PATH[:4]),
        (TAP(), PATH, []),
        (TAP((1, 2)), [(1, 2)], []),
        (CURIOUS(0) | TAP((1, 2)), [*PATH[:2], (1, 2)], PATH[:2]),
        (CURIOUS(0) | TAP(), PATH, PATH[:2]),
        (OPERATOR, [], []),
    ],
)
def test_rows_sent_along_edges(adversary, clear, private):
    for is_private, expected in ((False, clear), (True, private)):
        seen = adversary.sees(sent(is_private), PATH).tolist()
        assert [edge for edge, is_seen in zip(PATH, seen, strict=True) if is_seen] == expected


def test_messages_to_and_from_the_server():
    for everything in (OPERATOR, TAP(), OPERATOR | CURIOUS(1)):
        assert everything.sees(up(0, 1, 2), PATH).tolist() == [True] * 3
        assert everything.sees(DOWN, PATH).tolist() == [True]
    assert CURIOUS(1).sees(up(0, 1, 2), PATH).tolist() == [False, True, False]  # no neighbour's
    assert CURIOUS(1).sees(DOWN, PATH).tolist() == [True]
    assert Adversary(knows_theta0=True).sees(DOWN, PATH).tolist() == [False]


def test_view():
    messages = [mixed(0, 1, 2, 3), up(0, 2), sent(private=True), DOWN]
    transcript = Transcript(clients=4, edges=PATH, messages=messages)
    seen = [(index, rows.tolist()) for index, rows in CURIOUS(3).view(transcript)]
    assert seen == [(0, [2, 3]), (2, [4, 5]), (3, [0])]
    assert list(Adversary().view(transcript)) == []


def test_unknowns_that_are_known_without_messages():
    shared = Unknown("noise", 3, 0, 2, "delta")
    for unknown in (Unknown("gradient", 4, 2), Unknown("nonlinear", 1, 2, tag="sign"), shared):
        assert CURIOUS(2).knows(unknown)
        assert not CURIOUS(1).knows(unknown)
        assert not (TAP() | Adversary(knows_theta0=True)).knows(unknown)
    assert CURIOUS(0).knows(shared)  # both ends have it
    first = Unknown("theta0", 0, 1)
    assert CURIOUS(1).knows(first)
    assert not CURIOUS(2).knows(first)
    assert Adversary(knows_theta0=True).knows(first)


# --- On a graph ---


def test_an_adversary_that_is_not_on_the_graph_is_refused():
    with pytest.raises(Misuse, match=r"corrupts client 4.*0 to 3"):
        CURIOUS(4).check_graph(4, PATH)
    with pytest.raises(Misuse, match=r"every client.*at least one honest"):
        CURIOUS(0, 1, 2, 3).check_graph(4, PATH)
    with pytest.raises(Misuse, match=r"taps \(0, 2\), which is no edge"):
        TAP((0, 1), (0, 2)).check_graph(4, PATH)
    (CURIOUS(0, 1, 2) | TAP((3, 2))).check_graph(4, PATH)


def test_honest_component():
    transcript = Transcript(clients=4, edges=PATH)
    assert TAP().honest_component(2, transcript) == {0, 1, 2, 3}
    assert CURIOUS(1).honest_component(0, transcript) == {0}
    assert CURIOUS(1).honest_component(3, transcript) == {2, 3}
    one_way = Transcript(clients=3, edges=[(0, 1), (1, 2), (2, 0)])
    assert CURIOUS(1).honest_component(0, one_way) == {0, 2}  # connected in either direction


def test_a_server_connects_all_honest_clients():
    graph = tacit.Topology.star(4).mixing("metropolis", lazy=True)
    pair = [run_on_symbols(kind(lr=0.1), graph, 1).transcript for kind in (tacit.FedAvg, tacit.DSG)]
    assert [CURIOUS(0).honest_component(2, transcript) for transcript in pair] == [{1, 2, 3}, {2}]


def test_an_eavesdropper_on_named_edges_does_not_see_the_server():
    for message in (up(0, 1, 2), DOWN):
        assert not TAP((0, 1)).sees(message, [(0, 1)]).any()
        assert TAP().sees(message, [(0, 1)]).all()


def test_it_may_know_only_what_its_clients_share_with_one():
    one = replace(CURIOUS(1, 2), shares_with=0)
    shared = [Unknown("noise", 3, 0, 1, "delta"), Unknown("mask", 3, 2, 0, "delta")]
    others = [
        Unknown("gradient", 3, 1),
        Unknown("noise", 3, 1, tag="own"),
        Unknown("noise", 3, 1, 2, "delta"),  # between its clients
        Unknown("noise", 3, 0, 3, "delta"),  # with an honest one
        Unknown("noise", 3, 0, tag="own"),
        Unknown("theta0", 0, 1),
    ]
    assert all(map(one.knows, shared))
    assert not any(map(one.knows, others))
    assert one.knows(Unknown("theta0", 0, EVERY_CLIENT))
    assert CURIOUS(1, 2).knows(others[0])
