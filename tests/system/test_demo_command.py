"""`tacit demo`, shorter: tests/system/test_distribution.py runs all of it."""

from support.misuse import assert_mentions


def test_the_demonstration_prints_a_table(tacit_here, monkeypatch, tmp_path):
    from tacit.config.loading import with_keys
    from tacit.experiment import demo

    short = with_keys(
        with_keys(demo.demo_config(), "run", rounds=1), "data", limit_train=800, limit_test=50
    )
    monkeypatch.setattr(demo, "demo_config", lambda: short)
    (tmp_path / "tacit-demo").mkdir()  # as if it had been run before: nothing is overwritten
    (tmp_path / "tacit-demo" / "report.html").write_text("mine")
    answer = tacit_here("demo")
    assert answer.code == 0, answer.err
    assert_mentions(
        answer.out,
        "dsgt",
        "dp-dsgt",
        "lppa",
        "sees it all",
        "noisy sum",
        "Report: tacit-demo-2/report.html",
    )
    assert (tmp_path / "tacit-demo-2" / "report.html").exists()
    assert (tmp_path / "tacit-demo" / "report.html").read_text() == "mine"
    again = tacit_here("demo", "--out", "tacit-demo")
    assert again.code == 2
    assert "tacit-demo is not empty" in again.err
