"""Nodes that bring models with other frozen weights do not train together."""

import io
import textwrap

import pytest
from federations import federation, plan

from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node.node import Node, NodeOptions

MODULE = """
    import torch
    import tacit
    from torch import nn

    def task(name):
        torch.manual_seed(int(name == "n2"))
        base = nn.Linear(4, 3)
        torch.manual_seed(0)
        parts = [(torch.randn(40, 4), torch.arange(40) % 3)]
        return tacit.Task(tacit.models.lora(base, rank=1), parts, batch_size=8)
"""


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    (tmp_path / "frozen_base.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.syspath_prepend(tmp_path)
    home = federation(tmp_path / "f", plan({"name": "dsgt", "lr": 0.1}, clients=3), clients=3)
    options = NodeOptions("frozen_base:task", allowed_code=("frozen_base",))
    names = ("n0", "n1", "n2")
    return [Node(home.node(name), options, EventLog(io.StringIO(), name)).shared for name in names]


def test_only_nodes_with_the_same_frozen_weights_agree(nodes):
    first, same, other = nodes
    assert first.find_mismatch(same.node_info()) is None
    assert "other frozen weights" in first.find_mismatch(other.node_info())
