from types import SimpleNamespace

from rich.console import Console

from tacit.cli.federation_tables import status_table
from tacit.peer.federation.federation_client import NodeReport
from tacit.peer.wire import wire_pb2 as wire

SPENT = wire.SpentBudget(sums=580, epsilon_spent=2.0622, epsilon=3.0, delta=1e-5)


def shown(*statuses):
    """What the table prints for nodes a, b, … with these statuses."""
    members = (SimpleNamespace(name=name) for name in "abc")
    reports = [NodeReport(*pair, "away") for pair in zip(members, statuses, strict=False)]
    console = Console(width=150)
    with console.capture() as capture:
        console.print(status_table("clinics", reports))
    return capture.get()


def test_what_is_spent_of_a_budget_has_its_columns():
    status = wire.Status(phase="training", step=580, steps=1160, round_length=29, privacy=SPENT)
    text = shown(status, None)
    assert "sums" in text
    assert "ε (δ = 1e-05)" in text
    assert "2.06 of 3" in text
    assert "b does not respond (away): it is not running, has finished and exited" in text


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
