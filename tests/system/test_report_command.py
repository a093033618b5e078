"""`tacit report`: of one run, of several, elsewhere."""

import json
import re


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

    answer = tacit_here("report", "runs/0", "runs/report.html")  # as runs/* of a shell
    assert answer.code != 0
    assert "runs/report.html is a file. Give the folder: runs." in " ".join(answer.err.split())


def test_a_report_after_an_audit_keeps_it(tacit_here, config, tmp_path):
    tacit_here("run", config, "--out", "out", "--set", "run.rounds=1")
    page = tmp_path / "out" / "report.html"
    assert "Not known: not audited" in page.read_text()
    options = ("--no-attacks", "-n", "2", "--adversary", "curious(1)")
    assert tacit_here("audit", "out", *options).code == 0
    audited = page.read_text()
    verdict = json.loads((tmp_path / "out" / "audit.json").read_text())["answer"]["verdict"]
    assert verdict in audited
    assert tacit_here("report", "out").code == 0
    again = page.read_text()
    assert verdict in again
    assert "not audited" not in again
    assert again.count("<svg") == audited.count("<svg")
    for text in ("Audit: what is proved", "tacit run", "tacit audit out", "tacit report out"):
        assert text in again, text


def test_a_grid_keeps_its_order(tacit_here, config, tmp_path):
    options = "--over algorithm=lppa,dsgt --out both --set run.rounds=1"
    assert tacit_here("grid", config, *options.split()).code == 0
    order = re.compile(r'name="(\w+)" value="(\d)"')
    first = order.findall((tmp_path / "both" / "report.html").read_text())
    assert first == [("lppa", "0"), ("dsgt", "1")]
    assert tacit_here("report", "both").code == 0
    assert order.findall((tmp_path / "both" / "report.html").read_text()) == first


def test_watch_writes_no_file(tacit_here, config):
    answer = tacit_here("report", "out", "--watch", "--out", "x.html")
    assert answer.code == 2
    assert "--watch writes no file" in answer.err
