"""An audit in a run folder, so that later reports of the run still have it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import BaseModel

from tacit.auditing.answer import Answer

FILE = "audit_report.json"


class StoredAudit(BaseModel):
    """The content of `audit_report.json`: the answer, and sections as HTML by title.

    Attributes:
        answer: What stands at the top of the page.
        config: Digest of the configuration that was audited.
        made: When, by which version and command, and on which machine.
        pictures: Figures.
        tables: Verdicts, bounds and scores.
        proofs: Combinations of messages, and assumptions.
    """

    model_config = {"frozen": True}

    answer: Answer
    config: str = ""
    made: dict[str, str] = {}
    pictures: dict[str, str]
    tables: dict[str, str]
    proofs: dict[str, str]

    @property
    def sections(self) -> dict[str, str]:
        """All sections in the order of a page."""
        return {**self.pictures, **self.tables, **self.proofs}


def config_digest(folder: Path) -> str:
    """Digest of the configuration in a run folder; "" if there is none."""
    path = folder / "config.toml"
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
