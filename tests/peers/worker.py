"""One process that is the same node of several federations, one after the other: starting Python takes longest."""

import os
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

from tacit.peer.federation import FederationFolder
from tacit.peer.journal import Journal
from tacit.peer.node import Node, Options

name, *folders = sys.argv[1:]
for folder in folders:
    node = FederationFolder(Path(folder)).node(name)
    Node(node, Options(), Journal(sys.stderr, name)).run()
