"""Workflows are valid, use fixed versions of actions, and call what the Makefile has."""

import re
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE))


def steps(workflow):
    content = yaml.safe_load(workflow.read_text("utf-8"))
    for job in content["jobs"].values():
        yield from job["steps"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_digest(workflow):
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert used
    assert [action for action in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action)] == []


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_the_makefile_has_what_workflows_make(workflow):
    commands = [step["run"] for step in steps(workflow) if "run" in step]
    made = re.findall(r"^\s*make ([\w =.-]+)", "\n".join(commands), flags=re.MULTILINE)
    assert made
    assert {word for words in made for word in words.split() if "=" not in word} <= TARGETS


@pytest.mark.parametrize("file", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda f: f.stem)
def test_no_job_may_write_unless_it_says_so(file):
    content = yaml.safe_load(file.read_text("utf-8"))
    if "jobs" in content:
        assert content["permissions"] == {"contents": "read"}
