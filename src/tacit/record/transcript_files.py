"""Transcripts on disk: rows as safetensors, an index as JSON, and checksums of both."""

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
# Attributes of a message that are plain values.
PLAIN = ("tick", "verb", "tag", "private", "modulus")
REMEDY = "Record the run again."


def save(transcript: Transcript, folder: Path, fingerprint: str = "") -> Path:
    """Write transcript.safetensors and transcript.json.

    `fingerprint` identifies the configuration of the run.
    """
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {}
    messages = []
    for number, message in enumerate(transcript.messages):
        tensors[f"message-{number:07d}"] = message.rows.detach().cpu().contiguous()
        stored = {key: getattr(message, key) for key in PLAIN}
        for key in ("source", "target"):
            ids = getattr(message, key)
            stored[key] = None if ids is None else ids.tolist()
        messages.append(stored)
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
        "held": [list(unknown) for unknown in transcript.held],
        "numbers_sha256": checksum,
    }
    if transcript.changes:
        facts["changes"] = [[tick, edges] for tick, edges in transcript.changes.items()]
    facts["index_sha256"] = _digest(_canonical(facts))
    storage.write_text(index, json.dumps(facts))
    return index


def load(folder: Path) -> tuple[Transcript, str]:
    """The transcript in a folder and the fingerprint of its configuration.

    Raises Misuse if the files are missing or not as they were written.
    """
    from safetensors.torch import load as load_tensors

    numbers, index = folder / "transcript.safetensors", folder / "transcript.json"
    if not index.is_file():
        raise Misuse(
            f"There is no transcript in {folder}.",
            "Record one: give the run a [transcript] section, or use tacit.run(transcript=True) "
            "and save it.",
        )
    try:
        facts = json.loads(index.read_text(encoding="utf-8"))
        content = numbers.read_bytes()
        file_format, checksum = facts.get("format"), facts.pop("index_sha256")
    except (OSError, ValueError, KeyError, AttributeError) as problem:
        raise Misuse(f"The transcript in {folder} cannot be read: {problem}.", REMEDY) from None
    if file_format != FORMAT:
        raise Misuse(f"{index} has the unknown format {file_format!r}.", REMEDY)
    if checksum != _digest(_canonical(facts)):
        raise Misuse(f"{index} was altered: its checksum does not match.", REMEDY)
    if facts["numbers_sha256"] != _digest(content):
        raise Misuse(f"{numbers} was cut short or altered: its checksum does not match.", REMEDY)
    tensors = load_tensors(content)
    messages = []
    for number, stored in enumerate(facts["messages"]):
        fields = {key: stored.get(key) for key in PLAIN}
        for key in ("source", "target"):
            ids = stored[key]
            fields[key] = None if ids is None else torch.tensor(ids, dtype=torch.int64)
        messages.append(Message(**fields, rows=tensors[f"message-{number:07d}"]))
    unknowns = [Unknown(*fields) for fields in facts["held"]]
    held = dict(zip(unknowns, tensors["held"], strict=True)) if unknowns else {}
    edges = [(int(s), int(t)) for s, t in facts["edges"]]
    changes = {
        int(tick): [(int(s), int(t)) for s, t in some] for tick, some in facts.get("changes", ())
    }
    keep = Keep.from_plain(facts["keep"])
    transcript = Transcript(keep, facts["clients"], edges, facts["steps"], messages, held, changes)
    return transcript, facts["fingerprint"]


def _canonical(facts: dict[str, Any]) -> bytes:
    return json.dumps(facts, sort_keys=True).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
