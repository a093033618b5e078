"""Commands that only read files or query nodes start without the libraries that compute."""

import os
import subprocess
import sys

import pytest

from tacit.config.loading import make_config
from tacit.peer.federation import membership, operator, relay_changes

HEAVY = ("torch", "numpy", "scipy", "networkx", "sklearn", "matplotlib")
RUN = f"""
import sys
from tacit.cli import main
try:
    main()
finally:
    print("loaded:", *(name for name in {HEAVY} if name in sys.modules), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("operator") / "clinic"
    config = make_config({}, ["algorithm.lr=0.1", "run.iterations_per_round=5"])
    # Nothing listens on these ports.
    nodes = {"a": "127.0.0.1:1", "b": "127.0.0.1:2", "c": "127.0.0.1:3"}
    operator.create(folder, "clinic", nodes, config)
    relay_changes.add_relay(folder, "hub", "127.0.0.1:4")
    membership.change_address(folder, "c", "outgoing")
    return folder


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", RUN, *map(str, arguments)],
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def loaded(outcome):
    return outcome.stderr.splitlines()[-1].removeprefix("loaded:").split()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("--help", "federation"),
        ("--version", "tacit "),
        ("federation --help", "status"),
        ("federation show FOLDER", "lppa on mnist-mini"),
        ("federation show FOLDER/nodes/a --json", '"receives_from"'),
        ("federation status FOLDER --timeout 1", "not reached"),
        ("relay --help", "cannot read"),
        ("relay FOLDER/relays/hub --listen 127.0.0.1:0 --stop-at-eof", ""),
    ],
)
def test_nothing_that_computes_is_loaded(folder, arguments, expected):
    outcome = run(*arguments.replace("FOLDER", str(folder)).split())
    assert expected in outcome.stdout
    assert loaded(outcome) == []


def test_completion_loads_nothing_that_computes():
    words = {"COMP_WORDS": "tacit federation st", "COMP_CWORD": "2"}
    outcome = run(_TACIT_COMPLETE="complete_bash", **words)
    assert outcome.stdout.split() == ["status"]
    assert loaded(outcome) == []


def test_the_check_sees_what_is_loaded():
    assert {"torch", "numpy"} <= {*loaded(run("data", "list"))}
