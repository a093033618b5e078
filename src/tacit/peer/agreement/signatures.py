"""Signatures of members: made with the key of a node's certificate, and verified with it.

A statement carries its signer's certificate. It counts if the federation's authority has issued
that certificate for the signer's name, which is what TLS checks too. The period of validity is not
checked: a decision holds after the certificates of those who voted have expired. To send a
statement, its signer needs a valid certificate anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from tacit.core.errors import Misuse
from tacit.peer.agreement.statements import Signed, signed_bytes
from tacit.peer.federation import signing
from tacit.peer.federation.certificates import (
    Credentials,
    certificate_info,
    certified_name,
    check_issuer,
)

REMEMBERED = 4096  # signatures and certificates that need not be verified again


def make_signer(
    current: Callable[[], Credentials], name: str, federation: str
) -> Callable[[Any], Signed[Any]]:
    """A function that signs statements as the member `name`, with its current credentials."""

    def sign(statement: Any) -> Signed[Any]:
        own = current()
        certificate = own.certificate.decode()
        message = signed_bytes(federation, name, statement)
        return Signed(statement, name, certificate, signing.sign(own.key, message).hex())

    return sign


def make_verifier(ca: bytes, federation: str) -> Callable[[Signed[Any]], bool]:
    """A function that says whether a member has signed a statement."""

    @lru_cache(REMEMBERED)
    def belongs_to(certificate: str, name: str) -> bool:
        try:
            known = certified_name(certificate_info(certificate.encode()), federation)
            check_issuer(certificate.encode(), ca)
        except Misuse:
            return False
        return known == name

    @lru_cache(REMEMBERED)
    def is_signed(certificate: str, message: bytes, signature: str) -> bool:
        try:
            return signing.signed_by(certificate.encode(), message, bytes.fromhex(signature))
        except (Misuse, ValueError):
            return False

    def verify(signed: Signed[Any]) -> bool:
        message = signed_bytes(federation, signed.signer, signed.statement)
        return belongs_to(signed.certificate, signed.signer) and is_signed(
            signed.certificate, message, signed.signature
        )

    return verify
