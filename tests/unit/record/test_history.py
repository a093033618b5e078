import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from tacit.core.errors import Misuse
from tacit.record.history import History, Record, Spread, decibels

numbers = st.floats(allow_infinity=False)
spreads = st.builds(Spread, numbers, numbers, numbers, numbers)
counts = st.integers(0, 2**60)
seconds = st.floats(0, 1e9, allow_nan=False)
optional_spreads, optional_seconds = st.none() | spreads, st.none() | seconds
names = st.sampled_from(["auc", "f1", "my metric"])
records = st.builds(
    Record,
    counts,
    counts,
    optional_spreads,
    spreads,
    numbers,
    counts,
    seconds,
    optional_seconds,
    optional_seconds,
    st.dictionaries(names, spreads),
    st.dictionaries(names, spreads),
    st.dictionaries(names, st.lists(numbers, max_size=3)),
)


def record(step=0, accuracy=None, loss=1.0, distance=0.5):
    return Record(
        step // 2, step, accuracy, Spread(loss, loss, loss, loss), distance, 10 * step, 0.1
    )


@settings(max_examples=60)
@given(st.lists(records, max_size=4))
def test_jsonl_round_trip(given_records):
    text = History(given_records).to_jsonl()
    back = History.from_jsonl(text)
    assert repr(back.records) == repr(given_records)  # NaN is not equal to itself
    assert len(text.splitlines()) == len(given_records)


def test_numbers_that_are_not_finite_become_null():
    text = History([record(loss=math.nan, distance=math.inf)]).to_jsonl()

    def fail(constant):
        raise AssertionError(constant)

    line = json.loads(text, parse_constant=fail)
    assert line["loss"]["mean"] is None
    assert line["consensus_distance"] is None
    assert line["accuracy"] is None


def test_blank_lines_are_skipped():
    text = History([record(1), record(2)]).to_jsonl()
    assert [r.step for r in History.from_jsonl("\n" + text.replace("\n", "\n\n"))] == [1, 2]


def test_a_column_is_one_metric_over_time():
    history = History([record(0), record(5, accuracy=Spread(90, 80, 95, 92), loss=0.25)])
    assert history.column("step") == [0, 5]
    assert history.column("loss.max") == [1.0, 0.25]
    accuracy = history.column("accuracy.average_model")
    assert math.isnan(accuracy[0])
    assert accuracy[1] == 92


def test_a_history_is_a_sequence():
    history = History(record(step) for step in range(4))
    assert len(history) == 4
    assert history[-1].step == 3
    assert [r.step for r in history[1:3]] == [1, 2]
    assert [r.step for r in history] == [0, 1, 2, 3]
    assert not History()


def test_msd_is_optional():
    history = History([replace(record(1), msd=0.25), record(2)])
    lines = history.to_jsonl().splitlines()
    assert json.loads(lines[0])["msd"] == 0.25
    back = History.from_jsonl(history.to_jsonl()).column("msd")
    assert back[0] == 0.25
    assert math.isnan(back[1])
    old = json.loads(lines[0])
    del old["msd"]
    assert History.from_jsonl(json.dumps(old))[0].msd is None
    assert "MSD -6.0 dB" in repr(History(history[:1]))
    assert "MSD" not in repr(history)


def test_decibels():
    assert decibels(0.001) == pytest.approx(-30)
    assert decibels(2.0) == pytest.approx(3.0103, rel=1e-4)
    assert decibels(0.0) == -math.inf
    assert math.isnan(decibels(None))
    assert math.isnan(decibels(math.nan))


@pytest.mark.parametrize("path", ["acc", "los", "accuracy.average", "step.mean"])
def test_unknown_column_lists_the_known_ones(path):
    spread = Spread(1.0, 1.0, 1.0, 1.0)
    records = History([Record(0, 0, spread, spread, 0.0, 0, 0.0)])
    with pytest.raises(Misuse, match=r"no column.*accuracy\.mean"):
        records.column(path)


def test_columns_of_metrics_and_clients():
    spread = Spread(0.5, 0.25, 0.75, 0.6)
    measured = replace(
        record(1),
        baseline=70.0,
        metrics={"auc": spread},
        own_test={"auc": replace(spread, mean=0.4)},
        per_client={"client": [0, 3], "auc": [0.25, 0.75], "own_test.auc": [0.1, math.nan]},
    )
    history = History.from_jsonl(History([record(), measured]).to_jsonl())
    assert history.metrics == ["auc", "own_test.auc"]
    assert history.column("auc.average_model")[1] == 0.6
    assert math.isnan(history.column("auc.mean")[0])
    assert history.column("own_test.auc.mean")[1] == 0.4
    assert history.column("auc.clients.3")[1] == 0.75
    assert math.isnan(history.column("own_test.auc.clients.3")[1])
    assert history.column("baseline")[1] == 70
    for name in history.columns:
        assert len(history.column(name)) == 2
    with pytest.raises(Misuse, match=r"Did you mean 'auc\.mean'"):
        history.column("auk.mean")


def test_a_record_without_metrics_has_the_keys_of_before_and_the_baseline():
    assert list(record().as_dict()) == [
        "round", "step", "accuracy", "loss", "consensus_distance", "bytes_sent", "wall_seconds",
        "msd", "baseline",
    ]  # fmt: skip
