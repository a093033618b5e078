"""Noise from keys: what two clients share they derive at both ends, so that a mask costs no bytes.

A row of 32-bit words is a ChaCha20 keystream (RFC 8439, counter 0, nonce 0) under a key of its own:

    ikm = X25519(secret of one end, public key of the other)      shared by the two ends of an edge
        = the client's secret                                     its own
    key = HKDF-SHA256(ikm, salt = federation, info = "tacit/keystream/1" ‖ address), 32 bytes
    address = (purpose, "shared" or "own", tag, generation, tick, source, target), each as length ‖ UTF-8

No two addresses have the same encoding, and an algorithm draws under one tag once in a tick, so no keystream is used
for two things. Word w stands for the number u = (w + ½)/2³², and noise of a law is its quantile at u.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from tacit.core.checks import is_count
from tacit.core.errors import Misuse
from tacit.core.noise import Noise
from tacit.core.rows import LazyRows

try:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ModuleNotFoundError:
    raise Misuse(
        "Keystreams (ChaCha20) need the package cryptography, which is not installed.",
        "Install it: pip install 'tacit[peer]'.",
    ) from None

KEY = 32  # bytes of every key
VERSION = b"tacit/keystream/1"
PIECE = 1 << 16  # words handled at a time: bounds the workspace and stays in cache


def public_key(secret: bytes) -> bytes:
    """The X25519 public key, 32 bytes, that belongs to a secret."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def shared_secret(secret: bytes, public: bytes) -> bytes:
    """X25519 (RFC 7748) of one's secret and the other's public key; a ValueError if that key is of low order."""
    return X25519PrivateKey.from_private_bytes(secret).exchange(
        X25519PublicKey.from_public_bytes(public)
    )


def derived(ikm: bytes, salt: bytes, info: bytes, length: int = KEY) -> bytes:
    """HKDF-SHA256 (RFC 5869)."""
    return HKDF(SHA256(), length, salt, info).derive(ikm)


def encoded(*parts: str) -> bytes:
    """The parts one after the other, each as its length in 4 bytes and its UTF-8 bytes: no two lists are the same."""
    texts = [part.encode() for part in parts]
    return b"".join(len(text).to_bytes(4, "big") + text for text in texts)


def keystream(key: bytes, words: int) -> Iterator[np.ndarray]:
    """The first words of the ChaCha20 keystream of a key, in pieces of at most PIECE uint32."""
    cipher = Cipher(
        ChaCha20(key, nonce=bytes(16)), mode=None
    ).encryptor()  # 4 bytes of counter, 12 of nonce
    for first in range(0, words, PIECE):
        zeros = bytes(4 * min(PIECE, words - first))
        yield np.frombuffer(cipher.update(zeros), dtype="<u4")


@dataclass(frozen=True)
class KeyRing:
    """Keys of clients by their position in the graph."""

    federation: str  # two federations never share noise
    generation: int  # counted up whenever the roster changes, so that no keystream is used twice
    names: Sequence[str]  # of all clients
    publics: Sequence[bytes]  # X25519 public keys of all clients, 32 bytes each
    secrets: Mapping[int, bytes] = field(
        repr=False
    )  # of clients hosted here: all, or one in a peer
    _pairs: dict[tuple[int, int], bytes] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        if not is_count(self.generation, 0):
            raise Misuse(
                f"The generation of the keys is {self.generation!r}.",
                "Give a whole number that is not negative.",
            )
        if len(self.names) != len(self.publics):
            raise Misuse(
                f"There are {len(self.names)} names and {len(self.publics)} public keys.",
                "Give one key for each client.",
            )
        if len(set(self.names)) != len(self.names) or "" in self.names:
            raise Misuse(
                "Clients are not told apart by their names.", "Give each a name of its own."
            )
        for name, public in zip(self.names, self.publics, strict=True):
            _refuse_length("public", name, public)
        for client, secret in self.secrets.items():
            if client not in range(len(self.names)):
                raise Misuse(
                    f"There is a private key of client {client!r}.", "Name it by its position."
                )
            _refuse_length("private", self.names[client], secret)
            if public_key(secret) != self.publics[client]:  # masks would not cancel
                raise Misuse(
                    f"The private key of client {self.names[client]!r} does not belong to its public key.",
                    "Give both of one pair.",
                )

    @classmethod
    def from_seed(cls, clients: int, seed: int) -> KeyRing:
        """All keys made from a seed. For simulations only: whoever guesses the seed has every secret."""
        salt, ikm = b"tacit/simulation/1", str(seed).encode()
        secrets = {client: derived(ikm, salt, encoded(str(client))) for client in range(clients)}
        names = [str(client) for client in range(clients)]
        return cls(
            "simulation",
            1,
            names,
            [public_key(secrets[client]) for client in range(clients)],
            secrets,
        )

    def randomness(self, width: int, dtype: torch.dtype) -> Keystreams:
        """What these keys make, for models of `width` numbers."""
        return Keystreams(self, width, dtype)

    def key(self, purpose: str, tag: str, tick: int, source: int, target: int | None) -> bytes:
        """The key of one row, of `source` alone or shared with `target`; (source, target) is the edge's direction."""
        kind, ikm = (
            ("own", self._own(source)) if target is None else ("shared", self._pair(source, target))
        )
        other = "" if target is None else self.names[target]
        address = (purpose, kind, tag, str(self.generation), str(tick), self.names[source], other)
        return derived(ikm, self.federation.encode(), VERSION + encoded(*address))

    def refuse_unheld(self, source: int, target: int | None) -> None:
        """Raise a ValueError where no secret that is here derives the noise of `source`, or of it and `target`."""
        if source in self.secrets or target in self.secrets:
            return
        if target is None:
            raise ValueError(
                f"own noise of client {self.names[source]!r}, whose private key is not here"
            )
        raise ValueError(
            f"noise that clients {self.names[source]!r} and {self.names[target]!r} share: neither is hosted here"
        )

    def _own(self, client: int) -> bytes:
        self.refuse_unheld(client, None)
        return self.secrets[client]

    def _pair(self, one: int, other: int) -> bytes:
        """What two clients both can compute and nobody else; kept, for it takes long."""
        self.refuse_unheld(one, other)
        mine, theirs = (one, other) if one in self.secrets else (other, one)
        pair = (min(one, other), max(one, other))
        if pair not in self._pairs:
            try:
                self._pairs[pair] = shared_secret(self.secrets[mine], self.publics[theirs])
            except ValueError:
                raise Misuse(
                    f"The public key of client {self.names[theirs]!r} is of low order: anyone could derive its noise.",
                    "Ask for a key that was made at random.",
                ) from None
        return self._pairs[pair]


@dataclass(frozen=True)
class Keystreams:
    """Randomness of the clients whose secrets are in a ring, for rows of `width` numbers."""

    ring: KeyRing
    width: int
    dtype: torch.dtype = torch.float32

    def rows(
        self,
        tag: str,
        law: Noise,
        tick: int,
        source: Tensor,
        target: Tensor | None,
        width: int | None = None,
    ) -> LazyRows:
        """Noise rows of `law`, drawn when taken."""
        sources: list[int] = source.tolist()
        targets: list[int | None] = [None] * len(sources) if target is None else target.tolist()
        columns = self.width if width is None else width
        for one, other in zip(sources, targets, strict=True):
            self.ring.refuse_unheld(one, other)

        def draw(index: Tensor) -> Tensor:
            # On the CPU wherever the rows go: two ends with other devices must not round differently.
            out = torch.empty(len(index), columns, dtype=self.dtype)
            for row, edge in zip(out, index.tolist(), strict=True):
                key = self.ring.key("noise", tag, tick, sources[edge], targets[edge])
                pieces = row.split(PIECE)
                for piece, drawn in zip(pieces, keystream(key, columns), strict=False):
                    piece.copy_(law.quantile(uniform(drawn)))
            return out.to(source.device)

        return LazyRows(len(sources), columns, self.dtype, source.device, draw)

    def words(self, tag: str, tick: int, source: Tensor, width: int) -> Tensor:
        """Words of the clients `source`, each from its own secret."""
        out = np.empty((len(source), width), dtype=np.int64)
        for row, client in zip(out, source.tolist(), strict=True):
            key = self.ring.key("words", tag, tick, client, None)
            for first, drawn in zip(range(0, width, PIECE), keystream(key, width), strict=True):
                row[first : first + len(drawn)] = drawn
        return torch.from_numpy(out).to(source.device)


def uniform(words: np.ndarray) -> Tensor:
    """(w + ½)/2³²: the middle of one of 2³² equal cells of (0, 1), so that every quantile is finite."""
    u = torch.empty(len(words), dtype=torch.float64)
    u.numpy()[:] = words
    return u.add_(0.5).mul_(2.0**-32)


def _refuse_length(what: str, name: str, key: bytes) -> None:
    if not isinstance(key, bytes) or len(key) != KEY:
        raise Misuse(
            f"The {what} key of client {name!r} is not {KEY} bytes.", "Give the raw X25519 key."
        )
