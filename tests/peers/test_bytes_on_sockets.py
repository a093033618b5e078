"""What nodes send, counted by TCP proxies between them and not by the nodes themselves.

A row has 4 bytes for each parameter. Proxies count all that TCP carries in the whole run: rows, TLS
records, HTTP/2 frames, requests, salts and handshakes. Nothing is subtracted. TCP and IP headers
are not counted; they are the same part of any traffic.
"""

import pytest
from chaos import LONG, NAMES, ForkedFederation, Proxies, ports_behind_proxies
from federations import PRIVATE, federation, plan

from tacit.config.build import build
from tacit.graph.spanning_tree import SpanningTree

ITERATIONS, HIDDEN = 12, 256
ROW_BYTES_PER_PARAMETER = 4


def test_a_masked_sum_costs_two_rows_for_each_edge_of_the_tree(tmp_path):
    config = plan(PRIVATE, rounds=1, iterations=ITERATIONS, hidden=HIDDEN)
    home = federation(tmp_path / "f", config)
    ports, listen = ports_behind_proxies(home)
    with (
        Proxies(ports, seed=0) as proxies,
        ForkedFederation(home, listen=listen) as running,
    ):
        assert running.wait(LONG), [node.last_error() for node in running.failed()]
    row = ROW_BYTES_PER_PARAMETER * build(config).task.parameters
    rows = {key: count / row / ITERATIONS for key, count in proxies.forwarded.items()}
    sent = {name: rows["from", name] for name in NAMES}
    requests = sum(rows["to", name] for name in NAMES)
    print(f"{sum(sent.values()):.4f} rows per iteration, requests {requests:.4f}")
    graph = home.manifest().graph
    tree = SpanningTree.of(graph.edges, graph.clients)
    for at, name in enumerate(NAMES):
        # One row to the parent, which the root does not have, and one to each child.
        assert sent[name] == pytest.approx(
            (tree.parent[at] >= 0) + len(tree.children(at)), rel=0.01
        )
    assert sum(sent.values()) + requests == pytest.approx(2 * (len(NAMES) - 1), rel=0.01)
