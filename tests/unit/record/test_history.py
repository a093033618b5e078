import json
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.core.errors import Misuse
from tacit.record import history
from tacit.record.history import (
    History,
    Record,
    Spread,
    consensus_distance,
    decibels,
    mean_row,
    mean_square_deviation,
    observe,
    observed_clients,
)
from tacit.tasks.evaluation import ModelScores

numbers = st.floats(allow_infinity=False)
spreads = st.builds(Spread, numbers, numbers, numbers, numbers)
counts = st.integers(0, 2**60)
seconds = st.floats(0, 1e9, allow_nan=False)
records = st.builds(
    Record,
    counts,
    counts,
    st.none() | spreads,
    spreads,
    numbers,
    counts,
    seconds,
    st.none() | seconds,
)


def record(step=0, accuracy=None, loss=1.0, distance=0.5):
    return Record(
        step // 2, step, accuracy, Spread(loss, loss, loss, loss), distance, 10 * step, 0.1
    )


@settings(max_examples=60)
@given(st.lists(records, max_size=4))
def test_lines_of_json_and_back(given_records):
    text = History(given_records).to_jsonl()
    back = History.from_jsonl(text)
    assert repr(back.records) == repr(given_records)  # repr, since NaN is not itself
    assert len(text.splitlines()) == len(given_records)


def test_lines_hold_no_nan_which_json_does_not_have():
    text = History([record(loss=math.nan, distance=math.inf)]).to_jsonl()

    def refuse(constant):
        raise AssertionError(constant)

    line = json.loads(text, parse_constant=refuse)
    assert line["loss"]["mean"] is None
    assert line["consensus_distance"] is None
    assert line["accuracy"] is None


def test_blank_lines_are_passed_over():
    text = History([record(1), record(2)]).to_jsonl()
    assert [r.step for r in History.from_jsonl("\n" + text.replace("\n", "\n\n"))] == [1, 2]


def test_a_column_is_one_metric_over_time():
    kept = History([record(0), record(5, accuracy=Spread(90, 80, 95, 92), loss=0.25)])
    assert kept.column("step") == [0, 5]
    assert kept.column("loss.max") == [1.0, 0.25]
    accuracy = kept.column("accuracy.average_model")
    assert math.isnan(accuracy[0])
    assert accuracy[1] == 92


def test_a_history_is_a_sequence():
    kept = History(record(step) for step in range(4))
    assert len(kept) == 4
    assert kept[-1].step == 3
    assert [r.step for r in kept[1:3]] == [1, 2]
    assert [r.step for r in kept] == [0, 1, 2, 3]
    assert not History()


@settings(max_examples=40)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 99))
def test_consensus_distance_is_the_root_mean_square_from_the_mean(clients, width, seed):
    theta = torch.randn(
        clients, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)
    )
    centre = sum(theta) / clients
    expected = math.sqrt(sum(float(torch.dist(row, centre)) ** 2 for row in theta) / clients)
    assert consensus_distance(theta, mean_row(theta)) == pytest.approx(
        expected, rel=1e-12, abs=1e-15
    )


def test_consensus_distance_of_rows_that_agree_is_zero():
    theta = torch.full((5, 3), 0.3)
    assert consensus_distance(theta, mean_row(theta)) == 0


def test_consensus_distance_of_a_diverged_run_is_not_a_number():
    theta = torch.ones(3, 2)
    theta[1, 0] = math.inf
    assert math.isnan(consensus_distance(theta, mean_row(theta)))


def test_the_mean_of_many_float32_rows_is_summed_in_double():
    theta = torch.full((100_000, 1), 0.1)
    assert mean_row(theta).dtype == torch.float32
    assert float(mean_row(theta)) == float(torch.tensor(0.1))


def test_all_clients_are_observed_where_there_are_few():
    assert observed_clients(1) == [0]
    assert observed_clients(history.OBSERVED) == list(range(history.OBSERVED))


@settings(max_examples=40)
@given(st.integers(history.OBSERVED + 1, 100_000))
def test_evenly_spaced_ones_are_observed_where_there_are_many(count):
    chosen = observed_clients(count)
    assert len(chosen) == history.OBSERVED
    assert chosen[0] == 0
    assert chosen[-1] < count
    gaps = {b - a for a, b in zip(chosen, [*chosen[1:], count], strict=True)}
    assert min(gaps) >= 1
    assert max(gaps) - min(gaps) <= 1


class FirstNumber:
    """Judges a model by its first number."""

    def __init__(self, accuracy):
        self.accuracy = accuracy
        self.asked = None

    def models(self, theta, clients):
        self.asked = clients
        return ModelScores(
            theta[:, 0].double(), 10 * theta[:, 0].double() if self.accuracy else None
        )

    def average(self, theta):
        return self.models(theta[None], [])

    def on(self, device):
        return self


@pytest.mark.parametrize("accuracy", [True, False])
def test_observing_summarises_all_models_and_the_average_one(accuracy):
    theta = torch.tensor([[1.0, 0], [2, 0], [6, 0]])
    seen = observe(theta, FirstNumber(accuracy), round=2, step=9, bytes_sent=77, wall_seconds=0.5)
    assert seen.loss == Spread(3, 1, 6, 3)
    assert seen.accuracy == (Spread(30, 10, 60, 30) if accuracy else None)
    assert seen.consensus_distance == pytest.approx(math.sqrt((4 + 1 + 9) / 3))
    assert (seen.round, seen.step, seen.bytes_sent, seen.wall_seconds) == (2, 9, 77, 0.5)


def test_only_some_of_many_models_are_judged_but_all_are_averaged():
    theta = torch.arange(100.0)[:, None]
    seen = observe(theta, FirstNumber(False), round=0, step=0, bytes_sent=0, wall_seconds=0.0)
    chosen = observed_clients(100)
    assert seen.loss.max == chosen[-1]
    assert seen.loss.mean == pytest.approx(sum(chosen) / len(chosen))
    assert seen.loss.average_model == pytest.approx(49.5)


@settings(max_examples=40)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 99))
def test_the_mean_square_deviation_is_over_all_clients(clients, width, seed):
    generator = torch.Generator().manual_seed(seed)
    theta = torch.randn(clients, width, dtype=torch.float64, generator=generator)
    optimum = torch.randn(width, dtype=torch.float64, generator=generator)
    expected = sum(float(torch.dist(row, optimum)) ** 2 for row in theta) / clients
    assert mean_square_deviation(theta, optimum) == pytest.approx(expected, rel=1e-12)


def test_the_mean_square_deviation_is_recorded_where_the_optimum_is_known():
    theta = torch.arange(100.0)[:, None]  # of which 32 are judged
    told = {"round": 0, "step": 0, "bytes_sent": 0, "wall_seconds": 0.0}
    seen = observe(
        theta, FirstNumber(False), optimum=torch.tensor([2.0], dtype=torch.float64), **told
    )
    assert seen.msd == pytest.approx(sum((k - 2) ** 2 for k in range(100)) / 100)
    assert observe(theta, FirstNumber(False), **told).msd is None
    theta[3] = math.inf
    assert math.isnan(observe(theta, FirstNumber(False), optimum=torch.zeros(1), **told).msd)


def test_deviations_are_written_and_lines_without_them_are_read():
    kept = History([replace(record(1), msd=0.25), record(2)])
    lines = kept.to_jsonl().splitlines()
    assert json.loads(lines[0])["msd"] == 0.25
    back = History.from_jsonl(kept.to_jsonl()).column("msd")
    assert back[0] == 0.25
    assert math.isnan(back[1])
    old = json.loads(lines[0])
    del old["msd"]
    assert History.from_jsonl(json.dumps(old))[0].msd is None
    assert "MSD -6.0 dB" in repr(History(kept[:1]))
    assert "MSD" not in repr(kept)


def test_decibels():
    assert decibels(0.001) == pytest.approx(-30)
    assert decibels(2.0) == pytest.approx(3.0103, rel=1e-4)
    assert decibels(0.0) == -math.inf
    assert math.isnan(decibels(None))
    assert math.isnan(decibels(math.nan))


@pytest.mark.parametrize("path", ["acc", "loss", "accuracy.average", "step.mean"])
def test_an_unknown_column_is_refused_with_the_known_ones(path):
    spread = Spread(1.0, 1.0, 1.0, 1.0)
    records = History([Record(0, 0, spread, spread, 0.0, 0, 0.0)])
    with pytest.raises(Misuse, match=r"no column.*accuracy\.mean"):
        records.column(path)
