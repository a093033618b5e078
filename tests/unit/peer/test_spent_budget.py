"""What is spent of a promised guarantee, in a node's status and metrics."""

import pytest

from tacit.peer.monitoring.metrics import Metrics
from tacit.peer.node.fresh_keys import FreshKeys
from tacit.peer.node.spent_budget import SpentBudget
from tacit.peer.wire.messages import ExchangeId
from tacit.privacy.guarantee import Privacy

BUDGET = Privacy(epsilon=3.0, delta=1e-4).budget(0.1, steps=40, clients=5)


@pytest.fixture
def spent(tmp_path):
    """Three sums under the first roster and two under the second."""
    for generation, ticks in ((1, [1, 2, 3]), (2, [3, 4])):
        records = FreshKeys(tmp_path, generation)
        for tick in ticks:
            records.check_sent(ExchangeId(generation, tick, 0), bytes([tick]) * 32)
    return SpentBudget(BUDGET, records)


def test_sums_of_all_rosters_are_counted_once(spent, tmp_path):
    assert spent.as_dict() == {
        "sums": 5,
        "epsilon_spent": BUDGET.spent(5),
        "epsilon": 3.0,
        "delta": 1e-4,
    }
    after_a_restart = SpentBudget(BUDGET, FreshKeys(tmp_path, 2))
    after_a_restart.records.check_sent(ExchangeId(2, 4, 0), bytes([4]) * 32)
    assert after_a_restart.as_dict()["sums"] == 5


def test_metrics_follow_the_records(spent):
    metrics = Metrics()
    spent.show_in(metrics)
    before = _numbers(metrics)
    spent.records.check_sent(ExchangeId(2, 5, 0), bytes([5]) * 32)
    after = _numbers(metrics)
    assert (before["tacit_privacy_sums"], after["tacit_privacy_sums"]) == (5, 6)
    assert after["tacit_privacy_epsilon_spent"] == BUDGET.spent(6)
    assert BUDGET.spent(6) > before["tacit_privacy_epsilon_spent"]
    assert (after["tacit_privacy_epsilon"], after["tacit_privacy_delta"]) == (3.0, 1e-4)


def _numbers(metrics):
    lines = [line.split() for line in metrics.text().splitlines() if not line.startswith("#")]
    return {name: float(number) for name, number in lines}
