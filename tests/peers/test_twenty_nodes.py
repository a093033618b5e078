"""Twenty nodes on one machine finish a short run, and agree with the simulator."""

import torch
from federations import federation, models, plan, run_in_turn, simulated


def test_twenty_nodes_finish(tmp_path):
    home = federation(
        tmp_path / "f",
        plan({"name": "lppa", "lr": 0.05}, rounds=1, iterations=8, clients=20),
        clients=20,
    )
    run_in_turn([home.path], [f"n{i}" for i in range(20)], seconds=300)
    found, expected = models(home), simulated(home)
    assert torch.linalg.norm((found - expected).double()) < 1e-6 * torch.linalg.norm(
        expected.double()
    )
