"""`tacit demo`: the first minute, for real."""

import json

from support.misuse import assert_mentions


def test_the_demonstration_shows_that_masks_cost_no_accuracy(tacit, tmp_path):
    (tmp_path / "tacit-demo").mkdir()  # as if it had been run before: nothing is overwritten
    (tmp_path / "tacit-demo" / "report.html").write_text("mine")
    answer = tacit("demo", "--json", OMP_NUM_THREADS="1")
    assert answer.code == 0, answer.err
    shown = json.loads(answer.out)
    assert shown["report"] == "tacit-demo-2/report.html"
    assert "What a neighbour sees" in (tmp_path / shown["report"]).read_text()
    assert (tmp_path / "tacit-demo" / "report.html").read_text() == "mine"
    labels = [row["label"] for row in shown["algorithms"]]
    assert labels == ["dsgt", "dp-dsgt", "lppa", "private-sgd"]
    dsgt, dp, lppa, private = shown["algorithms"]
    assert private["epsilon"] == 3
    assert dsgt["first_message_error"] == 0
    assert min(dp["first_message_error"], lppa["first_message_error"]) > 0.5
    accuracy = {row["label"]: row["accuracy"]["mean"] for row in shown["algorithms"]}
    assert abs(accuracy["lppa"] - accuracy["dsgt"]) <= 2
    assert accuracy["dsgt"] - accuracy["dp-dsgt"] > 3
    assert accuracy["lppa"] - accuracy["dp-dsgt"] > 3
    assert accuracy["dsgt"] > 80
    # A guarantee for the whole run, and still more accurate than noise without one.
    assert accuracy["private-sgd"] > accuracy["dp-dsgt"] + 3


def test_the_demonstration_prints_a_table(tacit_here, monkeypatch, tmp_path):
    from tacit.config.loading import with_keys
    from tacit.experiment import demo

    short = with_keys(
        with_keys(demo.demo_config(), "run", rounds=1), "data", limit_train=800, limit_test=50
    )
    monkeypatch.setattr(demo, "demo_config", lambda: short)
    answer = tacit_here("demo", "--out", "shown")
    assert answer.code == 0, answer.err
    assert_mentions(
        answer.out,
        "dsgt",
        "dp-dsgt",
        "lppa",
        "sees it all",
        "noisy sum",
        "Report: shown/report.html",
    )
    assert (tmp_path / "shown" / "report.html").exists()
    again = tacit_here("demo", "--out", "shown")
    assert again.code == 2
    assert "shown is not empty" in again.err
