"""`tacit report --watch`: a page on the loopback interface that follows a run."""

import shutil
import threading
import urllib.error
import urllib.request

import pytest

from tacit.cli.watch import report_pages, serve_report
from tacit.core.errors import Misuse
from tacit.experiment.run import run
from tacit.peer.monitoring.http_server import serve_pages


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from tacit.config.loading import make_config

    keys = {
        "data": {"name": "mnist-mini", "limit_train": 240, "limit_test": 60},
        "model": {"name": "mlp", "hidden": [8]},
        "graph": {"kind": "ring", "clients": 3},
        "algorithm": {"name": "dsgt", "lr": 0.1},
        "run": {"rounds": 3, "batch_size": 16},
    }
    out = tmp_path_factory.mktemp("watch") / "run"
    run(make_config(keys), out)
    return out


def read(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/") as response:
        return response.read().decode()


def test_the_page_follows_the_run_and_stops_reloading(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "run")
    summary, history = (copy / name for name in ("summary.json", "history.jsonl"))
    done, lines = summary.read_text(), history.read_text().splitlines(keepends=True)
    summary.unlink()
    # The last line is half written.
    history.write_text(lines[0] + lines[1] + lines[2][:20])
    with serve_pages(0, report_pages(lambda: [copy])) as port:
        page = read(port)
        assert 'http-equiv="refresh"' in page
        assert "has not ended" in page
        assert "1 of 3 rounds" in page
        history.write_text("".join(lines))
        assert "3 of 3 rounds" in read(port)
        summary.write_text(done)
        page = read(port)
        assert "has not ended" not in page
        assert 'http-equiv="refresh"' not in page
        (copy / "graph.json").unlink()
        with pytest.raises(urllib.error.HTTPError, match="503"):
            read(port)


def test_it_serves_on_the_loopback_interface_until_stopped(folder, capsys):
    stop = threading.Event()
    stop.set()
    serve_report(lambda: [folder], 0, stop)
    assert "Report: http://127.0.0.1:" in capsys.readouterr().out


def test_errors_appear_before_the_server_starts(tmp_path):
    with pytest.raises(Misuse, match="not a run folder"):
        serve_report(lambda: [tmp_path], 0)
