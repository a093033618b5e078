import io
import json
from types import SimpleNamespace

import pytest

from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node.results import Results, read_history
from tacit.peer.node.score_history import ScoreHistory

RECORDS = [{"generation": 1, "step": step, "loss": 0.5} for step in (0, 5, 10)]
LINES = [json.dumps(record) + "\n" for record in RECORDS]


def drop_from(folder, generation, step):
    """Results.drop_from in a folder; returns the lines of the log."""
    log, scores = io.StringIO(), ScoreHistory()
    state = SimpleNamespace(event_log=EventLog(log, "a"), scores=scores)
    Results(folder, state).drop_from(generation, step)
    kept = read_history(folder / "history.jsonl")
    assert [point.step for point in scores.points()] == [record["step"] for record in kept]
    return [json.loads(line) for line in log.getvalue().splitlines()]


@pytest.mark.parametrize("end", ["", LINES[2][:-1], LINES[2][:20]])
def test_records_that_will_be_repeated_are_dropped(tmp_path, end):
    history = tmp_path / "history.jsonl"
    history.write_text("".join(LINES[:2]) + end)
    assert drop_from(tmp_path, 1, 6) == []
    assert read_history(history) == RECORDS[:2]
    assert drop_from(tmp_path, 1, 5) == []
    assert read_history(history) == RECORDS[:1]
    assert [path.name for path in tmp_path.iterdir()] == ["history.jsonl"]


def test_without_a_history_there_is_nothing_to_drop(tmp_path):
    assert drop_from(tmp_path, 1, 6) == []
    assert read_history(tmp_path / "history.jsonl") == []


@pytest.mark.parametrize(
    "damage",
    [
        b"\xff\xfe\n",
        b"\0" * 512,
        b"[]\n",
        b"{}\n",
        b"3\n",
        b'{"generation": "1", "step": 2}\n',
        b"\n",
    ],
)
def test_a_damaged_history_is_set_aside(tmp_path, damage):
    history = tmp_path / "history.jsonl"
    content = LINES[0].encode() + damage
    history.write_bytes(content)
    (line,) = drop_from(tmp_path, 1, 6)
    assert (line["event"], line["level"]) == ("history set aside", "warning")
    assert "line 2 is not a record" in line["why"]
    assert "history.damaged" in line["why"]
    assert (tmp_path / "history.damaged").read_bytes() == content
    assert history.read_text() == ""


def test_a_history_that_cannot_be_read_is_set_aside(tmp_path):
    (tmp_path / "history.jsonl").mkdir()
    (line,) = drop_from(tmp_path, 1, 6)
    assert line["event"] == "history set aside"
    assert (tmp_path / "history.damaged").is_dir()
    assert read_history(tmp_path / "history.jsonl") == []
