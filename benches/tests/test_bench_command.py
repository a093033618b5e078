"""Output of `tacit bench`."""

import json
from dataclasses import replace

import pytest

from tacit_benches import mix, scaling
from tacit_benches.workloads import W6, WORKLOADS

KEYS = {
    *("bench", "workload", "ratio", "low", "high", "better", "ours_seconds", "limit_seconds"),
    *("unit", "repeats", "meaning", "quick", "machine"),
}
MACHINE = {
    *("processor", "cores", "threads", "wait_policy", "gpu", "system", "python"),
    *("torch_version", "load", "caution"),
}


def rows_of(answer):
    assert answer.code == 0, answer.err
    rows = json.loads(answer.out)
    for row in rows:
        assert set(row) >= KEYS
        assert set(row["machine"]) == MACHINE
        assert row["low"] <= row["ratio"] <= row["high"]
    return {row["workload"]: row for row in rows}


def test_sim(tacit_here):
    row = rows_of(tacit_here("bench", "sim", "--quick", "--workload", "W2", "--json"))["W2"]
    assert row["bench"] == "sim"
    assert row["quick"] is True
    assert row["repeats"] == 3
    assert row["client_steps"] == 300
    assert row["ours_us_per_client_step"] == pytest.approx(1e6 * row["ours_seconds"] / 300)
    assert row["limit_us_per_client_step"] == pytest.approx(1e6 * row["limit_seconds"] / 300)
    assert row["ratio"] > 0
    assert row["data"] == "random"


@pytest.mark.parametrize(
    ("arguments", "workloads"),
    [
        (
            ("noise", "--workload", "philox-laplace,chacha20-gaussian-edges"),
            {"philox-laplace", "chacha20-gaussian-edges"},
        ),
        (("codec", "--workload", "qsgd-8,sign"), {"qsgd-8", "sign"}),
        (("attack",), {"one-by-one", "by-hand"}),
        (("mix",), {"ring"}),
        (("scaling", "--workload", "clients"), {"clients"}),
    ],
)
def test_other_benchmarks(tacit_here, monkeypatch, arguments, workloads):
    monkeypatch.setattr(mix, "QUICK_CLIENTS", 100)
    monkeypatch.setattr(scaling, "CLIENTS", (20, 30, 40))
    rows = rows_of(tacit_here("bench", *arguments, "--quick", "--repeats", 1, "--json"))
    assert set(rows) == workloads
    assert all(row["bench"] == arguments[0] and row["repeats"] == 1 for row in rows.values())


def test_table(tacit_here):
    answer = tacit_here("bench", "codec", "--quick", "--repeats", 1, "--workload", "sign")
    assert answer.code == 0
    for words in ("sign", "lower is better", "a copy", "bits per number 1.00", "threads, torch"):
        assert words in answer.out
    assert "load" in answer.out


def test_both_limits_in_the_table(tacit_here, monkeypatch):
    tiny = {"clients": 2, "samples": 4, "batch_size": 2, "shape": (1, 8, 8)}
    small = replace(W6, **tiny, options={"width": 2, "groups": 1})
    monkeypatch.setitem(WORKLOADS, "W6", small)
    answer = tacit_here("bench", "sim", "--repeats", 1, "--workload", "W6")
    assert answer.code == 0, answer.err
    for words in ("one batch", "precision float32", "gradients ", "captured False"):
        assert words in answer.out
    assert "one batch" not in tacit_here("bench", "codec", "--quick", "--workload", "sign").out


def test_list(tacit_here):
    listed = {row["bench"]: row for row in json.loads(tacit_here("bench", "list", "--json").out)}
    assert list(listed) == ["sim", "scaling", "mix", "attack", "noise", "codec", "peer"]
    assert {"W1", "W4", "W6", "W6-tf32", "W6b-bf16", "W6s", "W8"} <= set(listed["sim"]["workloads"])
    table = tacit_here("bench", "list").out
    assert all(name in table for name in listed)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("simm",), "Did you mean 'sim'?"),
        (("sim", "--workload", "W9"), "There is no workload 'W9'"),
        (("sim", "--device", "tpu"), "'tpu' is not a device"),
        (("sim", "--repeats", "0"), "--repeats"),
    ],
)
def test_bad_input(tacit_here, arguments, words):
    answer = tacit_here("bench", *arguments)
    assert answer.code == 2
    assert words in answer.err
    assert answer.out == ""
