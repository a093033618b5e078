"""Two hundred random mistakes: each ends with a message, none with a traceback."""

import random
import shutil
import warnings

import pytest

from support.random_mistakes import COMMANDS, hostile_files, mistake
from tacit.core.errors import TacitError

CASES = 200
NODES = "a=127.0.0.1:1,b=127.0.0.1:2,c=127.0.0.1:3"


@pytest.fixture
def places(tacit_here, config, tmp_path, monkeypatch):
    """A folder with hostile files, and good folders of a run and of a federation."""
    hostile_files(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("WANDB_MODE", "disabled")
    words = (
        "--set",
        "run.rounds=1",
        "--set",
        "transcript.last=2",
        "--set",
        "transcript.insides=[1]",
    )
    assert tacit_here("run", config, "--out", "good-run", *words).code == 0
    federation = ("--config", config, "--set", "run.iterations_per_round=2", "--nodes", NODES)
    assert tacit_here("federation", "create", "good-fed", *federation).code == 0
    shutil.copytree(tmp_path / "sites", tmp_path / "good-sites")
    return tmp_path


def is_refused(call, places):
    """Whether a call is refused with a message; raises what it raises otherwise."""
    try:
        call(places)
    except TacitError as problem:
        return bool(str(problem).strip())
    return False


def try_mistake(number, tacit_here, places):
    """Whether a mistake was refused; raises AssertionError if by anything but a message."""
    wrong = mistake(random.Random(number))
    said = f"mistake {number}: {wrong}"
    (places / "base.toml").write_bytes(wrong.text.encode(errors="surrogateescape"))
    wrong.prepare(places)
    try:
        if wrong.call is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return is_refused(wrong.call, places)
        answer = tacit_here(*wrong.words)
    except BaseException as problem:
        raise AssertionError(f"{said}\n{type(problem).__name__}: {problem}") from problem
    finally:
        # Some damage is harmless, such as a changed number.
        for path in ("out", "runs"):
            shutil.rmtree(places / path, ignore_errors=True)
    assert answer.code in (0, 1, 2, 75), said
    assert "Traceback" not in answer.err, said
    if answer.code:
        assert (answer.err + answer.out).strip(), said
    return bool(answer.code)


def test_random_mistakes_end_with_a_message(tacit_here, places):
    refused = sum(try_mistake(number, tacit_here, places) for number in range(CASES))
    # Most of them are mistakes.
    assert refused > 0.75 * CASES


def test_every_command_is_among_the_mistakes():
    words = [mistake(random.Random(number)).words for number in range(4_000)]
    first = {" ".join(one[: len(name.split())]) for name in COMMANDS for one in words}
    assert set(COMMANDS) <= first
