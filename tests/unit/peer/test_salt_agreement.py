"""All nodes learn all salts, also in directed graphs; a node that starts over is noticed."""

import threading

import pytest
from test_rejoin import QueueNetworks, ring, roster

import tacit
from tacit.peer.node.salt_agreement import agree_on_salts
from tacit.peer.wire.messages import Rejected

GRAPHS = [
    ring(5),
    tacit.Topology.complete(3).mixing("metropolis"),
    tacit.Topology.directed_ring(4).mixing("sinkhorn"),
]


def salt(i):
    return bytes([i + 1]) * 16


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.topology.name)
def test_all_nodes_know_all_salts(graph):
    manifest = roster(graph, generation=2)
    networks, found = QueueNetworks(manifest), {}

    def take_part(i, name):
        found[name] = agree_on_salts(networks.of(manifest, name), salt(i))

    threads = [threading.Thread(target=take_part, args=pair) for pair in enumerate(manifest.names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    expected = {name: salt(i) for i, name in enumerate(manifest.names)}
    assert found == dict.fromkeys(manifest.names, expected)


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: graph.topology.name)
def test_a_node_with_a_new_salt_rejects_what_its_neighbours_have_stored(graph):
    manifest = roster(graph, generation=2)
    networks, sent = QueueNetworks(manifest), {}

    def take_part(i, name):
        network = networks.of(manifest, name)
        plain = network.exchange

        def recording(messages, like, decode):
            sent.setdefault(name, []).append(like)
            return plain(messages, like, decode)

        network.exchange = recording
        agree_on_salts(network, salt(i))

    threads = [threading.Thread(target=take_part, args=pair) for pair in enumerate(manifest.names)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    # The messages of the others are those of before.
    again = networks.of(manifest, "n0")
    earlier = zip(*(sent[other.name] for other in manifest.in_neighbours("n0")), strict=True)
    again.exchange = lambda _messages, _like, decode: [decode(one) for one in next(earlier)]
    with pytest.raises(Rejected, match="another salt of n0"):
        agree_on_salts(again, b"9" * 16)
