"""Twenty nodes on one machine finish a short run, and agree with the simulator."""

from federations import federation, models, plan, relative_distance, run_in_turn, simulated


def test_twenty_nodes_finish(tmp_path):
    config = plan({"name": "lppa", "lr": 0.05}, rounds=1, iterations=8, clients=20)
    home = federation(tmp_path / "f", config, clients=20)
    run_in_turn([home.path], [f"n{i}" for i in range(20)], seconds=300)
    assert relative_distance(models(home), simulated(home)) < 1e-6
