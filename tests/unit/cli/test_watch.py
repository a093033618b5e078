"""`tacit report --watch`: a page on the loopback interface that follows a run."""

import os
import shutil
import signal
import threading
import time
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_on_the_loopback_interface_until_a_signal(folder, capfd, number):
    """Also as a background job, which a shell starts with SIGINT ignored."""
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    for one in before:
        signal.signal(one, signal.SIG_IGN)
    printed = []

    def send_signal():
        deadline = time.monotonic() + 60
        while "Report:" not in "".join(printed) and time.monotonic() < deadline:
            printed.append(capfd.readouterr().out)
            time.sleep(0.02)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send_signal)
    sender.start()
    try:
        serve_report(lambda: [folder], 0)
    finally:
        sender.join()
        after = [signal.getsignal(one) for one in before]
        for one, handler in before.items():
            signal.signal(one, handler)
    assert "Report: http://127.0.0.1:" in "".join(printed)
    assert after == [signal.SIG_IGN] * 2


def test_errors_appear_before_the_server_starts(tmp_path):
    with pytest.raises(Misuse, match="not a run folder"):
        serve_report(lambda: [tmp_path], 0)
