"""`tacit reproduce`: the list, a small artifact from end to end, --redraw, and wrong arguments."""

import json


def test_artifacts_are_listed(tacit_here):
    answer = tacit_here("reproduce", "list", "--json")
    assert answer.code == 0
    rows = {row["name"]: row for row in json.loads(answer.out)}
    assert rows["lppa/table1"]["cells"] == 18
    assert "lppa/table1" in tacit_here("reproduce", "list").out


def test_an_artifact_from_end_to_end(tacit, tacit_here, tmp_path):
    command = ("reproduce", "findings/who-computes-what", "--quick", "--out", "out")
    done = tacit_here(*command, "--only", "lppa")
    assert done.code == 0, done.err
    assert "lppa: exact combinations" in done.out
    assert "6 of 6 measured" in done.err
    folder = tmp_path / "out" / "findings" / "who-computes-what"
    stored = json.loads((folder / "result.json").read_text())
    assert stored["quick"] is True
    assert [cell["key"]["algorithm"] for cell in stored["cells"]] == ["lppa"] * 6
    for name in ("figure.svg", "figure.png"):
        assert (folder / name).stat().st_size > 1000
    assert "findings/who-computes-what" in (tmp_path / "out" / "README.md").read_text()

    again = tacit_here(*command)
    assert again.code == 2
    assert "--resume" in again.err
    more = tacit(*command, "--only", "dsgt", "--resume", "--jobs", "2", "--json")
    assert more.code == 0, more.err
    assert not list((tmp_path / "out").rglob("*.log"))
    rules = [cell["key"]["algorithm"] for cell in json.loads(more.out)["cells"]]
    assert rules == ["dsgt"] * 6 + ["lppa"] * 6


def test_redraw_measures_nothing_and_loses_nothing(tacit_here, tmp_path):
    command = ("reproduce", "findings/epsilon", "--quick", "--out", "out")
    assert tacit_here(*command, "--redraw").code == 2
    assert tacit_here(*command).code == 0
    path = tmp_path / "out" / "findings" / "epsilon" / "result.json"
    before = path.read_text()
    (path.parent / "figure.png").unlink()
    assert tacit_here(*command, "--redraw").code == 0
    assert (path.parent / "figure.png").exists()
    assert path.read_text() == before
    other = before.replace('"iterations": 9200', '"iterations": 9201')
    assert other != before
    path.write_text(other)
    refused = tacit_here(*command, "--redraw")
    assert refused.code == 2
    assert "measured in another way" in refused.err
    assert path.read_text() == other


def test_unknown_artifacts_and_cells_are_errors(tacit_here):
    unknown = tacit_here("reproduce", "lppa/table9")
    assert unknown.code == 2
    assert "lppa/table" in unknown.err
    cells = ("--only", "MNIST", "--only", "SGD", "--out", "out")
    nothing = tacit_here("reproduce", "lppa/table1", *cells)
    assert nothing.code == 2
    assert "rule: DSGT, DP, LPPA" in nothing.err


def test_status_tells_what_is_missing_and_all_begins_with_it(tacit_here, tmp_path):
    empty = tacit_here("reproduce", "status", "--out", "out")
    assert empty.code == 0, empty.err
    assert "tacit reproduce all --resume --out out" in empty.out
    assert not (tmp_path / "out").exists()
    assert tacit_here("reproduce", "findings/epsilon", "--out", "out").code == 0
    status = tacit_here("reproduce", "status", "--out", "out", "--json")
    rows = {row["name"]: row for row in json.loads(status.out)}
    assert rows["findings/epsilon"]["missing"] == []
    assert len(rows["lppa/table1"]["missing"]) == 90
    some = tacit_here(
        "reproduce", "status", "--out", "out", "--only", "lppa/table?,rms/*", "--json"
    )
    chosen = [row["name"] for row in json.loads(some.out)]
    assert chosen == [name for name in rows if name.startswith(("lppa/table", "rms/"))]
    unknown = tacit_here("reproduce", "status", "--only", "table1")
    assert unknown.code == 2
    assert "tacit reproduce list" in unknown.err
    refused = tacit_here("reproduce", "all", "--out", "out")
    assert refused.code == 2
    assert "--resume" in refused.err
    wrong = tacit_here("reproduce", "all", "--quick", "--resume", "--out", "out")
    assert wrong.code == 2
    assert "--quick" in wrong.err
