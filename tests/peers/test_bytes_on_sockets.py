"""What nodes send, counted by TCP proxies between them and not by the nodes themselves.

A row has 4 bytes for each parameter. Proxies count all that TCP carries in the whole run: rows, TLS
records, HTTP/2 frames, requests, salts and handshakes. Nothing is subtracted. TCP and IP headers
are not counted; they are the same part of any traffic.
"""

import pytest
from chaos import FRESH, LONG, NAMES, ForkedFederation, Proxies
from federations import PRIVATE, federation, free_ports, plan

from tacit.config.build import build
from tacit.graph.spanning_tree import SpanningTree

ITERATIONS, HIDDEN = 12, 256
ROW_BYTES_PER_PARAMETER = 4


def counted(folder, algorithm):
    """What a federation sends per iteration, in rows.

    Returns:
        The federation, what came from the server of each node, and all that went to the servers.
    """
    config = plan(algorithm, rounds=1, iterations=ITERATIONS, hidden=HIDDEN)
    home = federation(folder, config)
    fronts = [int(member.address.rpartition(":")[2]) for member in home.members]
    backs = free_ports(len(NAMES))
    listen = {name: f"127.0.0.1:{port}" for name, port in zip(NAMES, backs, strict=True)}
    ports = dict(zip(NAMES, zip(fronts, backs, strict=True), strict=True))
    with (
        Proxies(ports, seed=0) as proxies,
        ForkedFederation(home, listen=listen) as running,
    ):
        assert running.wait(LONG), [node.last_error() for node in running.failed()]
    row = ROW_BYTES_PER_PARAMETER * build(config).task.parameters
    found = {key: count / row / ITERATIONS for key, count in proxies.forwarded.items()}
    sent = {name: found["from", name] for name in NAMES}
    return home, sent, sum(found["to", name] for name in NAMES)


@pytest.mark.slow
def test_a_masked_sum_costs_two_rows_for_each_edge_of_the_tree(tmp_path):
    home, private, requests = counted(tmp_path / "private", PRIVATE)
    _, lppa, more_requests = counted(tmp_path / "lppa", FRESH)
    for name, rows, other in (("private-sgd", private, requests), ("lppa", lppa, more_requests)):
        total = sum(rows.values())
        print(
            f"{name}: {total:.4f} rows per iteration, {total / len(NAMES):.4f} per client; "
            f"requests {other:.4f}"
        )
    print(f"ratio {sum(lppa.values()) / sum(private.values()):.4f}")
    graph = home.manifest().graph
    tree = SpanningTree.of(graph.edges, graph.clients)
    for at, name in enumerate(NAMES):
        # One row to the parent, which the root does not have, and one to each child.
        rows = (tree.parent[at] >= 0) + len(tree.children(at))
        assert private[name] == pytest.approx(rows, rel=0.01)
        # Model and tracker, to both neighbours.
        assert lppa[name] == pytest.approx(4, rel=0.01)
    edges = len(NAMES) - 1
    assert sum(private.values()) + requests == pytest.approx(2 * edges, rel=0.01)
    assert sum(lppa.values()) + more_requests == pytest.approx(4 * len(NAMES), rel=0.01)
