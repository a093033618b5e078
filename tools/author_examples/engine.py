"""An engine: all clients in one process, with a dense matrix as network."""

import torch

import tacit


class Matrix:
    def __init__(self, graph):
        self.graph = graph

    def mix(self, **rows):
        return tuple(self.graph.W @ x for x in rows.values())


def simulate(setting, steps):
    algorithm, here = setting.algorithm, tacit.host(setting, Matrix(setting.graph))
    state = algorithm.start(here)
    for t in range(steps):
        state = algorithm.step(state, here.at(t))
    return state.theta


task = tacit.quadratic(torch.eye(2).double().repeat(5, 1, 1), torch.ones(5, 2).double())
run = tacit.run(task, "dsgt", steps=9, lr=0.1)
result = torch.allclose(simulate(run.setting, 9), run.theta)
