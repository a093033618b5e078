"""Transcripts on disk: the numbers as safetensors, who said what to whom as JSON, checksums over both."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.core import storage
from tacit.core.errors import Misuse
from tacit.record.transcript import Keep, Message, Transcript
from tacit.record.unknowns import Unknown

FORMAT = "tacit-transcript-1"
REMEDY = "Record the run again."


def save(transcript: Transcript, folder: Path, fingerprint: str = "") -> Path:
    """Write transcript.safetensors and transcript.json; `fingerprint` says of which configuration it is."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {}
    messages = []
    for place, message in enumerate(transcript.messages):
        tensors[f"message-{place:07d}"] = message.rows.detach().cpu().contiguous()
        messages.append(
            {
                "tick": message.tick,
                "verb": message.verb,
                "tag": message.tag,
                "private": message.private,
                "source": message.source.tolist(),
                "target": None if message.target is None else message.target.tolist(),
            }
        )
    if transcript.held:
        tensors["held"] = torch.stack(list(transcript.held.values())).detach().cpu().contiguous()
    numbers, index = folder / "transcript.safetensors", folder / "transcript.json"
    with storage.replacing(numbers) as part:
        save_file(tensors, part)
        checksum = _digest(part.read_bytes())
    facts: dict[str, Any] = {
        "format": FORMAT,
        "fingerprint": fingerprint,
        "keep": asdict(transcript.keep),
        "clients": transcript.clients,
        "edges": transcript.edges,
        "steps": transcript.steps,
        "messages": messages,
        "held": [list(name) for name in transcript.held],
        "numbers_sha256": checksum,
    }
    facts["index_sha256"] = _digest(_plain(facts))
    storage.write_text(index, json.dumps(facts))
    return index


def load(folder: Path) -> tuple[Transcript, str]:
    """The transcript in a folder and the fingerprint of its configuration; refused if it is not as it was written."""
    from safetensors.torch import load as load_tensors

    numbers, index = folder / "transcript.safetensors", folder / "transcript.json"
    if not index.is_file():
        raise Misuse(
            f"There is no transcript in {folder}.",
            "Record one: give the run a [transcript] section, or simulate with transcript=True and save it.",
        )
    try:
        facts = json.loads(index.read_text(encoding="utf-8"))
        content = numbers.read_bytes()
        if facts.get("format") != FORMAT:
            raise Misuse(f"{index} has the unknown format {facts.get('format')!r}.", REMEDY)
        written = facts.pop("index_sha256")
        if written != _digest(_plain(facts)):
            raise Misuse(f"{index} was altered: its checksum does not fit.", REMEDY)
    except (OSError, ValueError, KeyError, AttributeError) as problem:
        raise Misuse(f"The transcript in {folder} cannot be read: {problem}.", REMEDY) from None
    if facts["numbers_sha256"] != _digest(content):
        raise Misuse(f"{numbers} was cut short or altered: its checksum does not fit.", REMEDY)
    tensors = load_tensors(content)
    messages = []
    for place, said in enumerate(facts["messages"]):
        target = None if said["target"] is None else torch.tensor(said["target"], dtype=torch.int64)
        source = torch.tensor(said["source"], dtype=torch.int64)
        rows = tensors[f"message-{place:07d}"]
        messages.append(
            Message(said["tick"], said["verb"], said["tag"], rows, source, target, said["private"])
        )
    names = [Unknown(*name) for name in facts["held"]]
    held = dict(zip(names, tensors["held"], strict=True)) if names else {}
    edges = [(int(s), int(t)) for s, t in facts["edges"]]
    keep = Keep(**{key: _as_tuple(value) for key, value in facts["keep"].items()})
    transcript = Transcript(keep, facts["clients"], edges, facts["steps"], messages, held)
    return transcript, facts["fingerprint"]


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _plain(facts: dict[str, Any]) -> bytes:
    return json.dumps(facts, sort_keys=True).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
