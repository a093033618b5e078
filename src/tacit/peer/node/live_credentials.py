"""The certificate and key of a running node, which may be renewed without a restart."""

from __future__ import annotations

import threading
import time

from tacit.core.errors import Misuse
from tacit.peer.federation.certificates import Credentials, certificate_info
from tacit.peer.federation.folders import NodeFolder
from tacit.peer.monitoring.event_log import EventLog

ANNOUNCED_DAYS = 14  # before a certificate expires
DAY = 86_400.0


class LiveCredentials:
    """What is in the node's folder now. New connections use it, open ones keep what they have.

    Files that do not belong together, or that other nodes would refuse, do not replace those in
    use: key and certificate are two files, which cannot be replaced in one step.
    """

    def __init__(self, folder: NodeFolder, name: str, event_log: EventLog) -> None:
        self._folder, self._name, self._event_log = folder, name, event_log
        self._lock = threading.Lock()
        self._stamp: object = None
        self._credentials: Credentials | None = None

    def current(self) -> Credentials:
        """The newest valid credentials; raise Misuse if there were none from the start."""
        with self._lock:
            stamp = self._read_stamp()
            if self._credentials is not None and stamp == self._stamp:
                return self._credentials
            try:
                found = self._folder.credentials()
                if (other := certificate_info(found.certificate).name) != self._name:
                    problem = f"The certificate belongs to {other!r}, not to {self._name!r}."
                    raise Misuse(problem, f"Install the certificate of {self._name}.")
            except (Misuse, OSError) as problem:
                if self._credentials is None:
                    raise
                self._event_log.write_throttled(
                    60, "certificate not used", "certificate not used", "warning", why=str(problem)
                )
                return self._credentials
            if self._credentials is not None and found != self._credentials:
                info = certificate_info(found.certificate)
                self._event_log.write(
                    "certificate renewed", fingerprint=info.fingerprint, expires=str(info.not_after)
                )
            self._credentials, self._stamp = found, stamp
            return found

    @property
    def expiry(self) -> float:
        """Unix time at which the current certificate expires."""
        return certificate_info(self.current().certificate).not_after.timestamp()

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the current certificate."""
        return certificate_info(self.current().certificate).fingerprint

    def _read_stamp(self) -> object:
        """Changes whenever one of the files is replaced."""
        try:
            stats = [(self._folder.path / name).stat() for name in ("node.pem", "node.key")]
        except OSError:
            return None
        return [(one.st_ino, one.st_mtime_ns, one.st_size) for one in stats]


def expiry_notice(owner: str, expiry: float, now: float) -> str:
    """Says that a certificate has expired, or expires within two weeks; otherwise ""."""
    days = (expiry - now) / DAY
    when = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(expiry))
    if days < 0:
        return f"the certificate of {owner} expired on {when}"
    if days > ANNOUNCED_DAYS:
        return ""
    left = "less than a day" if days < 1 else "1 day" if days < 2 else f"{int(days)} days"
    return f"the certificate of {owner} expires in {left}, on {when}: renew it"
