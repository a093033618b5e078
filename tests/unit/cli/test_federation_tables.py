import json
import re
from types import SimpleNamespace

from rich.console import Console

from tacit.cli.federation_nodes import finished_nodes
from tacit.cli.federation_tables import status_table
from tacit.config.loading import make_config
from tacit.peer.federation.federation_client import NodeReport
from tacit.peer.federation.operator import create
from tacit.peer.node.finished_peers import FinishedPeers
from tacit.peer.wire import wire_pb2 as wire

SPENT = wire.SpentBudget(sums=580, epsilon_spent=2.0622, epsilon=3.0, delta=1e-5)


def shown(*statuses, ended=()):
    """What the table prints for nodes a, b, … with these statuses."""
    members = (SimpleNamespace(name=name) for name in "abc")
    reports = [NodeReport(*pair, "away") for pair in zip(members, statuses, strict=False)]
    console = Console(width=150)
    with console.capture() as capture:
        console.print(status_table("clinics", reports, ended))
    return capture.get()


def test_what_is_spent_of_a_budget_has_its_columns():
    status = wire.Status(phase="training", step=580, steps=1160, round_length=29, privacy=SPENT)
    text = shown(status, None)
    assert "sums" in text
    assert "ε (δ = 1e-05)" in text
    assert "2.06 of 3" in text
    assert "b does not respond (away): it is not running, has finished and exited" in text


def test_nodes_that_have_finished_and_exited_are_no_problem():
    text = shown(wire.Status(phase="training", step=5, steps=9), None, None, ended={"b"})
    assert re.search(r"b .* finished", text)
    assert "b does not respond" not in text
    assert "c does not respond" in text


def finish(node, generation=1):
    node.run.mkdir(exist_ok=True)
    (node.run / "summary.json").write_text(json.dumps({"generation": generation}))


def test_files_tell_which_nodes_have_finished_the_newest_roster(tmp_path):
    config = make_config({}, ["algorithm.lr=0.1", "run.iterations_per_round=5"])
    nodes = {name: f"127.0.0.1:{port}" for port, name in enumerate("abc", 1)}
    federation = create(tmp_path / "clinic", "clinic", nodes, config)
    assert finished_nodes(federation.path) == set()
    finish(federation.node("a"))
    finish(federation.node("b"), generation=0)
    assert finished_nodes(federation.path) == {"a"}
    # A node knows of its neighbours, too.
    own = federation.node("a")
    FinishedPeers(own.run / "finished.json", own.manifest().number).add("c")
    assert finished_nodes(own.path) == {"a", "c"}


def test_without_a_guarantee_there_is_no_column_for_it():
    text = shown(wire.Status(phase="training", step=580, steps=1160, round_length=29))
    assert "580/1160" in text
    assert "sums" not in text
    assert "ε" not in text


def test_an_accuracy_stands_beside_its_baseline():
    scores = {"accuracy": 89.9, "baseline": 89.75, "loss": 0.00001234}
    text = shown(wire.Status(phase="training", step=5, steps=9, **scores))
    assert "majority" in text
    assert "89.90 %" in text
    assert "89.75 %" in text
    assert "1.234e-05" in text


def test_suspended_members_are_named_with_the_time():
    suspended = [wire.Suspension(name="c", since=1_800_000_000)]
    text = shown(wire.Status(phase="training", step=5, steps=9, epoch=1, suspended=suspended))
    assert "c is suspended since 2027-01-15 08:00 UTC: the others go on without it" in text
