"""The operator's changes: an append-only signed log that every member verifies.

One JSON object per line, in a fixed form. Each entry has a number, the digest of the entry before,
the time, the change and the operator's signature. A member accepts only logs that extend its own.

A digest does not cover the signature: from one ECDSA signature anyone can compute a second valid
one, which must not look like another entry.

Manifests and the log: each roster entry holds the digest of a manifest, and a manifest that no
entry names is refused. So whoever has a manifest has all changes before it too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from tacit.core.errors import Misuse
from tacit.peer.federation.certificates import certificate_info

FORMAT = "tacit-log-1"
MAX_BYTES = 4 << 20  # of a whole log
MAX_LINE = 1 << 16
KEYS = {
    "format": str,
    "number": int,
    "previous": str,
    "time": str,
    "kind": str,
    "change": dict,
    "signature": str,
}
# What each kind of change holds.
CHANGES: Mapping[str, Mapping[str, type]] = {
    "roster": {"generation": int, "manifest": str, "members": list},
    "certificate": {"name": str, "certificate": str},
    "revocation": {"name": str, "reason": str},
    "address": {"name": str, "address": str},
    "relay": {"name": str, "address": str},  # without address: removed
}
REMEDY = "Get the log as it was signed from the operator."

Verify = Callable[[bytes, bytes], bool]
Sign = Callable[[bytes], bytes]


@dataclass(frozen=True)
class Entry:
    """One change. `change` has the keys that CHANGES lists for its kind."""

    number: int  # 1, 2, …
    previous: str  # digest of the entry before; "" for the first
    time: str
    kind: str
    change: Mapping[str, Any]
    signature: str = ""  # hexadecimal

    @cached_property
    def signed_text(self) -> bytes:
        values = {
            "format": FORMAT,
            "number": self.number,
            "previous": self.previous,
            "time": self.time,
            "kind": self.kind,
            "change": {key: self.change[key] for key in CHANGES[self.kind]},
        }
        return json.dumps(values, separators=(",", ":")).encode()

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(self.signed_text).hexdigest()

    @cached_property
    def line(self) -> bytes:
        return self.signed_text[:-1] + f',"signature":"{self.signature}"}}'.encode()

    def describe(self) -> str:
        """The change in words, without characters that control a terminal."""
        return "".join(each if each.isprintable() else "�" for each in self._describe())

    def _describe(self) -> str:
        change = self.change
        if self.kind == "roster":
            return f"roster of generation {change['generation']}: {', '.join(change['members'])}"
        if self.kind == "certificate":
            info = certificate_info(change["certificate"].encode())
            short = info.fingerprint[:11]
            return f"certificate {short} of {change['name']}, until {info.not_after:%Y-%m-%d}"
        if self.kind == "revocation":
            reason = f": {change['reason']}" if change["reason"] else ""
            return f"all earlier certificates of {change['name']} revoked{reason}"
        if self.kind == "relay":
            name, address = change["name"], change["address"]
            return f"relay {name}: {address}" if address else f"relay {name} removed"
        return f"address of {change['name']}: {change['address']}"


@dataclass(frozen=True)
class ChangeLog:
    """The verified entries of a log."""

    entries: tuple[Entry, ...] = ()

    @property
    def number(self) -> int:
        """How many entries there are."""
        return len(self.entries)

    @property
    def head(self) -> str:
        """Digest of the newest entry; "" without entries."""
        return self.entries[-1].digest if self.entries else ""

    @cached_property
    def text(self) -> bytes:
        return b"".join(entry.line + b"\n" for entry in self.entries)

    def appended(self, kind: str, change: Mapping[str, Any], sign: Sign) -> ChangeLog:
        """This log with one more change, signed by the operator."""
        now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        entry = Entry(self.number + 1, self.head, now, kind, change)
        signed = replace(entry, signature=sign(entry.signed_text).hex())
        return ChangeLog((*self.entries, signed))

    def updated(self, text: bytes, verify: Verify) -> ChangeLog:
        """The longer one of this log and another; raise Misuse unless one extends the other.

        Args:
            text: The other log, from anyone.
            verify: Whether the operator signed a text.
        """
        entries = list(self.entries)
        for at, line in enumerate(_lines(text)):
            if at < self.number and line == self.entries[at].line:
                continue
            entry = _parse_entry(line, at + 1)
            if not verify(entry.signed_text, bytes.fromhex(entry.signature)):
                problem = f"Entry {at + 1} of the log is not signed by this federation's operator."
                raise Misuse(problem, "Do not trust its sender.")
            before = entries[at - 1].digest if at else ""
            if entry.number != at + 1 or entry.previous != before:
                raise Misuse(f"Entry {at + 1} of the log does not follow the one before.", REMEDY)
            if at < self.number:
                _check_same(self.entries[at], entry)
            else:
                entries.append(entry)
        return self if len(entries) == self.number else ChangeLog(tuple(entries))

    # --- what the entries say ---------------------------------------------------------------------

    def roster_entry(self, manifest: bytes) -> int | None:
        """The number of the entry that names a manifest by its SHA-256, if there is one."""
        digest = manifest.hex()
        found = (entry.number for entry in self._of("roster") if entry.change["manifest"] == digest)
        return next(found, None)

    def addresses(self, manifest: bytes) -> dict[str, str]:
        """Addresses that have changed since a manifest, by name."""
        since = self.roster_entry(manifest) or 0
        changes = (entry.change for entry in self._of("address") if entry.number > since)
        return {change["name"]: change["address"] for change in changes}

    @cached_property
    def members(self) -> tuple[str, ...]:
        """The names in the newest roster."""
        rosters = list(self._of("roster"))
        return tuple(rosters[-1].change["members"]) if rosters else ()

    @cached_property
    def relays(self) -> dict[str, str]:
        """Names and addresses of the relays; the addresses of removed ones are empty."""
        changes = (entry.change for entry in self._of("relay"))
        return {change["name"]: change["address"] for change in changes}

    def revoked_in(self, name: str) -> int | None:
        """The number of the last entry that revokes the certificates of a name, if there is one."""
        numbers = [one.number for one in self._of("revocation") if one.change["name"] == name]
        return numbers[-1] if numbers else None

    def certificates(self, name: str, after: int = 0) -> list[bytes]:
        """The certificates (PEM) of a name in entries after this number."""
        return [
            entry.change["certificate"].encode()
            for entry in self._of("certificate")
            if entry.number > after and entry.change["name"] == name
        ]

    def trusted_certificates(self, name: str) -> list[bytes] | None:
        """After a revocation, the only certificates of a name that are accepted; else None."""
        revoked = self.revoked_in(name)
        return None if revoked is None else self.certificates(name, after=revoked)

    def trusted_roots(self, name: str, ca: bytes) -> bytes:
        """The certificates (PEM) that a server must show one of, or be signed by.

        That is the authority's. After a revocation it is each newer certificate of the server
        itself, which may be none: b"".
        """
        trusted = self.trusted_certificates(name)
        return ca if trusted is None else b"".join(trusted)

    def accepts(self, name: str, fingerprint: str) -> bool:
        """Whether a valid certificate of a name is accepted: after a revocation only newer ones."""
        trusted = self.trusted_certificates(name)
        return trusted is None or any(
            certificate_info(one).fingerprint == fingerprint for one in trusted
        )

    def _of(self, kind: str) -> Iterator[Entry]:
        return (entry for entry in self.entries if entry.kind == kind)


def _lines(text: bytes) -> list[bytes]:
    if len(text) > MAX_BYTES:
        raise Misuse(f"The log has {len(text)} bytes, more than {MAX_BYTES}.", REMEDY)
    if text and not text.endswith(b"\n"):
        raise Misuse("The last line of the log is cut off.", REMEDY)
    return text.split(b"\n")[:-1]


def _parse_entry(line: bytes, number: int) -> Entry:
    """An entry, if its line has exactly the form in which entries are written."""
    remedy = f"{REMEDY} All nodes need the same version of tacit."
    problem = Misuse(f"Entry {number} of the log has an unknown form.", remedy)
    try:
        values: Any = json.loads(line) if len(line) <= MAX_LINE else None
    except (ValueError, RecursionError):
        raise problem from None
    if not _has_types(values, KEYS) or values["kind"] not in CHANGES:
        raise problem
    if not _has_types(values["change"], CHANGES[values["kind"]]):
        raise problem
    if not all(isinstance(name, str) for name in values["change"].get("members", ())):
        raise problem
    arguments = {key: values[key] for key in KEYS if key != "format"}
    entry = Entry(**arguments)
    # One form only: the order of keys, spaces and escapes are part of what is signed.
    if entry.line != line:
        raise problem
    try:
        if bytes.fromhex(entry.signature).hex() != entry.signature:
            raise problem
        if entry.kind == "certificate":
            certificate_info(entry.change["certificate"].encode())
    except (ValueError, Misuse):
        raise problem from None
    return entry


def _has_types(values: Any, types: Mapping[str, type]) -> bool:
    return (
        isinstance(values, dict)
        and values.keys() == types.keys()
        and all(type(values[key]) is kind for key, kind in types.items())
    )


def _check_same(ours: Entry, theirs: Entry) -> None:
    if theirs.digest != ours.digest:
        raise Misuse(
            f"The operator's log forks at entry {ours.number}: ours is "
            f"'{ours.describe()}', the other one '{theirs.describe()}'. Both are signed.",
            "The operator used two copies of its folder, or tells members different things: "
            "ask which log is valid, and compare its head with other members.",
        )
