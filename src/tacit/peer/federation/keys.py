"""Mask keys of nodes, and signatures with the operator's key."""

from __future__ import annotations

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tacit.core.errors import Misuse
from tacit.peer.federation.certificates import load_key, node_public_key


def generate_mask_key() -> bytes:
    """A new X25519 private key, 32 bytes. Nodes derive the masks of an edge from their two keys."""
    return X25519PrivateKey.generate().private_bytes_raw()


def mask_public_key(private: bytes) -> bytes:
    """The public key of a mask key, 32 bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def sign(key: bytes, message: bytes) -> bytes:
    """Sign a message with a private key (PEM): ECDSA with SHA-256, DER."""
    loaded = load_key(key)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise Misuse(
            "The operator's key is an RSA key.",
            "Restore operator.key as `tacit federation create` wrote it.",
        )
    return loaded.sign(message, ec.ECDSA(hashes.SHA256()))


def signed_by(certificate: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the key of this certificate signed the message."""
    return _is_valid(node_public_key(certificate), message, signature)


def signed_by_key(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether this private key signed the message."""
    return _is_valid(load_key(key).public_key(), message, signature)


def _is_valid(public: object, message: bytes, signature: bytes) -> bool:
    if not isinstance(public, ec.EllipticCurvePublicKey):
        return False
    try:
        public.verify(signature, message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True
