"""X.509 certificates of nodes, operator and authority: load, describe and check them.

The keys of nodes are on the curve P-256. gRPC cannot switch off TLS 1.2, only restrict its cipher
suites. `tacit.peer` allows one that needs an RSA certificate, so handshakes with these keys succeed
with TLS 1.3 only. Node certificates with RSA keys would allow TLS 1.2 again and are refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tacit.core.errors import Misuse, NotReady

OPERATOR = "operator"  # name on the operator's certificate, so no node may have it
# A node is a server for its out-neighbours and a client of its in-neighbours.
KEY_USES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
# RSA: only for an external authority.
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

E = TypeVar("E", bound=x509.ExtensionType)


@dataclass(frozen=True)
class Credentials:
    """A certificate and its private key (PKCS8, not encrypted), both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True)
class CertificateInfo:
    name: str
    server_names: tuple[str, ...]
    fingerprint: str  # SHA-256, hexadecimal with colons
    issuer: str
    not_before: datetime
    not_after: datetime


def server_name(name: str, federation: str) -> str:
    """The DNS name in a node's certificate. It does not depend on the node's address.

    A client sends it unencrypted when it connects, so it holds digests instead of names. Whoever
    guesses both names can confirm the guess; a federation's name ends with random digits.
    """
    return _digest("node", federation, name) + server_domain(federation)


def server_domain(federation: str) -> str:
    """How the DNS names of all nodes of a federation end."""
    return f".{_digest('federation', federation)}.tacit"


def certified_name(info: CertificateInfo, federation: str) -> str | None:
    """The name in a federation that a valid certificate proves, if any.

    Exactly one DNS name must be of the federation, and belong to the common name. With a second one
    the node could impersonate another.
    """
    domain = server_domain(federation)
    names = [name for name in info.server_names if name.endswith(domain)]
    return info.name if names == [server_name(info.name, federation)] else None


def certificate_info(certificate: bytes) -> CertificateInfo:
    loaded = load_certificate(certificate)
    return CertificateInfo(
        name=_common_name(loaded),
        server_names=_server_names(loaded),
        fingerprint=loaded.fingerprint(hashes.SHA256()).hex(":"),
        issuer=loaded.issuer.rfc4514_string(),
        not_before=loaded.not_valid_before_utc,
        not_after=loaded.not_valid_after_utc,
    )


def check_certificate(own: Credentials, ca: bytes, name: str, federation: str) -> None:
    """Raise Misuse if other nodes would refuse this certificate of the node or operator `name`.

    `ca` is the PEM text of one or more authorities.
    """
    check_issued(own.certificate, ca, name, federation)
    if load_key(own.key).public_key() != node_public_key(own.certificate):
        problem = f"The private key of {name} does not match its certificate."
        raise Misuse(problem, "Restore the key and certificate that were created together.")


def check_issued(certificate: bytes, ca: bytes, name: str, federation: str) -> None:
    """As `check_certificate`, without the private key."""
    loaded = load_certificate(certificate)
    node_public_key(certificate)  # raises for other kinds of keys
    if _common_name(loaded) != name:
        problem = f"The certificate belongs to {_common_name(loaded)!r}, not to {name!r}."
        raise Misuse(problem, f"Replace it with the certificate of {name}.")
    if certified_name(certificate_info(certificate), federation) != name:
        names = ", ".join(_server_names(loaded)) or "no DNS name"
        raise Misuse(
            f"The certificate of {name} is for {names}. It must be for "
            f"{server_name(name, federation)} and for no other node.",
            "Renew it: tacit federation renew FOLDER. An authority of your own must keep the "
            "subject alternative name of the request.",
        )
    _check_issuer(loaded, ca, name)
    _check_dates(loaded, f"The certificate of {name}", "Renew it: tacit federation renew FOLDER.")
    uses = extension(loaded, x509.ExtendedKeyUsage)
    # A certificate without this extension is valid for every use.
    if (uses is not None and not set(KEY_USES) <= set(uses)) or _is_authority(loaded):
        raise Misuse(
            f"The certificate of {name} is not for a node, which is both server and client.",
            "Let the authority issue it with extended key usage serverAuth and clientAuth, "
            "and CA:FALSE.",
        )


def check_issuer(certificate: bytes, ca: bytes) -> None:
    """Raise Misuse unless one of the authorities has signed a certificate."""
    loaded = load_certificate(certificate)
    _check_issuer(loaded, ca, _common_name(loaded))


def check_authority(ca: Credentials) -> PrivateKey:
    """The key of an authority; raise Misuse if it cannot sign certificates."""
    check_authority_certificate(ca.certificate)
    key = load_key(ca.key)
    if key.public_key() != load_certificate(ca.certificate).public_key():
        problem = "The private key of the authority does not match its certificate."
        raise Misuse(problem, "Give the certificate and key that were created together.")
    return key


def check_authority_certificate(certificate: bytes) -> None:
    """Raise Misuse if a certificate cannot sign others, or is not valid now."""
    loaded = load_certificate(certificate)
    if not _is_authority(loaded):
        problem = f"The certificate of {_common_name(loaded)!r} is not that of an authority."
        raise Misuse(problem, "Give the certificate that signs others (basic constraints CA:TRUE).")
    _check_dates(loaded, "The certificate of the authority", "Get a new one from its owner.")


def node_public_key(certificate: bytes) -> ec.EllipticCurvePublicKey:
    """The public key of a certificate; raise Misuse unless it is on P-256."""
    loaded = load_certificate(certificate)
    public = loaded.public_key()
    if isinstance(public, ec.EllipticCurvePublicKey) and isinstance(public.curve, ec.SECP256R1):
        return public
    kinds = {ec.EllipticCurvePublicKey: "another elliptic curve", rsa.RSAPublicKey: "RSA"}
    kind = next((kinds[kind] for kind in kinds if isinstance(public, kind)), "an unknown kind")
    problem = f"The certificate of {_common_name(loaded)!r} has a key of {kind}."
    raise Misuse(problem, "Use an elliptic-curve key on P-256: only such keys rule out TLS 1.2.")


def load_certificate(certificate: bytes) -> x509.Certificate:
    """The first certificate in PEM text."""
    return _load_certificates(certificate)[0]


def extension(loaded: x509.Certificate, kind: type[E]) -> E | None:
    """The extension of this kind, if the certificate has one."""
    try:
        return loaded.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def load_key(key: bytes) -> PrivateKey:
    try:
        loaded = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise Misuse(
            "This is not a private key in PEM format without a password.",
            "Give a file that begins with -----BEGIN PRIVATE KEY-----.",
        ) from None
    if not isinstance(loaded, PrivateKey):
        raise Misuse(
            "This private key is of an unknown kind.", "Use an elliptic-curve key on P-256."
        )
    return loaded


def _load_certificates(certificates: bytes) -> list[x509.Certificate]:
    try:
        loaded = x509.load_pem_x509_certificates(certificates)
        # These are parsed lazily: do it here, so that errors surface here.
        for one in loaded:
            _ = one.extensions, one.public_key(), one.subject, one.issuer
            _ = one.not_valid_before_utc, one.not_valid_after_utc
    except (
        ValueError,
        TypeError,
        UnsupportedAlgorithm,
        x509.DuplicateExtension,
        x509.InvalidVersion,
        x509.UnsupportedGeneralNameType,
    ):
        raise Misuse(
            "This is not a certificate in PEM format.",
            "Give a file that begins with -----BEGIN CERTIFICATE-----.",
        ) from None
    return loaded


def issuers_of(loaded: x509.Certificate, ca: bytes) -> Iterator[x509.Certificate]:
    """The authorities in PEM text that have signed a certificate."""
    for issuer in _load_certificates(ca):
        try:
            loaded.verify_directly_issued_by(issuer)
        except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature):
            continue
        yield issuer


def _check_issuer(loaded: x509.Certificate, ca: bytes, name: str) -> None:
    if any(_is_authority(issuer) for issuer in issuers_of(loaded, ca)):
        return
    problem = f"The certificate of {name} was not signed by this federation's authority."
    raise Misuse(problem, "Have it signed by the authority whose certificate is ca.pem.")


def _check_dates(loaded: x509.Certificate, what: str, remedy: str) -> None:
    now = datetime.now(UTC)
    if now > loaded.not_valid_after_utc:
        raise Misuse(f"{what} expired on {loaded.not_valid_after_utc:%Y-%m-%d}.", remedy)
    if now < loaded.not_valid_before_utc:
        start = f"{loaded.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        raise NotReady(f"{what} is not valid before {start}.", "Check the clock of this machine.")


def _digest(*parts: str) -> str:
    """128 bits that identify some texts, as hexadecimal digits."""
    text = "\0".join(("tacit", *parts))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _is_authority(loaded: x509.Certificate) -> bool:
    constraints = extension(loaded, x509.BasicConstraints)
    return constraints is not None and constraints.ca


def _common_name(loaded: x509.Certificate) -> str:
    names = loaded.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def _server_names(loaded: x509.Certificate) -> tuple[str, ...]:
    names = extension(loaded, x509.SubjectAlternativeName)
    return () if names is None else tuple(names.get_values_for_type(x509.DNSName))
