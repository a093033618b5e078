"""Reading certificates, and refusing those that the other nodes would refuse."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tacit.core.errors import Misuse

USES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)  # a node is both
PrivateKey = (
    ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
)  # RSA: only of an authority of somebody else's


@dataclass(frozen=True)
class Credentials:
    """A certificate and its private key (PKCS8, not encrypted), both PEM."""

    certificate: bytes
    key: bytes = field(repr=False)  # a key has no place in a log


@dataclass(frozen=True)
class CertificateFacts:
    """What a certificate says."""

    name: str
    server_names: tuple[str, ...]
    fingerprint: str  # SHA-256, hexadecimal with colons
    issuer: str
    not_before: datetime
    not_after: datetime


def server_name(name: str, federation: str) -> str:
    """The name that a node's certificate is for: addresses may change, this does not."""
    return f"{name}.{federation}.tacit"


def describe(certificate: bytes) -> CertificateFacts:
    """What a certificate says, in plain values."""
    loaded = load(certificate)
    return CertificateFacts(
        name=_name_of(loaded),
        server_names=_server_names(loaded),
        fingerprint=loaded.fingerprint(hashes.SHA256()).hex(":"),
        issuer=loaded.issuer.rfc4514_string(),
        not_before=loaded.not_valid_before_utc,
        not_after=loaded.not_valid_after_utc,
    )


def check_certificate(
    certificate: bytes, key: bytes, ca: bytes, name: str, federation: str
) -> None:
    """Refuse a certificate that the others would refuse, with the reason."""
    loaded = load(certificate)
    public = node_key(certificate)
    if _name_of(loaded) != name:
        raise Misuse(
            f"The certificate is of {_name_of(loaded)!r}, not of {name!r}.",
            f"Put the certificate of {name} in its place.",
        )
    # A second name in this federation would let the node pass for another one.
    ours = [known for known in _server_names(loaded) if known.endswith(f".{federation}.tacit")]
    wanted = server_name(name, federation)
    if ours != [wanted]:
        found = ", ".join(_server_names(loaded)) or "no name"
        raise Misuse(
            f"The certificate of {name} is for {found}, and must be for {wanted} and no other node.",
            "Let the authority keep the subject alternative name of the request.",
        )
    _check_issued(loaded, ca, name)
    _check_dates(loaded, f"The certificate of {name}", "Renew it: tacit federation renew FOLDER.")
    _check_uses(loaded, name)
    if load_key(key).public_key() != public:
        raise Misuse(
            f"The key of {name} does not belong to its certificate.",
            "Put the two that were made together in their place.",
        )


def check_authority(ca: Credentials) -> PrivateKey:
    """The key of an authority, refused when it cannot vouch for anybody."""
    check_authority_certificate(ca.certificate)
    key = load_key(ca.key)
    if key.public_key() != load(ca.certificate).public_key():
        raise Misuse(
            "The key of the authority does not belong to its certificate.",
            "Give the two that belong together.",
        )
    return key


def check_authority_certificate(certificate: bytes) -> None:
    """Refuse the certificate of an authority that is none, or is out of date."""
    loaded = load(certificate)
    if not _is_authority(loaded):
        raise Misuse(
            f"The certificate of {_name_of(loaded)!r} is not one of an authority.",
            "Give the certificate that signs others (basic constraints CA:TRUE).",
        )
    _check_dates(
        loaded, "The certificate of the authority", "Get a new one from who runs the authority."
    )


def node_key(certificate: bytes) -> ec.EllipticCurvePublicKey:
    """The public key of a certificate, refused when a node may not have one of its kind."""
    loaded = load(certificate)
    public = loaded.public_key()
    if isinstance(public, ec.EllipticCurvePublicKey) and isinstance(public.curve, ec.SECP256R1):
        return public
    kinds = {ec.EllipticCurvePublicKey: "another elliptic curve", rsa.RSAPublicKey: "RSA"}
    kind = next(
        (name for kind, name in kinds.items() if isinstance(public, kind)), "an unknown kind"
    )
    raise Misuse(
        f"The certificate of {_name_of(loaded)!r} has a key of {kind}.",
        "Use an elliptic-curve key on P-256: only with such keys is TLS 1.2 kept out.",
    )


def load(certificate: bytes) -> x509.Certificate:
    """The first certificate in PEM text."""
    return _load_all(certificate)[0]


def load_key(key: bytes) -> PrivateKey:
    """A private key from PEM text."""
    try:
        loaded = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise Misuse(
            "This is not a private key in PEM form without a password.",
            "It begins with -----BEGIN PRIVATE KEY-----.",
        ) from None
    if not isinstance(loaded, PrivateKey):
        raise Misuse(
            "This private key is of an unknown kind.", "Use an elliptic-curve key on P-256."
        )
    return loaded


def _load_all(certificates: bytes) -> list[x509.Certificate]:
    try:
        loaded = x509.load_pem_x509_certificates(certificates)
        for certificate in loaded:  # these are read late, so what is wrong with them shows late
            _ = certificate.extensions, certificate.public_key()
    except (
        ValueError,
        TypeError,
        UnsupportedAlgorithm,
        x509.DuplicateExtension,
        x509.UnsupportedGeneralNameType,
    ):
        raise Misuse(
            "This is not a certificate in PEM form.", "It begins with -----BEGIN CERTIFICATE-----."
        ) from None
    return loaded


def _check_issued(loaded: x509.Certificate, ca: bytes, name: str) -> None:
    for issuer in _load_all(ca):
        try:
            loaded.verify_directly_issued_by(issuer)
        except (ValueError, TypeError, InvalidSignature):
            continue
        if _is_authority(issuer):
            return
    raise Misuse(
        f"The certificate of {name} was not signed by this federation's authority.",
        "Have it signed by the authority whose certificate is ca.pem.",
    )


def _check_dates(loaded: x509.Certificate, what: str, remedy: str) -> None:
    now = datetime.now(UTC)
    if now > loaded.not_valid_after_utc:
        raise Misuse(f"{what} expired on {loaded.not_valid_after_utc:%Y-%m-%d}.", remedy)
    if now < loaded.not_valid_before_utc:
        starts = f"{loaded.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
        raise Misuse(f"{what} is not valid before {starts}.", "Check the clock of this machine.")


def _check_uses(loaded: x509.Certificate, name: str) -> None:
    try:
        uses = set(loaded.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    except x509.ExtensionNotFound:
        uses = set(USES)  # nothing said: for every use
    if not set(USES) <= uses or _is_authority(loaded):
        raise Misuse(
            f"The certificate of {name} is not for a node, which is both server and client.",
            "Let the authority issue it with extended key usage serverAuth and clientAuth, and CA:FALSE.",
        )


def _is_authority(loaded: x509.Certificate) -> bool:
    try:
        return loaded.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except x509.ExtensionNotFound:
        return False


def _name_of(loaded: x509.Certificate) -> str:
    names = loaded.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def _server_names(loaded: x509.Certificate) -> tuple[str, ...]:
    try:
        names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return tuple(names.get_values_for_type(x509.DNSName))
