"""`tacit report`: of one run, of several, elsewhere."""


def test_reports_are_written_to_the_requested_path(tacit_here, config, tmp_path):
    for seed in (0, 1):
        options = f"--out runs/{seed} --set run.seed={seed} --set run.rounds=1"
        done = tacit_here("run", config, *options.split())
        assert done.code == 0
    page = tmp_path / "runs" / "0" / "report.html"
    first = page.read_text()
    page.unlink()
    answer = tacit_here("report", "runs/0")
    assert (answer.code, answer.out) == (0, "Report: runs/0/report.html\n")
    assert page.exists()
    assert "<svg" in page.read_text()
    assert first.count("<svg") == page.read_text().count("<svg")

    answer = tacit_here("report", "runs")  # all runs below a folder
    assert (answer.code, answer.out) == (0, "Report: runs/report.html\n")
    assert "2 runs" in (tmp_path / "runs" / "report.html").read_text()

    answer = tacit_here("report", "runs/0", "runs/1", "--out", "both.html")
    assert (answer.code, answer.out) == (0, "Report: both.html\n")
    assert "2 runs" in (tmp_path / "both.html").read_text()


def test_an_unfinished_run_cannot_be_reported(tacit_here, config, tmp_path):
    tacit_here("run", config, "--out", "out", "--set", "run.rounds=1")
    (tmp_path / "out" / "summary.json").unlink()
    answer = tacit_here("report", "out")
    assert (answer.code, answer.out) == (2, "")
    assert "out/summary.json" in answer.err


def test_a_run_that_diverged_can_be_reported(tacit_here, config, tmp_path):
    assert tacit_here("run", config, "--out", "out", "--set", "algorithm.lr=1e20").code == 1
    assert tacit_here("report", "out").code == 0
    assert "diverged" in (tmp_path / "out" / "report.html").read_text()
