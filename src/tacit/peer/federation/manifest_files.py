"""Read and replace the manifest of a folder (federation.toml) with its signature (federation.sig).

A new signature is stored before its text: federation.sig gets the new signature beside the old one,
then federation.toml is replaced in one step. After a crash at any moment, the text that is there
has its signature.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tacit.core.errors import Misuse
from tacit.core.storage import write_bytes, write_text

MAX_SIGNATURE_BYTES = 4096  # of federation.sig, which holds one or two signatures
Verify = Callable[[bytes, bytes], bool]  # of a text and a signature


def read_signed_manifest(folder: Path, verify: Verify) -> tuple[bytes, bytes]:
    """The text in federation.toml and its signature; raise Misuse if there is no valid one."""
    # The text first: a process that replaces both keeps the signature of the text read here.
    text = read_file(
        folder / "federation.toml", "Give a folder that `tacit federation create` made."
    )
    for signature in _read_signatures(folder):
        if verify(text, signature):
            return text, signature
    raise Misuse(
        f"{folder / 'federation.toml'} is not signed by the operator.",
        "Restore it and federation.sig from the operator's folder.",
    )


def write_signed_manifest(folder: Path, text: bytes, signature: bytes, verify: Verify) -> None:
    """Replace text and signature; see the module for the order."""
    signatures = [signature]
    if (folder / "federation.toml").exists():
        old = (folder / "federation.toml").read_bytes()
        signatures += [known for known in _read_signatures(folder) if verify(old, known)][:1]
    lines = "".join(f"{known.hex()}\n" for known in signatures)
    write_text(folder / "federation.sig", lines, durable=True)
    write_bytes(folder / "federation.toml", text, durable=True)


def _read_signatures(folder: Path) -> list[bytes]:
    """All signatures in federation.sig; none if it is missing or damaged."""
    try:
        with (folder / "federation.sig").open("rb") as file:
            return [bytes.fromhex(line) for line in file.read(MAX_SIGNATURE_BYTES).decode().split()]
    except (OSError, ValueError):
        return []


def read_file(path: Path, remedy: str = "Restore it from the operator's folder.") -> bytes:
    """The content of a file; raise Misuse with this remedy if it cannot be read."""
    try:
        return path.read_bytes()
    except OSError as problem:
        raise Misuse(f"Cannot read {path}: {problem.strerror}.", remedy) from None
