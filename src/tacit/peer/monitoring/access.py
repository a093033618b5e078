"""Access to what a server on the loopback interface tells: a random token.

Every user and program of a machine reaches its loopback interface. Whoever has the token opens a
link with it, which sets a cookie, or sends it as a bearer token.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from urllib.parse import parse_qs

from tacit.core.errors import Misuse
from tacit.core.storage import read_private, write_private
from tacit.peer.monitoring.http_server import PLAIN, Request, Response

TOKEN_FILE = "dashboard.token"  # of a node, in its run folder
TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")  # 256 bits
REFUSAL = (
    "This page needs the link with its token.\n"
    "Paste the whole link into the address bar. To print it: tacit federation dashboard FOLDER\n"
)


@dataclass(frozen=True)
class Access:
    """Decides which requests see everything."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @property
    def cookie(self) -> str:
        """The name of the cookie. Servers on other ports of the host have others."""
        return f"tacit-{hashlib.sha256(self.token.encode()).hexdigest()[:8]}"

    def allows(self, request: Request) -> bool:
        """Whether a request has the token, in its cookie or as a bearer token."""
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._is_token(bearer.strip()):
            return True
        cookies = (part.strip().partition("=") for part in _cookies(request))
        return any(name == self.cookie and self._is_token(value) for name, _, value in cookies)

    def enter(self, request: Request, path: str) -> Response | None:
        """The response to a link with the right token: a cookie, and the way to `path`.

        The token leaves the address, so that it is in no history and on no screen.
        """
        tokens = parse_qs(request.query, max_num_fields=10).get("token", [])
        if len(tokens) != 1 or not self._is_token(tokens[0]):
            return None
        cookie = f"{self.cookie}={self.token}; Path=/dashboard; HttpOnly; SameSite=Strict"
        headers = (("Location", path), ("Set-Cookie", cookie), ("Referrer-Policy", "no-referrer"))
        return Response(HTTPStatus.SEE_OTHER, PLAIN, "", headers)

    def _is_token(self, text: str) -> bool:
        """Compare in constant time, so that no prefix of the token can be found by timing."""
        return hmac.compare_digest(text.encode("utf-8", "replace"), self.token.encode())


def _cookies(request: Request) -> list[str]:
    return request.headers.get("cookie", "").split(";")


def refuse() -> Response:
    """The response to a request for a page without the token."""
    return Response(HTTPStatus.FORBIDDEN, PLAIN, REFUSAL)


def load_access(path: Path) -> Access | None:
    """The access whose token is in a file; None if there is none that only its owner can read."""
    with suppress(Misuse):
        token = read_private(path).decode("ascii", "replace").strip()
        if TOKEN.fullmatch(token):
            return Access(token)
    return None


def stored_access(path: Path) -> Access:
    """The access whose token is in a file that only its owner can read; created if there is none.

    A link stays valid when a node restarts.
    """
    if (known := load_access(path)) is not None:
        return known
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    access = Access()
    write_private(path, f"{access.token}\n".encode())
    return access
