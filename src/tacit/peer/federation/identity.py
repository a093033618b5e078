"""Who is who: an authority's certificates for the nodes, keys for masks, signatures of the operator.

Every key made here is on the curve P-256. gRPC lets one choose the cipher suites of TLS 1.2 but not shut that version
out; we offer only its RSA suites, which no ECDSA certificate can serve, so that TLS 1.3 is what remains. A node with
an RSA certificate would open that door again, and is refused.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.x509.oid import NameOID

from tacit.core.errors import Misuse
from tacit.peer.federation.certificates import (
    USES,
    CertificateFacts,
    Credentials,
    check_authority,
    check_authority_certificate,
    check_certificate,
    describe,
    load,
    load_key,
    node_key,
    server_name,
)

__all__ = [
    "OPERATOR",
    "CertificateFacts",
    "Credentials",
    "authority",
    "check_authority",
    "check_authority_certificate",
    "check_certificate",
    "check_days",
    "describe",
    "issue",
    "mask_public",
    "new_mask_key",
    "reissue",
    "request",
    "server_name",
    "sign",
    "signed_by",
    "signed_by_key",
]

OPERATOR = "operator"  # the name on the certificate of who signs the roster: no node may have it
SKEW = timedelta(minutes=5)  # clocks of two machines may be apart by this much
LONGEST = 36_500  # days


# --- certificates --------------------------------------------------------------------------------------


def authority(federation: str, days: int = 3650) -> Credentials:
    """A new authority of a federation's own: its certificate signs those of the nodes."""
    key = ec.generate_private_key(ec.SECP256R1())
    public, subject = key.public_key(), _common_name(f"{federation} authority")
    builder = (
        _dated(subject, subject, public, _end(days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )
    return Credentials(_pem(builder.sign(key, hashes.SHA256())), _private_pem(key))


def issue(ca: Credentials, name: str, federation: str, days: int = 365) -> Credentials:
    """A new key for a node (or the operator) and its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    return Credentials(_certify(ca, key.public_key(), name, federation, days), _private_pem(key))


def reissue(ca: Credentials, certificate: bytes, name: str, federation: str, days: int) -> bytes:
    """A new certificate for the key of an old one; its private key is not needed."""
    return _certify(ca, node_key(certificate), name, federation, days)


def request(name: str, federation: str) -> tuple[bytes, bytes]:
    """A request (PEM) to an authority that we do not hold, and the new private key that it is for."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(_common_name(name))
    for extension, critical in _extensions(name, federation):
        builder = builder.add_extension(extension, critical)
    signed = builder.sign(key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM), _private_pem(key)


def _certify(
    ca: Credentials, public: ec.EllipticCurvePublicKey, name: str, federation: str, days: int
) -> bytes:
    signer, issuer = check_authority(ca), load(ca.certificate)
    ends = min(_end(days), issuer.not_valid_after_utc)  # nothing outlives what vouches for it
    builder = _dated(_common_name(name), issuer.subject, public, ends)
    for extension, critical in _extensions(name, federation):
        builder = builder.add_extension(extension, critical)
    return _pem(
        builder.add_extension(_issued_by(issuer), critical=False).sign(signer, hashes.SHA256())
    )


def _extensions(name: str, federation: str) -> list[tuple[x509.ExtensionType, bool]]:
    """What makes a certificate one of a node, and whether a reader must understand it."""
    return [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(authority=False), True),
        (x509.ExtendedKeyUsage(USES), False),
        (x509.SubjectAlternativeName([x509.DNSName(server_name(name, federation))]), False),
    ]


def _issued_by(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:  # by the name that the authority gives to its key, where it gives one
        known = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        known = x509.SubjectKeyIdentifier.from_public_key(issuer.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)


def _usage(authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _dated(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, ends: datetime
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=public,
        serial_number=x509.random_serial_number(),
        not_valid_before=datetime.now(UTC) - SKEW,
        not_valid_after=ends,
    )


def check_days(days: int) -> int:
    """How long a certificate is valid, refused when that is not possible."""
    if not 1 <= days <= LONGEST:
        raise Misuse(
            f"A certificate cannot be for {days} days.", f"Give 1 to {LONGEST} days; 365 is usual."
        )
    return days


def _end(days: int) -> datetime:
    return datetime.now(UTC) + timedelta(days=check_days(days))


def _common_name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


# --- masks ---------------------------------------------------------------------------------------------


def new_mask_key() -> bytes:
    """A new X25519 private key, 32 bytes: masks shared with each neighbour are derived from it."""
    return X25519PrivateKey.generate().private_bytes_raw()


def mask_public(private: bytes) -> bytes:
    """The public key of a mask key, 32 bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


# --- signatures of the operator ------------------------------------------------------------------------


def sign(key: bytes, message: bytes) -> bytes:
    """The signature (ECDSA, SHA-256, DER) of a message by a private key."""
    loaded = load_key(key)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise Misuse("The operator's key is an RSA key.", "Use the one on P-256 that create made.")
    return loaded.sign(message, ec.ECDSA(hashes.SHA256()))


def signed_by(certificate: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the key of this certificate signed the message."""
    return _verified(node_key(certificate), message, signature)


def signed_by_key(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether this private key signed the message."""
    public = load_key(key).public_key()
    return isinstance(public, ec.EllipticCurvePublicKey) and _verified(public, message, signature)


def _verified(public: ec.EllipticCurvePublicKey, message: bytes, signature: bytes) -> bool:
    try:
        public.verify(signature, message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True
