"""New keys, and what is signed with them: certificates, certificate requests and manifests."""

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
    KEY_USES,
    Credentials,
    check_authority,
    extension,
    load_certificate,
    load_key,
    node_public_key,
    server_name,
)

CLOCK_SKEW = timedelta(minutes=5)  # between the clocks of two machines
MAX_DAYS = 36_500


def create_authority(federation: str, days: int = 3650) -> Credentials:
    """A new authority, whose certificate signs those of the nodes."""
    key = ec.generate_private_key(ec.SECP256R1())
    public, subject = key.public_key(), _subject(f"{federation} authority")
    builder = (
        _builder(subject, subject, public, _end(days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return Credentials(certificate, _private_pem(key))


def issue_credentials(ca: Credentials, name: str, federation: str, days: int = 365) -> Credentials:
    """A new key for a node (or the operator) and its certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = issue_certificate(ca, key.public_key(), name, federation, days)
    return Credentials(certificate, _private_pem(key))


def issue_certificate(
    ca: Credentials, public: ec.EllipticCurvePublicKey, name: str, federation: str, days: int
) -> bytes:
    """A certificate (PEM) for the public key of a node or the operator."""
    signer, issuer = check_authority(ca), load_certificate(ca.certificate)
    end = min(_end(days), issuer.not_valid_after_utc)
    builder = _builder(_subject(name), issuer.subject, public, end)
    for part, critical in _node_extensions(name, federation):
        builder = builder.add_extension(part, critical)
    known = extension(issuer, x509.SubjectKeyIdentifier)
    known = known or x509.SubjectKeyIdentifier.from_public_key(issuer.public_key())
    identifier = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)
    builder = builder.add_extension(identifier, critical=False)
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def request_certificate(name: str, federation: str) -> tuple[bytes, bytes]:
    """A certificate request for an external authority, and its new private key (both PEM)."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(_subject(name))
    for part, critical in _node_extensions(name, federation):
        builder = builder.add_extension(part, critical)
    signed = builder.sign(key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM), _private_pem(key)


def generate_key() -> bytes:
    """A new private key (PEM) for TLS, on P-256."""
    return _private_pem(ec.generate_private_key(ec.SECP256R1()))


def check_days(days: int) -> int:
    if not 1 <= days <= MAX_DAYS:
        problem = f"A certificate cannot be valid for {days} days."
        raise Misuse(problem, f"Give 1 to {MAX_DAYS} days; 365 is usual.")
    return days


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
        problem = "The operator's key is an RSA key."
        raise Misuse(problem, "Restore operator.key as `tacit federation create` wrote it.")
    return loaded.sign(message, ec.ECDSA(hashes.SHA256()))


def signed_by(certificate: bytes, message: bytes, signature: bytes) -> bool:
    """Whether the key of this certificate signed the message."""
    return is_signed(node_public_key(certificate), message, signature)


def signed_by_key(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether this private key signed the message."""
    return is_signed(load_key(key).public_key(), message, signature)


def is_signed(public: object, message: bytes, signature: bytes) -> bool:
    """Whether the owner of a public key signed the message."""
    if not isinstance(public, ec.EllipticCurvePublicKey):
        return False
    try:
        public.verify(signature, message, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def _node_extensions(name: str, federation: str) -> list[tuple[x509.ExtensionType, bool]]:
    """Extensions of a node's certificate, and whether they are critical."""
    return [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_key_usage(authority=False), True),
        (x509.ExtendedKeyUsage(KEY_USES), False),
        (x509.SubjectAlternativeName([x509.DNSName(server_name(name, federation))]), False),
    ]


def _key_usage(authority: bool) -> x509.KeyUsage:
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


def _builder(
    subject: x509.Name, issuer: x509.Name, public: ec.EllipticCurvePublicKey, end: datetime
) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=public,
        serial_number=x509.random_serial_number(),
        not_valid_before=datetime.now(UTC) - CLOCK_SKEW,
        not_valid_after=end,
    )


def _end(days: int) -> datetime:
    return datetime.now(UTC) + timedelta(days=check_days(days))


def _subject(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
