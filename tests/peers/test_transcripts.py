"""Transcripts of nodes: what neighbours could compute from them, and edits that are noticed."""

import json
import shutil
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from chaos import (
    FRESH,
    LONG,
    ForkedFederation,
    logged,
    monitored,
    run_in_threads,
    until_step,
)
from federations import PRIVATE, federation, plan
from typer.testing import CliRunner

from tacit.cli.app import app
from tacit.core.errors import Misuse
from tacit.peer.federation.folders import NodeFolder
from tacit.peer.node.kept_messages import longest_stretch
from tacit.peer.node.sent_audit import audit_sent
from tacit.peer.node.transcript_log import (
    HEAD_BYTES,
    LENGTH_BYTES,
    read_transcript,
    segment_paths,
)
from tacit.peer.wire.messages import pack, parse_tensors

NAMES = ["n0", "n1", "n2", "n3"]
PLAIN = {"name": "d-psgd", "lr": 0.05}  # sends models without masks or noise
NOISY = {"name": "dp-dsgt", "lr": 0.05, "inject": "every"}
SIZE = 10**8
STEPS = 100
ROUNDING = 1e-4  # relative error of what is exact but for the rounding of messages


def recorded(folder, rule, **options):
    """A ring of four nodes that has run with transcripts."""
    config = plan(rule, hidden=3, clients=4, **options)
    home = federation(folder, config, clients=4)
    run_in_threads(home, transcript=SIZE)
    return home


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("plain") / "home", PLAIN)


def of(audit, *names):
    """What a coalition found."""
    (found,) = (one for one in audit.coalitions if one.members == names)
    return found


def errors(found, kind):
    return [one.error for one in found.recovered if one.kind == kind]


def keys_of(folder):
    envelopes = [message.envelope for message in read_transcript(folder)]
    return [(one.exchange, one.sender, one.receiver) for one in envelopes]


def copy_of(node, folder):
    shutil.copytree(node.path, folder)
    return NodeFolder(folder)


def rewrite(folder, change):
    """Write a transcript again, with valid checksums; `change` edits its messages."""
    messages = [change(message) for message in read_transcript(folder)]
    for path in segment_paths(folder):
        path.unlink()
    with (folder / "segment-000001.log").open("wb") as file:
        for one in filter(None, messages):
            file.write(len(one.frame).to_bytes(LENGTH_BYTES, "little") + one.sha256)
            file.write(one.frame)
    assert HEAD_BYTES == LENGTH_BYTES + 32


def edited(message, sender, tick):
    """The message with one number changed in its last bit, if it is the one to edit."""
    envelope = message.envelope
    if (envelope.sender, envelope.exchange.tick) != (sender, tick):
        return message
    tensors = parse_tensors(message.frame)
    for rows in tensors.values():
        rows.view(torch.int32)[0] ^= 1
    return pack(envelope, tensors)


def test_a_killed_node_keeps_a_whole_transcript_that_shows_the_leak(tmp_path):
    config = plan(PLAIN, rounds=STEPS // 5, iterations=5, hidden=3, clients=4)
    home = federation(tmp_path / "home", config, clients=4)
    with ForkedFederation(home, save_seconds=0.2, transcript="10MB") as running:
        until_step(home, 5, ["n0"])
        assert monitored(home, "n0")["transcript"].startswith("complete from iteration 1 on")
        running.nodes["n0"].process.kill()
        assert running.nodes["n0"].process.wait() == -signal.SIGKILL
        running.start("n0")
        assert running.wait(LONG), [node.last_error() for node in running.failed()]
    assert logged(home, "n0", "resumed")
    for name in NAMES:
        keys = keys_of(home.node(name).run / "transcript")
        assert len(keys) == len(set(keys)) == STEPS * 3
    found = audit_sent(home.node("n0"), iterations=5)
    assert (found.kept.first, found.kept.last, found.kept.sent) == (1, STEPS, STEPS)
    assert (found.first, found.last) == (1, 5)
    both = of(found, "n1", "n3")
    assert both.known["gradient"] == (5, 5)
    (error,) = errors(both, "gradient")
    print(f"relative error of the gradient that n1 and n3 recover: {error:.2g}")
    assert error < ROUNDING


def test_noise_and_masks_hide_the_gradient(tmp_path):
    noisy = audit_sent(recorded(tmp_path / "noisy", NOISY).node("n0"))
    for one in noisy.coalitions:
        assert {count for count, _ in one.known.values()} == {0}
        assert min(errors(one, "noisy gradient")) > 0.5
    masked = audit_sent(recorded(tmp_path / "masked", FRESH).node("n0"))
    for name in ("n1", "n3"):
        one = of(masked, name)
        assert {count for count, _ in one.known.values()} == {0}
        assert min(errors(one, "noisy gradient")) > 0.5
        assert min(errors(one, "approximate gradient"), default=1.0) > 0.5
    # All masks of a node are shared with a neighbour: together they undo them.
    assert max(errors(of(masked, "n1", "n3"), "gradient")) < ROUNDING


def test_masked_sums_are_checked_and_hide_the_gradient(tmp_path):
    home = recorded(tmp_path / "home", PRIVATE)
    for name in NAMES:
        found = audit_sent(home.node(name), iterations=3)
        assert (found.kept.first, found.kept.last, found.kept.sent) == (1, 10, 10)
        assert all(one.known["gradient"][0] == 0 for one in found.coalitions)
        assert not any(one.recovered for one in found.coalitions if len(one.members) == 1)
        copy = copy_of(home.node(name), tmp_path / f"edited-{name}")
        rewrite(copy.run / "transcript", lambda message, name=name: edited(message, name, 4))
        with pytest.raises(Misuse, match=r"not what was sent: the message of iteration 4"):
            audit_sent(copy)


def test_an_edited_message_is_noticed(plain, tmp_path):
    node = copy_of(plain.node("n1"), tmp_path / "n1")
    rewrite(node.run / "transcript", lambda message: edited(message, "n1", 7))
    with pytest.raises(Misuse, match=r"not what was sent: the message of iteration 7"):
        audit_sent(node)


def test_an_invented_message_is_noticed(plain, tmp_path):
    node = copy_of(plain.node("n1"), tmp_path / "n1")

    def renumbered(message):
        envelope = message.envelope
        if (envelope.sender, envelope.exchange.tick) != ("n1", 3):
            return message
        exchange = replace(envelope.exchange, index=9)
        return pack(replace(envelope, exchange=exchange), parse_tensors(message.frame))

    rewrite(node.run / "transcript", renumbered)
    with pytest.raises(Misuse, match=r"not what was sent: the message of iteration 3"):
        audit_sent(node)


@pytest.mark.parametrize("sender", ["n1", "n2"])
def test_a_missing_message_is_a_gap(plain, tmp_path, sender):
    node = copy_of(plain.node("n1"), tmp_path / "n1")

    def without(message):
        envelope = message.envelope
        return None if (envelope.sender, envelope.exchange.tick) == (sender, 4) else message

    rewrite(node.run / "transcript", without)
    found = audit_sent(node)
    assert (found.kept.first, found.kept.last) == (5, 10)
    assert "iterations 5 to 10 of 10 (part of what was sent" in found.coverage
    # The state before is unknown, and the gradients in the rest are still exposed.
    both = of(found, "n0", "n2")
    assert both.known["gradient"][0] >= 5
    assert max(errors(both, "gradient")) < ROUNDING


def test_a_transcript_without_a_complete_iteration_is_no_error(plain, tmp_path):
    node = copy_of(plain.node("n1"), tmp_path / "n1")
    rewrite(
        node.run / "transcript",
        lambda message: message if message.envelope.sender == "n1" else None,
    )
    assert audit_sent(node) is None
    result = CliRunner().invoke(app, ["audit", str(node.path), "-n", "2"])
    assert result.exit_code == 0, result.output
    assert "no complete iteration of this roster yet" in result.output


def test_other_data_are_refused(plain, tmp_path):
    torch.manual_seed(0)
    node, x = plain.node("n1"), torch.rand(40, 1, 28, 28)
    path = tmp_path / "other.npz"
    np.savez(path, x=x.numpy(), y=torch.randint(10, (40,)).numpy())
    with pytest.raises(Misuse, match="not the data that n1 trained on"):
        audit_sent(node, data=str(path))


def test_a_transcript_has_neither_data_nor_keys(plain):
    node = plain.node("n2")
    content = b"".join(path.read_bytes() for path in segment_paths(node.run / "transcript"))
    assert node.mask_secret() not in content
    frames = [one.frame for one in read_transcript(node.run / "transcript")]
    assert {tag for frame in frames for tag in parse_tensors(frame)} == {"theta"}


def test_longest_stretch():
    assert longest_stretch([4]) == (4, 4)
    assert longest_stretch([0, 1, 3, 4]) == (3, 4)
    assert longest_stretch([1, 2, 3, 7]) == (1, 3)


def test_the_command_and_the_report(plain):
    folder = plain.node("n0").path
    result = CliRunner().invoke(app, ["audit", str(folder), "-n", "3"])
    assert result.exit_code == 0, result.output
    assert "What was really sent:" in result.output
    assert "n1 and n3 together compute 3 of 3 gradients, 2 of 2 diff" in result.output
    stored = json.loads((folder / "audit" / "sent.json").read_text())
    assert stored["attacked"] == [1, 3]
    assert stored["coalitions"][-1]["recovered"][0]["error"] < ROUNDING
    result = CliRunner().invoke(app, ["report", str(folder)])
    assert result.exit_code == 0, result.output
    assert "What was really sent" in (folder / "report.html").read_text()
