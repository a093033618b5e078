"""Dashboards of real nodes: what the operator sees, what a node's owner sees, and what no one."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from http.client import HTTPConnection

import pytest
from chaos import ForkedFederation, until
from federations import federation, plan

from support.browser import browse, find_browser
from tacit.cli.federation_dashboard import own_link
from tacit.config.loading import with_keys
from tacit.peer.dashboard.federation_watch import FederationWatch, watching
from tacit.peer.dashboard.page import dashboard_pages, link
from tacit.peer.federation.federation_client import FederationClient
from tacit.peer.monitoring.access import TOKEN_FILE, Access, load_access
from tacit.peer.monitoring.http_server import serve_pages

LONG = 10_000  # rounds: tests end before
LIMIT = 120  # seconds


@contextmanager
def running(folder, share_metrics):
    """Three nodes that train and have been evaluated; all owners let them tell their scores."""
    config = plan({"name": "lppa", "lr": 0.05}, LONG, iterations=2, clients=3)
    if share_metrics:
        config = with_keys(config, "federation", share_metrics=True)
    home = federation(folder / "f", config, clients=3)
    with ForkedFederation(home) as local:
        for name in local.nodes:
            history = home.node(name).run / "history.jsonl"
            until(
                lambda path=history: path.exists() and path.stat().st_size > 0,
                "all have evaluated",
            )
        yield home, local


def get(port, path, **headers):
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def monitoring_port(home, name):
    return json.loads((home.node(name).run / "ports.json").read_text())["metrics"]


def test_scores_stay_at_home_unless_the_manifest_says_so(tmp_path):
    """Every way to get them is tried: as operator, as neighbour, and on the node's machine."""
    with running(tmp_path, share_metrics=False) as (home, _):
        manifest, ca = home.manifest(), home.ca()
        neighbour = home.node("n1").credentials()
        for own in (home.operator_credentials(), neighbour):
            client = FederationClient(manifest, own, ca)
            statuses = [report.as_dict() for report in client.status()]
            assert all(one["reached"] for one in statuses)
            assert {(one["loss"], one["accuracy"]) for one in statuses} == {(None, None)}
            assert client.scores() == {}
            client.close()
        for folder in (home.path, home.node("n1").path):
            watch = FederationWatch(folder)
            watch.poll()
            board = watch.board()
            watch.close()
            assert board["curves"] == {}
            assert {(one["loss"], one["accuracy"]) for one in board["nodes"]} == {(None, None)}
        port, access = monitoring_port(home, "n0"), load_access(home.node("n0").run / TOKEN_FILE)
        assert json.loads(get(port, "/status")[1])["loss"] is None
        assert "tacit_loss" not in get(port, "/metrics")[1]
        assert "tacit_accuracy" not in get(port, "/metrics")[1]
        others = load_access(home.node("n1").run / TOKEN_FILE)
        for headers in ({}, {"Authorization": f"Bearer {others.token}"}):
            assert get(port, "/dashboard/data", **headers)[0] == 403
            assert json.loads(get(port, "/status", **headers)[1])["loss"] is None
        # The owner sees them, and nothing of the others.
        bearer = {"Authorization": f"Bearer {access.token}"}
        assert json.loads(get(port, "/status", **bearer)[1])["loss"] is not None
        assert "tacit_loss" in get(port, "/metrics", **bearer)[1]
        status, text = get(port, "/dashboard/data", **bearer)
        own = json.loads(text)
        assert status == 200
        assert list(own["curves"]) == ["n0"]
        assert own["curves"]["n0"][0][1] is not None
        told = {node["name"]: node["loss"] for node in own["nodes"]}
        assert told["n0"] is not None
        assert (told["n1"], told["n2"]) == (None, None)
        assert "started" in [event["text"].split(" ")[0] for event in own["events"]]
        assert own_link(home.node("n0").path) == link(port, access)
        assert (home.node("n0").run / TOKEN_FILE).stat().st_mode & 0o077 == 0
        log = (home.node("n0").run / "log.jsonl").read_text()
        assert access.token not in log


@pytest.mark.skipif(find_browser() is None, reason="no Chromium or Chrome is installed")
def test_the_operator_sees_curves_and_who_waits_for_whom(tmp_path):
    with running(tmp_path, share_metrics=True) as (home, local):
        watch, access = FederationWatch(home.path), Access()
        with (
            watching(watch, 0.5),
            serve_pages(0, dashboard_pages(access, watch.board)) as port,
            browse(tmp_path) as page,
        ):
            page.open(link(port, access))
            page.wait("document.querySelectorAll('[data-curve]').length === 3")
            first = page.run("board.nodes[0].step")
            page.wait(f"board.nodes[0].step > {first}")
            frozen = local.nodes["n2"].process
            os.kill(frozen.pid, signal.SIGSTOP)
            try:
                page.wait("document.querySelector('#headline').textContent === "
                          "'n2 does not respond'")  # fmt: skip
                page.wait("document.querySelectorAll('#graph .waits').length >= 2")
                page.wait("document.querySelector('#events').textContent"
                          ".includes('n2 does not respond')")  # fmt: skip
            finally:
                os.kill(frozen.pid, signal.SIGCONT)
            page.wait("document.querySelector('#events').textContent.includes('responds again')")
            assert page.complaints() == []


def test_the_command_prints_a_link_that_works_until_it_ends(tmp_path):
    """Nodes need not run for this."""
    home = federation(tmp_path / "f", plan({"name": "lppa", "lr": 0.05}, 2, clients=3), clients=3)
    command = [sys.executable, "-m", "tacit", "federation", "dashboard", str(home.path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        found = next(filter(None, (re.search(r"127.0.0.1:(\d+)(\S+)", x) for x in process.stdout)))
        port, path = int(found[1]), found[2]
        assert get(port, path)[0] == 303
        assert get(port, "/dashboard/data")[0] == 403
        status, text = get(port, "/dashboard/data", Authorization=f"Bearer {path.split('=')[1]}")
        assert status == 200
        assert json.loads(text)["headline"] == "n0, n1 and n2 do not respond"
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_dashboard_follows_the_roster_in_its_folder(tmp_path):
    """Nodes need not run for this: the page shows whom it asks."""
    from tacit.peer.federation.operator import remove

    config = plan({"name": "lppa", "lr": 0.05}, 2, clients=4)
    home = federation(tmp_path / "f", config, clients=4)
    watch = FederationWatch(home.path)
    watch.poll()
    assert [node["state"] for node in watch.board()["nodes"]] == ["silent"] * 4
    remove(home.path, "n3")
    watch.poll()
    board = watch.board()
    watch.close()
    assert [node["name"] for node in board["nodes"]] == ["n0", "n1", "n2"]
    assert board["generation"] == 2
    texts = [event["text"] for event in board["events"]]
    assert "roster of generation 2: n0, n1, n2" in texts
    assert "left" in texts
    assert all(node["expires"] > time.time() for node in board["nodes"])
    assert [one["name"] for one in board["certificates"]] == ["operator", "authority"]
