"""`tacit reproduce` as a user types it: what there is, a small artifact from end to end, and refusals."""

import json


def test_artifacts_are_listed(tacit_here):
    answer = tacit_here("reproduce", "list", "--json")
    assert answer.code == 0
    rows = {row["name"]: row for row in json.loads(answer.out)}
    assert rows["lppa/table1"]["cells"] == 18
    assert "lppa/table1" in tacit_here("reproduce", "list").out


def test_an_artifact_from_end_to_end(tacit, tacit_here, tmp_path):
    done = tacit_here(
        "reproduce", "findings/collusion", "--quick", "--only", "lppa", "--out", "out"
    )
    assert done.code == 0, done.err
    assert "lppa: 1 of 4 neighbours" in done.out
    assert "4 of 4 measured" in done.err
    told = json.loads((tmp_path / "out" / "findings" / "collusion" / "result.json").read_text())
    assert told["quick"] is True
    assert [cell["key"]["algorithm"] for cell in told["cells"]] == ["lppa"] * 4
    for name in ("figure.svg", "figure.png"):
        assert (tmp_path / "out" / "findings" / "collusion" / name).stat().st_size > 1000
    assert "findings/collusion" in (tmp_path / "out" / "README.md").read_text()

    again = tacit_here("reproduce", "findings/collusion", "--quick", "--out", "out")
    assert again.code == 2
    assert "--resume" in again.err
    rest = ("--quick", "--only", "dsgt", "--out", "out", "--resume", "--jobs", "2", "--json")
    more = tacit("reproduce", "findings/collusion", *rest)
    assert more.code == 0, more.err
    assert not list((tmp_path / "out").rglob("*.log"))
    assert [cell["key"]["algorithm"] for cell in json.loads(more.out)["cells"]] == ["dsgt"] * 4 + [
        "lppa"
    ] * 4


def test_drawing_anew_measures_nothing_and_loses_nothing(tacit_here, tmp_path):
    made = ("reproduce", "findings/epsilon", "--quick", "--out", "out")
    assert tacit_here(*made, "--redraw").code == 2
    assert tacit_here(*made).code == 0
    path = tmp_path / "out" / "findings" / "epsilon" / "result.json"
    before = path.read_text()
    (path.parent / "figure.png").unlink()
    assert tacit_here(*made, "--redraw").code == 0
    assert (path.parent / "figure.png").exists()
    assert path.read_text() == before
    other = before.replace('"iterations": 9200', '"iterations": 9201')
    assert other != before
    path.write_text(other)
    refused = tacit_here(*made, "--redraw")
    assert refused.code == 2
    assert "measured in another way" in refused.err
    assert path.read_text() == other


def test_what_there_is_not_is_refused(tacit_here):
    unknown = tacit_here("reproduce", "lppa/table9")
    assert unknown.code == 2
    assert "lppa/table" in unknown.err
    nothing = tacit_here(
        "reproduce", "lppa/table1", "--only", "MNIST", "--only", "SGD", "--out", "out"
    )
    assert nothing.code == 2
    assert "rule: DSGT, DP, LPPA" in nothing.err
