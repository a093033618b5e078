"""Noise from keys: both ends of an edge derive their mask, so that it costs no bytes.

A row of 32-bit words is a ChaCha20 keystream (RFC 8439, counter 0, nonce 0) with its own key:

    ikm = X25519(secret of one end, public key of the other)      for a mask
        = the client's secret                                     for own noise
    key = HKDF-SHA256(ikm, salt = federation, info = "tacit/keystream/1" ‖ address), 32 bytes
    address = (purpose, "shared" or "own", tag, generation, tick, source, target), and in a
              federation also the salts of the ends, which are new whenever a client starts over

Each part of an address is encoded as length ‖ UTF-8, so no two addresses have the same encoding,
and an algorithm draws under one tag once in a tick, so no keystream is used twice. Word w stands
for the number u = (w + ½)/2³², and noise of a law is its quantile at u.

Integer noise takes words from the keystream of the purpose "integers", as many per number as its
law says. The three further words of word w are the words 4w, 4w + 1 and 4w + 2 of the purpose
"integers/ties". Its address also has the SHA-256 digest of the integers that it is added to, as
deterministic signatures derive their nonce from the message: the same row gets the same noise, so
that a repeated message is identical, and another row gets independent noise, even if a client's
folder is restored from a backup and it does not know what it sent before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from tacit.core.checks import check_count
from tacit.core.discrete_gaussian import FURTHER, DiscreteGaussian
from tacit.core.errors import INSTALL_PEER, Misuse
from tacit.core.integer_noise import integer_rows
from tacit.core.noise import Noise
from tacit.core.randomness import uniform
from tacit.core.rows import NoiseRows

try:
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher
    from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ModuleNotFoundError:
    raise Misuse(
        "Keystreams (ChaCha20) need the package cryptography, which is not installed.",
        INSTALL_PEER,
    ) from None

KEY_BYTES = 32
VERSION = b"tacit/keystream/1"
# Words at a time: bounds the workspace and stays in cache.
CHUNK = 1 << 16


def public_key(secret: bytes) -> bytes:
    """The X25519 public key, 32 bytes, of a secret."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def shared_secret(secret: bytes, public: bytes) -> bytes:
    """X25519 (RFC 7748) of a secret and a public key; a ValueError if that key has low order."""
    return X25519PrivateKey.from_private_bytes(secret).exchange(
        X25519PublicKey.from_public_bytes(public)
    )


def hkdf(ikm: bytes, salt: bytes, info: bytes, length: int = KEY_BYTES) -> bytes:
    """HKDF-SHA256 (RFC 5869)."""
    return HKDF(SHA256(), length, salt, info).derive(ikm)


def encode_parts(*parts: str) -> bytes:
    """Each part as its length in 4 bytes and its UTF-8 bytes: different lists never collide."""
    texts = [part.encode() for part in parts]
    return b"".join(len(text).to_bytes(4, "big") + text for text in texts)


def keystream(key: bytes, words: int, block: int = 0) -> Iterator[np.ndarray]:
    """Words of the ChaCha20 keystream of a key, in chunks of at most CHUNK uint32.

    Args:
        key: The key, 32 bytes.
        words: How many words.
        block: The block of 16 words that they begin with.
    """
    # 4 bytes of counter, 12 of nonce.
    counter = block.to_bytes(4, "little") + bytes(12)
    cipher = Cipher(ChaCha20(key, nonce=counter), mode=None).encryptor()
    for first in range(0, words, CHUNK):
        zeros = bytes(4 * min(CHUNK, words - first))
        yield np.frombuffer(cipher.update(zeros), dtype="<u4")


@dataclass(frozen=True)
class KeyRing:
    """Keys of clients by their position in the graph.

    Args:
        federation: The name of the federation; two federations never share noise.
        generation: The version of the roster; it counts up, so that no keystream is used twice.
        names: The names of all clients.
        publics: The X25519 public keys of all clients, 32 bytes each.
        secrets: The private keys of the clients hosted here, by position.
        salts: Random values that clients contribute to their keys, by position.
    """

    federation: str
    generation: int
    names: Sequence[str]
    publics: Sequence[bytes]
    secrets: Mapping[int, bytes] = field(repr=False)
    salts: Mapping[int, bytes] = field(default_factory=dict, repr=False)
    _pairs: dict[tuple[int, int], bytes] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def __post_init__(self) -> None:
        check_count("The generation of the keys", self.generation, at_least=0)
        if len(self.names) != len(self.publics):
            raise Misuse(
                f"There are {len(self.names)} names and {len(self.publics)} public keys.",
                "Give one key for each client.",
            )
        if len(set(self.names)) != len(self.names) or "" in self.names:
            raise Misuse(
                "Names of clients are empty or not unique.", "Give each client its own name."
            )
        for name, public in zip(self.names, self.publics, strict=True):
            _check_length("public", name, public)
        for client, secret in self.secrets.items():
            if client not in range(len(self.names)):
                raise Misuse(
                    f"There is a private key of client {client!r}.", "Name it by its position."
                )
            _check_length("private", self.names[client], secret)
            # Otherwise masks would not cancel.
            if public_key(secret) != self.publics[client]:
                raise Misuse(
                    f"The private key of client {self.names[client]!r} does not belong to its "
                    "public key.",
                    "Give both of one pair.",
                )

    @classmethod
    def from_seed(cls, clients: int, seed: int) -> KeyRing:
        """Derive all keys from a seed. Only for simulations: the seed reveals every secret."""
        return cls.from_secret(clients, str(seed).encode())

    @classmethod
    def from_secret(cls, clients: int, secret: bytes) -> KeyRing:
        """Derive the keys of all clients from one secret, for simulations."""
        salt, ikm = b"tacit/simulation/1", secret
        names = [str(client) for client in range(clients)]
        secrets = {at: hkdf(ikm, salt, encode_parts(name)) for at, name in enumerate(names)}
        publics = [public_key(secret) for secret in secrets.values()]
        return cls("simulation", 1, names, publics, secrets)

    def randomness(self, width: int, dtype: torch.dtype) -> Keystreams:
        """Randomness from these keys, for models of `width` numbers."""
        return Keystreams(self, width, dtype)

    def key(
        self,
        purpose: str,
        tag: str,
        tick: int,
        source: int,
        target: int | None,
        digest: str | None = None,
    ) -> bytes:
        """The key of one row.

        Args:
            purpose: "noise", "words", "masks", "integers" or "integers/ties".
            tag: The name of the stream.
            tick: The counter of iterations.
            source: The client that draws, or the source of the edge.
            target: The target of the edge, or None for a client's own row.
            digest: Identifies the integers that integer noise is added to.
        """
        if target is None:
            self.require_secret(source, None)
            kind, ikm, other = "own", self.secrets[source], ""
        else:
            kind, ikm, other = "shared", self._pair(source, target), self.names[target]
        address = [purpose, kind, tag, str(self.generation), str(tick), self.names[source], other]
        if self.salts:
            ends = [source] if target is None else [source, target]
            address += [self.salts[end].hex() for end in ends]
        if digest is not None:
            address.append(digest)
        return hkdf(ikm, self.federation.encode(), VERSION + encode_parts(*address))

    def require_secret(self, source: int, target: int | None) -> None:
        """Raise ValueError if no secret on this ring derives the noise of `source` and `target`."""
        if source in self.secrets or target in self.secrets:
            return
        if target is None:
            raise ValueError(
                f"own noise of client {self.names[source]!r}, whose private key is not here"
            )
        raise ValueError(
            f"noise that clients {self.names[source]!r} and {self.names[target]!r} share: "
            "neither is hosted here"
        )

    def _pair(self, one: int, other: int) -> bytes:
        """The secret that two clients share; cached, because computing it is slow."""
        self.require_secret(one, other)
        mine, theirs = (one, other) if one in self.secrets else (other, one)
        pair = (min(one, other), max(one, other))
        if pair not in self._pairs:
            try:
                self._pairs[pair] = shared_secret(self.secrets[mine], self.publics[theirs])
            except ValueError:
                raise Misuse(
                    f"The public key of client {self.names[theirs]!r} has low order: "
                    "anyone could derive its noise.",
                    "Ask for a key that was generated at random.",
                ) from None
        return self._pairs[pair]


@dataclass(frozen=True)
class Keystreams:
    """Randomness of the clients whose secrets are on a ring, for rows of `width` numbers."""

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
    ) -> NoiseRows:
        sources: list[int] = source.tolist()
        targets: list[int | None] = [None] * len(sources) if target is None else target.tolist()
        columns = self.width if width is None else width
        for ends in zip(sources, targets, strict=True):
            self.ring.require_secret(*ends)

        def draw(index: Tensor) -> Tensor:
            # Always on the CPU: two ends with different devices must not round differently.
            out = torch.empty(len(index), columns, dtype=self.dtype)
            for row, edge in zip(out, index.tolist(), strict=True):
                key = self.ring.key("noise", tag, tick, sources[edge], targets[edge])
                for part, drawn in zip(row.split(CHUNK), keystream(key, columns), strict=False):
                    words = torch.from_numpy(drawn.astype(np.float64))
                    part.copy_(law.quantile(uniform(words)))
            return out.to(source.device)

        return NoiseRows(len(sources), columns, self.dtype, source.device, draw)

    def masks(self, tag: str, tick: int, one: Tensor, other: Tensor) -> Tensor:
        return self._words("masks", tag, tick, one.tolist(), other.tolist(), self.width, one.device)

    def words(
        self, tag: str, tick: int, source: Tensor, width: int, dtype: torch.dtype = torch.int64
    ) -> Tensor:
        alone = [None] * len(source)
        return self._words("words", tag, tick, source.tolist(), alone, width, source.device, dtype)

    def _words(
        self,
        purpose: str,
        tag: str,
        tick: int,
        source: Sequence[int],
        target: Sequence[int | None],
        width: int,
        device: torch.device,
        dtype: torch.dtype = torch.int64,
    ) -> Tensor:
        out = np.empty((len(source), width), dtype=np.int64 if dtype == torch.int64 else np.uint32)
        for row, one, other in zip(out, source, target, strict=True):
            key = self.ring.key(purpose, tag, tick, one, other)
            for first, drawn in zip(range(0, width, CHUNK), keystream(key, width), strict=True):
                row[first : first + len(drawn)] = drawn
        return torch.from_numpy(out).to(device)

    def add_integers(
        self, tag: str, law: DiscreteGaussian, tick: int, source: Tensor, onto: Tensor
    ) -> None:
        rows = integer_rows(onto, source)
        digests = [digest_of(row) for row in rows]
        for at, client in enumerate(source.tolist()):
            row_index = at if onto.ndim == 2 else 0
            noise = self._integers(tag, law, tick, client, digests[row_index], rows.shape[1])
            rows[row_index] += noise.to(rows.device)

    def _integers(
        self, tag: str, law: DiscreteGaussian, tick: int, client: int, digest: str, width: int
    ) -> Tensor:
        """A client's noise int32 [width] for the integers with this digest."""
        row = torch.empty(width, dtype=torch.int32)
        first_words = self.ring.key("integers", tag, tick, client, None, digest)
        ties = self.ring.key("integers/ties", tag, tick, client, None, digest)
        first = 0

        def further(_: int, at: int) -> list[int]:
            word = 4 * (first + at)
            (drawn,) = keystream(ties, word % 16 + FURTHER, word // 16)
            return [int(following) for following in drawn[word % 16 :]]

        for words in keystream(first_words, law.words * len(row)):
            bits = torch.from_numpy(words.astype(np.int32))
            numbers = law.numbers(bits[None], further)[0]
            at = first // law.words
            row[at : at + len(numbers)] = numbers
            first += len(words)
        return row


def digest_of(integers: Tensor) -> str:
    """SHA-256 of a row of integers modulo 2³², as little-endian 32-bit words."""
    words = np.ascontiguousarray(integers.to(torch.int32).cpu().numpy(), dtype="<i4")
    return hashlib.sha256(words.data).hexdigest()


def _check_length(kind: str, name: str, key: bytes) -> None:
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise Misuse(
            f"The {kind} key of client {name!r} is not {KEY_BYTES} bytes.",
            "Give the raw X25519 key.",
        )
