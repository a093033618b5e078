"""Run folders as `tacit run` leaves them, without running anything."""

import json
import math

from tacit.record.history import History, Record, Spread

ACCURACY = {"mean": 81.234, "min": 71.5, "max": 91.75, "average_model": 86.125}


def make_run(
    folder, algorithm="lppa", seed=0, lr=0.1, accurate=True, rounds=6, config="", **summary
):
    folder.mkdir(parents=True)
    records = []
    for k in range(rounds):
        accuracy = (
            Spread(50.0 + 5 * k, 40.0 + 5 * k, 60.0 + 5 * k, 55.0 + 5 * k) if accurate else None
        )
        loss = math.nan if k == 3 else 2.0 / (k + 1)
        records.append(
            Record(
                k, 9 * k, accuracy, Spread(loss, loss, loss, loss), 0.5**k, 1_000_000 * k, 0.2 * k
            )
        )
    (folder / "history.jsonl").write_text(History(records).to_jsonl())
    outcome = {
        "algorithm": algorithm, "steps": 9 * rounds, "rounds": rounds, "clients": 4,
        "parameters": 7850, "accuracy": ACCURACY if accurate else None,
        "loss": {"mean": 0.33312, "min": 0.2, "max": 0.4, "average_model": 0.30541},
        "consensus_distance": 0.03125, "bytes_sent": 5_000_000, "wall_seconds": 125.0, "seed": seed,
    } | summary  # fmt: skip
    (folder / "summary.json").write_text(json.dumps(outcome))
    text = f'[algorithm]\nname = "{algorithm}"\nlr = {lr}\n\n[run]\nseed = {seed}\n{config}'
    (folder / "config.toml").write_text(text)
    ring = [[k, (k + 1) % 4] for k in range(4)]
    picture = {"description": "ring(4), metropolis", "clients": 4, "directed": False, "edges": ring}
    (folder / "graph.json").write_text(json.dumps(picture | {"positions": None}))
    held = {
        "description": "Dirichlet(0.5)",
        "classes": ["zero", "one"],
        "counts": [[7, 3], [1, 9], [5, 5], [0, 2]],
    }
    (folder / "partition.json").write_text(json.dumps(held))
    return folder
