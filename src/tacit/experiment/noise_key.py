"""The secret key from which a run draws its samples and its noise, and what was drawn from it.

A repeated iteration must not have the noise of the first time: if its model differs in a single
bit, the difference of two messages tells what the noise hid. So each attempt to continue a run has
a new key, and nothing is drawn again from an old one. But a repeated iteration releases its noisy
sum a second time, which the guarantee has to pay for, and after a crash it is unknown how many
iterations were begun. So the file says, before they are begun, up to which iteration this attempt
may draw; all of them count as released, also if the crash came before.

    released = iterations up to the checkpoint + repeated
    repeated += (iterations that the last attempt may have begun) − (those up to the checkpoint)

Without the file neither number is known, so a run is not continued without it.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from tacit.core.errors import Misuse
from tacit.core.storage import read_private, remove_parts, replacing, write_private

FILE = "noise.key"
KEY_BYTES = 32


class NoiseKey:
    """The key of one attempt at a run, in a file of the run's folder with mode 0600.

    Attributes:
        secret: The key, 32 bytes from the operating system.
        repeated: Iterations that earlier attempts may have released beyond their last checkpoint.
        begun: The iteration up to which this attempt may draw.
    """

    def __init__(self, folder: Path, begun: int = 0, repeated: int = 0) -> None:
        self.path = folder / FILE
        self.secret = os.urandom(KEY_BYTES)
        self.begun, self.repeated = begun, repeated

    @classmethod
    def continued(cls, folder: Path, step: int) -> NoiseKey:
        """A new key for the attempt to continue a run from its checkpoint after `step` iterations.

        Raises:
            Misuse: If the key of the attempt before is not there.
        """
        path = folder / FILE
        if not path.exists():
            raise Misuse(
                f"{path} is not there: the run has ended, or its key was removed. What its "
                "guarantee has spent beyond the last checkpoint is not known.",
                "Start a new run in another folder.",
            )
        content = read_private(path)
        try:
            before = json.loads(content)
            begun, repeated = int(before["begun"]), int(before["repeated"])
        except (ValueError, KeyError, TypeError):
            raise Misuse(f"{path} is damaged.", "Start a new run in another folder.") from None
        return cls(folder, step, repeated + max(0, begun - step))

    def allow(self, step: int) -> None:
        """Write, before anything is drawn, that iterations up to `step` are begun."""
        self.begun = step
        content = {"secret": self.secret.hex(), "begun": step, "repeated": self.repeated}
        with replacing(self.path, durable=True) as part:
            write_private(part, json.dumps(content).encode())

    def remove(self) -> None:
        """Remove the file: the run has ended."""
        self.path.unlink(missing_ok=True)
        remove_parts(self.path.parent, re.compile(re.escape(FILE)))
