"""Nodes: each client is hosted apart from the others, and sends its row through queues."""

from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import torch

import tacit


class Queues:
    def __init__(self, client, boxes):
        self.client, self.boxes = client, boxes

    def connect(self, graph):
        self.graph = graph

    def mix(self, **rows):
        graph = self.graph
        for target in map(int, graph.out_target):
            self.boxes[self.client, target].put(rows)
        received = [self.boxes[source, self.client].get() for source in map(int, graph.in_source)]
        return tuple(
            graph.own(x)
            + graph.total_in(graph.weighted(torch.cat([sent[tag] for sent in received])))
            for tag, x in rows.items()
        )


def train(setting, client, boxes, steps):
    net = Queues(client, boxes)
    here = tacit.host(setting, net, [client])
    net.connect(here.graph)
    state = setting.algorithm.start(here)
    for t in range(steps):
        state = setting.algorithm.step(state, here.at(t))
    return state.theta


task = tacit.quadratic(torch.eye(2).double().repeat(3, 1, 1), torch.ones(3, 2).double())
run = tacit.run(task, "dsgt", steps=9, lr=0.1)
boxes = defaultdict(Queue)
with ThreadPoolExecutor(3) as pool:
    rows = list(pool.map(lambda client: train(run.setting, client, boxes, 9), range(3)))
result = torch.allclose(torch.cat(rows), run.theta)
