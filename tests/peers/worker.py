"""One process that is the same node of several federations, one after the other."""

import os
from pathlib import Path


def be_node(name, folders):
    """Run the node `name` of each federation; its log goes where that of a real one goes."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from tacit.peer.federation.operator import FederationFolder
    from tacit.peer.monitoring.event_log import EventLog
    from tacit.peer.node.node import Node, Options

    for folder in folders:
        node = FederationFolder(Path(folder)).node(name)
        node.run.mkdir(parents=True, exist_ok=True)
        with (node.run / "log.jsonl").open("a", encoding="utf-8") as log:
            Node(node, Options(), EventLog(log, name)).run()
