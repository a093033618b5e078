"""The exchanges of an algorithm over fake neighbours: what is requested, summed and refused."""

import hashlib
from types import SimpleNamespace

import pytest
import torch
from served_node import ServedNode

from support.clinics import clinics
from tacit.core.errors import Diverged
from tacit.engines.stacked import StackedNetwork
from tacit.peer.node.network import PeerNetwork
from tacit.peer.wire.messages import ExchangeId, Rejected, pack


class FakeClient:
    """A neighbour that sends the rows it is given, and notes what is requested."""

    def __init__(self, member, events):
        self.member, self.report, self.refusal = member, "", ""
        self._events, self.rows, self.frames = events, None, []

    @property
    def name(self):
        return self.member.name

    def request(self, exchange, saved):
        self._events.append(("request", self.name, exchange, saved))

    def request_early(self, exchange, saved):
        self._events.append(("early", self.name, exchange, saved))

    def receive(self, expected, decode, on_wait, frame=None, keep=None):
        self._events.append(("receive", self.name, expected.envelope.exchange))
        like = expected._like
        rows = self.rows or {tag: torch.zeros_like(row) for tag, row in like.items()}
        self.frames.append(frame)
        frame = bytearray(expected.size) if frame is None else frame
        frame[:] = pack(expected.envelope, rows).frame
        return decode(expected.unpack(frame))


class World:
    """A node with fake neighbours on both sides."""

    def __init__(self, home, name="a"):
        self.node = ServedNode(home, name)
        self.state, self.events, self.recorded = self.node.state, [], []
        manifest = self.state.manifest
        self.clients = [FakeClient(one, self.events) for one in manifest.in_neighbours(name)]
        self.network = PeerNetwork(
            self.state, self.clients, lambda *what: self.recorded.append(what)
        )

    def tick(self, tick, exchanges=1):
        """One iteration with so many exchanges."""
        self.network.start_tick(tick)
        for _ in range(exchanges):
            self.network.mix(x=torch.ones(1, 3))

    def early(self):
        """What was requested early since the last call, of the first neighbour."""
        name = self.clients[0].name
        found = [event for event in self.events if event[0] == "early"]
        self.events.clear()
        others = [event[2:] for event in found if event[1] != name]
        ours = [event[2:] for event in found if event[1] == name]
        assert others == ours  # there are two neighbours
        return [(exchange.tick, exchange.index) for exchange, _ in ours]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return clinics(tmp_path_factory.mktemp("network") / "f", "abcd")


@pytest.fixture
def world(home):
    return World(home)


# --- requests before their time -------------------------------------------------------------------


@pytest.mark.parametrize("exchanges", [1, 2, 3])
def test_the_next_exchange_is_requested_when_the_last_is_done(world, exchanges):
    for tick in (1, 2):
        world.tick(tick, exchanges)
        assert world.early() == []  # not yet known
    for tick in (3, 4, 5):
        world.tick(tick, exchanges)
        later = [(tick, index) for index in range(1, exchanges)]
        assert world.early() == [*later, (tick + 1, 0)]


def test_an_early_request_says_what_is_saved_and_of_which_roster(world):
    world.tick(1)
    world.tick(2)
    world.network.saved = 1
    world.tick(3)
    early = [event for event in world.events if event[0] == "early"]
    assert early == [("early", name, ExchangeId(1, 4, 0), 1) for name in ("b", "d")]


def test_all_messages_are_requested_before_the_first_is_awaited(world):
    world.tick(1)
    assert [event[:2] for event in world.events] == [
        ("request", "b"), ("request", "d"), ("receive", "b"), ("receive", "d"),
    ]  # fmt: skip


@pytest.mark.parametrize("exchanges", [1, 2])
def test_nothing_is_requested_beyond_the_last_iteration(world, exchanges):
    for tick in range(97, 100):
        world.tick(tick, exchanges)
    world.early()
    world.tick(100, exchanges)
    assert world.early() == [(100, index) for index in range(1, exchanges)]


@pytest.mark.parametrize("odd", [0, 1, 3])
def test_an_algorithm_with_irregular_exchanges_is_no_longer_predicted(world, odd):
    for tick in (1, 2, 3):
        world.tick(tick, 2)
    assert world.early() == [(3, 1), (4, 0)]
    world.tick(4, odd)
    world.tick(5, 2)
    world.early()
    for tick in range(6, 12):
        world.tick(tick, 2)
        assert world.early() == []


def test_totals_are_never_predicted(world, monkeypatch):
    """Their messages go along a tree, up and down."""
    rows = SimpleNamespace(
        masked=lambda: torch.ones(1, 3, dtype=torch.int32), decode=lambda total: total
    )
    for tick in range(1, 6):
        world.network.start_tick(tick)
        world.network.total(x=rows)
    assert world.early() == []


# --- sums -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "place"), [("a", 0), ("b", 1), ("d", 2)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_mixing_rounds_like_the_product_with_w(home, name, place, dtype):
    """Own row first, between two others, and last: bit by bit what a simulation computes."""
    world = World(home, name)
    manifest, network = world.state.manifest, world.network
    assert network._own_index == place
    generator = torch.Generator().manual_seed(place)
    rows = {
        tag: torch.randn(4, 1001, generator=generator, dtype=dtype) * scale
        for tag, scale in (("theta", 1.0), ("gamma", 1e3))
    }
    for client in world.clients:
        at = manifest.position(client.name)
        client.rows = {tag: row[at] for tag, row in rows.items()}
    own = manifest.position(name)
    found = network.mix(**{tag: row[[own]] for tag, row in rows.items()})
    expected = StackedNetwork(manifest.graph, dtype, "cpu").mix(**rows)
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == (1, 1001)
        assert torch.equal(ours[0], theirs[own])


def test_mixing_leaves_the_own_row_as_it_is(world):
    own = torch.ones(1, 3)
    (mixed,) = world.network.mix(x=own)
    assert torch.equal(own, torch.ones(1, 3))
    assert mixed.data_ptr() != own.data_ptr()


def test_messages_that_are_summed_share_their_memory(world):
    """One at a time is in memory, so each must be added before the next arrives."""
    for number, client in enumerate(world.clients, start=2):
        client.rows = {"x": torch.full((3,), float(number))}
    for _ in range(2):
        (mixed,) = world.network.mix(x=torch.ones(1, 3))
        assert torch.allclose(mixed, torch.full((1, 3), (1 + 2 + 3) / 3))
    frames = [frame for client in world.clients for frame in client.frames]
    assert len(frames) == 4
    assert all(frame is frames[0] for frame in frames)


def test_messages_that_are_kept_have_memory_of_their_own(world):
    world.network.mix(x=torch.ones(1, 3))
    world.network.broadcast(x=torch.ones(1, 3))
    world.network.send("x", torch.ones(2, 3))
    assert [client.frames[1:] for client in world.clients] == [[None, None]] * 2


def test_rows_of_all_neighbours_arrive_in_their_order(world):
    for number, client in enumerate(world.clients, start=2):
        client.rows = {"x": torch.full((3,), float(number))}
    (rows,) = world.network.broadcast(x=torch.ones(1, 3))
    assert rows[:, 0].tolist() == [2, 3]
    assert world.network.send("x", torch.ones(2, 3))[:, 0].tolist() == [2, 3]


def test_what_was_received_is_counted(world):
    world.tick(1)
    assert world.network.received_since_saved == 3 * 4
    world.tick(2, 2)
    assert world.network.received_since_saved == 3 * 3 * 4


# --- numbers that are not finite ------------------------------------------------------------------


@pytest.mark.parametrize("row", [0, 1])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_sent_to_no_neighbour(world, row, value):
    """Even if only the message of one neighbour is."""
    rows = torch.ones(2, 3)
    rows[row, 1] = value
    with pytest.raises(Diverged):
        world.network.send("x", rows)
    assert world.events == world.recorded == world.node.outbox.messages() == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("how", ["mix", "broadcast", "send", "exchange"])
def test_what_is_not_finite_is_not_accepted(world, how, value):
    world.clients[1].rows = {"x": torch.tensor([0.0, value, 0.0])}
    own = torch.ones(3)
    calls = {
        "mix": lambda: world.network.mix(x=own[None]),
        "broadcast": lambda: world.network.broadcast(x=own[None]),
        "send": lambda: world.network.send("x", own.expand(2, 3)),
        "exchange": lambda: world.network.exchange({"": {"x": own}}, {"x": own}),
    }
    with pytest.raises(Rejected, match="NaN or infinity"):
        calls[how]()


def test_what_is_too_large_is_not_accepted(world):
    world.clients[0].rows = {"x": torch.full((3,), 1e7)}
    with pytest.raises(Rejected, match="more than"):
        world.network.mix(x=torch.ones(1, 3))


def test_the_neighbour_with_extreme_numbers_is_named_if_the_state_diverges(world):
    world.clients[1].rows = {"x": torch.full((3,), 9e5)}
    world.tick(1)
    with pytest.raises(Diverged, match="due to d, which sent 9e\\+05 at iteration 1"):
        world.network.mix(x=torch.full((1, 3), float("nan")))


# --- records and waiting --------------------------------------------------------------------------


def test_what_is_sent_is_recorded_before_it_can_be_read(world, monkeypatch):
    in_outbox = []
    network = PeerNetwork(
        world.state,
        world.clients,
        lambda exchange, digest: in_outbox.append((digest, world.node.outbox.messages())),
    )
    network.mix(x=torch.ones(1, 3))
    ((digest, before),) = in_outbox
    (message,) = world.node.outbox.messages()
    assert before == []
    assert digest == hashlib.sha256(message.sha256).digest()


def test_a_node_says_for_whom_it_waits(world, monkeypatch):
    awaited = []

    def receive(client):
        original = client.receive

        def observed(*arguments):
            awaited.append(world.state.awaited)
            return original(*arguments)

        return observed

    for client in world.clients:
        monkeypatch.setattr(client, "receive", receive(client))
    world.tick(1)
    assert awaited == [("b", "d"), ("d",)]
    assert world.state.awaited == ()


def test_an_outbox_that_is_full_makes_the_node_wait(world, monkeypatch):
    reports = iter([["b"], []])
    monkeypatch.setattr(world.node.outbox, "wait_for_space", lambda *_: next(reports))
    phases, report = [], world.state.report
    monkeypatch.setattr(
        world.state, "report", lambda **fields: (phases.append(fields), report(**fields))
    )
    world.tick(1)
    assert phases[0]["waiting_for"] == ("b",)
    assert "do not save" in phases[0]["problem"]
    assert phases[1]["waiting_for"] == ()
