"""Create an authority, and issue certificates or certificate requests for nodes and operator."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tacit.core.errors import Misuse
from tacit.peer.federation.certificates import (
    KEY_USES,
    Credentials,
    certificate_info,
    check_authority,
    load_certificate,
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
    return Credentials(_issue(ca, key.public_key(), name, federation, days), _private_pem(key))


def reissue_certificate(ca: Credentials, old: bytes, federation: str, days: int) -> bytes:
    """A new certificate for the name and key of an old one; the private key is not needed."""
    return _issue(ca, node_public_key(old), certificate_info(old).name, federation, days)


def request_certificate(name: str, federation: str) -> tuple[bytes, bytes]:
    """A certificate request for an external authority, and its new private key (both PEM)."""
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(_subject(name))
    for extension, critical in _node_extensions(name, federation):
        builder = builder.add_extension(extension, critical)
    signed = builder.sign(key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM), _private_pem(key)


def check_days(days: int) -> int:
    if not 1 <= days <= MAX_DAYS:
        raise Misuse(
            f"A certificate cannot be valid for {days} days.",
            f"Give 1 to {MAX_DAYS} days; 365 is usual.",
        )
    return days


def _issue(
    ca: Credentials, public: ec.EllipticCurvePublicKey, name: str, federation: str, days: int
) -> bytes:
    signer, issuer = check_authority(ca), load_certificate(ca.certificate)
    end = min(_end(days), issuer.not_valid_after_utc)
    builder = _builder(_subject(name), issuer.subject, public, end)
    for extension, critical in _node_extensions(name, federation):
        builder = builder.add_extension(extension, critical)
    builder = builder.add_extension(_authority_key_identifier(issuer), critical=False)
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _node_extensions(name: str, federation: str) -> list[tuple[x509.ExtensionType, bool]]:
    """Extensions of a node's certificate, and whether they are critical."""
    return [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_key_usage(authority=False), True),
        (x509.ExtendedKeyUsage(KEY_USES), False),
        (x509.SubjectAlternativeName([x509.DNSName(server_name(name, federation))]), False),
    ]


def _authority_key_identifier(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    try:
        known = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        known = x509.SubjectKeyIdentifier.from_public_key(issuer.public_key())
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(known)


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
