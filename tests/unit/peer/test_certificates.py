"""Certificates, keys and signatures, and every reason to refuse them."""

import base64
import re
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tacit.core.errors import Misuse
from tacit.peer.federation.certificates import (
    Credentials,
    certificate_info,
    check_authority,
    check_certificate,
    check_issued,
    node_public_key,
    server_name,
)
from tacit.peer.federation.signing import (
    create_authority,
    generate_mask_key,
    issue_certificate,
    issue_credentials,
    mask_public_key,
    request_certificate,
    sign,
    signed_by,
)

FEDERATION = "hospitals-3f9a21bc"


@pytest.fixture(scope="module")
def ca():
    return create_authority(FEDERATION)


@pytest.fixture(scope="module")
def node(ca):
    return issue_credentials(ca, "berlin", FEDERATION, 365)


def crafted(ca, key, *, name="berlin", names=None, starts=-1, ends=10, uses=None, is_ca=False):
    """A certificate with these contents, signed by this authority; times in days from now."""
    names = [server_name("berlin", FEDERATION)] if names is None else names
    uses = (
        [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH] if uses is None else uses
    )
    now, issuer = datetime.now(UTC), x509.load_pem_x509_certificate(ca.certificate)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=starts))
        .not_valid_after(now + timedelta(days=ends))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([x509.DNSName(n) for n in names]), False
        )
    if uses:
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), False)
    signer = serialization.load_pem_private_key(ca.key, None)
    made = builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return Credentials(made, pem(key))


def pem(key):
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def check(found, ca, name="berlin"):
    check_certificate(found, ca.certificate, name, FEDERATION)


def elliptic():
    return ec.generate_private_key(ec.SECP256R1())


# --- issuing --------------------------------------------------------------------------------------


def test_a_certificate_is_for_one_name_and_both_sides_of_a_connection(ca, node):
    info = certificate_info(node.certificate)
    assert info.name == "berlin"
    (name,) = info.server_names
    assert name == server_name("berlin", FEDERATION)
    # A client sends this name unencrypted.
    assert re.fullmatch(r"[0-9a-f]{32}\.[0-9a-f]{32}\.tacit", name)
    assert len({name, server_name("paris", FEDERATION), server_name("berlin", "other-0")}) == 3
    assert info.issuer == certificate_info(ca.certificate).issuer
    assert len(info.fingerprint) == 32 * 3 - 1
    loaded = x509.load_pem_x509_certificate(node.certificate)
    assert isinstance(loaded.public_key(), ec.EllipticCurvePublicKey)
    uses = set(loaded.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    assert uses == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    check(node, ca)


def test_validity_begins_before_now_and_lasts_for_the_given_days(ca):
    info, now = (
        certificate_info(issue_credentials(ca, "berlin", FEDERATION, 7).certificate),
        datetime.now(UTC),
    )
    assert timedelta(minutes=4) < now - info.not_before < timedelta(minutes=6)
    assert timedelta(days=6.9) < info.not_after - now < timedelta(days=7.1)
    assert certificate_info(ca.certificate).not_after - now > timedelta(days=3640)


def test_no_certificate_outlives_its_authority():
    short = create_authority(FEDERATION, days=3)
    assert certificate_info(
        issue_credentials(short, "berlin", FEDERATION, 365).certificate
    ).not_after == (certificate_info(short.certificate).not_after)


def test_only_the_authority_may_sign_certificates(ca, node):
    constraints = {
        who: x509.load_pem_x509_certificate(found.certificate)
        .extensions.get_extension_for_class(x509.BasicConstraints)
        .value.ca
        for who, found in {"ca": ca, "node": node}.items()
    }
    assert constraints == {"ca": True, "node": False}
    usage = x509.load_pem_x509_certificate(ca.certificate).extensions.get_extension_for_class(
        x509.KeyUsage
    )
    assert usage.value.key_cert_sign
    with pytest.raises(Misuse, match="not that of an authority"):
        issue_credentials(node, "paris", FEDERATION, 10)


@pytest.mark.parametrize("days", [0, -3, 10**9])
def test_invalid_days_are_refused(ca, days):
    with pytest.raises(Misuse, match="365 is usual"):
        issue_credentials(ca, "berlin", FEDERATION, days)


def test_a_new_certificate_for_the_same_key(ca, node):
    public = node_public_key(node.certificate)
    new = issue_certificate(ca, public, "berlin", FEDERATION, 30)
    check(Credentials(new, node.key), ca)
    assert certificate_info(new).fingerprint != certificate_info(node.certificate).fingerprint


def test_a_request_holds_what_the_certificate_needs():
    request, key = request_certificate("berlin", FEDERATION)
    loaded = x509.load_pem_x509_csr(request)
    assert loaded.is_signature_valid
    names = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [server_name("berlin", FEDERATION)]
    assert serialization.load_pem_private_key(key, None).public_key() == loaded.public_key()


# --- checks ---------------------------------------------------------------------------------------


def test_another_authority(ca):
    other = create_authority(FEDERATION)  # even with the same name
    with pytest.raises(Misuse, match=r"not signed by this federation's authority.*ca\.pem"):
        check(issue_credentials(other, "berlin", FEDERATION, 10), ca)


def test_an_issuer_that_is_no_authority(ca, node):
    forged = crafted(node, elliptic(), name="paris", names=[server_name("paris", FEDERATION)])
    with pytest.raises(Misuse, match="not signed by"):
        check_certificate(forged, node.certificate, "paris", FEDERATION)


def test_expired_and_not_yet_valid(ca):
    with pytest.raises(Misuse, match=r"expired on \d{4}-\d\d-\d\d.*[Rr]enew"):
        check(crafted(ca, elliptic(), starts=-9, ends=-1), ca)
    with pytest.raises(Misuse, match=r"not valid before .*clock"):
        check(crafted(ca, elliptic(), starts=1), ca)


def test_a_key_that_does_not_match(ca, node):
    with pytest.raises(Misuse, match="key of berlin does not match its certificate"):
        check(
            Credentials(node.certificate, issue_credentials(ca, "berlin", FEDERATION, 10).key), ca
        )


def test_the_name_of_another_node(ca, node):
    with pytest.raises(Misuse, match="'berlin', not to 'paris'"):
        check(node, ca, name="paris")


@pytest.mark.parametrize(
    "names",
    [
        [],
        [server_name("berlin", "another-00000000")],
        [server_name("berlin", FEDERATION), server_name("paris", FEDERATION)],
        [server_name("paris", FEDERATION)],
        ["berlin"],
    ],
)
def test_names_that_allow_impersonation(ca, names):
    with pytest.raises(Misuse, match=f"must be for {server_name('berlin', FEDERATION)}"):
        check(crafted(ca, elliptic(), names=names), ca)


def test_keys_that_are_not_on_p256(ca):
    with pytest.raises(Misuse, match=r"key of RSA.*P-256"):
        check(crafted(ca, rsa.generate_private_key(65537, 2048)), ca)
    with pytest.raises(Misuse, match=r"another elliptic curve.*P-256"):
        check(crafted(ca, ec.generate_private_key(ec.SECP384R1())), ca)
    with pytest.raises(Misuse, match=r"unknown kind.*P-256"):
        check(crafted(ca, ed25519.Ed25519PrivateKey.generate()), ca)


def test_certificates_for_other_uses(ca):
    for refused in ({"uses": [ExtendedKeyUsageOID.SERVER_AUTH]}, {"is_ca": True}):
        with pytest.raises(Misuse, match="serverAuth and clientAuth"):
            check(crafted(ca, elliptic(), **refused), ca)
    check(crafted(ca, elliptic(), uses=[]), ca)  # without the extension it is for every use


def test_text_that_is_not_pem(ca, node):
    for rubbish in (
        b"",
        b"hello",
        b"\x00\xff",
        node.certificate[:200],
        node.certificate.replace(b"M", b"?"),
    ):
        with pytest.raises(Misuse, match="BEGIN CERTIFICATE"):
            certificate_info(rubbish)
        with pytest.raises(Misuse, match="BEGIN PRIVATE KEY"):
            check(Credentials(node.certificate, rubbish), ca)
    locked = serialization.load_pem_private_key(node.key, None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    with pytest.raises(Misuse, match="without a password"):
        check(Credentials(node.certificate, locked), ca)


def test_one_of_several_authorities_is_enough(ca, node):
    bundle = create_authority("another-00000000").certificate + ca.certificate
    check_certificate(node, bundle, "berlin", FEDERATION)


def test_an_rsa_authority_may_sign_nodes():
    key = rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "the firm")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), 1, now, now + timedelta(days=9))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    firm = Credentials(made.public_bytes(serialization.Encoding.PEM), pem(key))
    check(issue_credentials(firm, "berlin", FEDERATION, 5), firm)


def test_an_authority_with_another_key(ca):
    with pytest.raises(Misuse, match="key of the authority"):
        check_authority(Credentials(ca.certificate, create_authority(FEDERATION).key))


# --- signatures, masks, files ---------------------------------------------------------------------


def test_a_signature_is_for_one_text_and_one_key(ca, node):
    signature = sign(node.key, b"the roster")
    assert signed_by(node.certificate, b"the roster", signature)
    assert not signed_by(node.certificate, b"the roster.", signature)
    assert not signed_by(
        issue_credentials(ca, "berlin", FEDERATION, 9).certificate, b"the roster", signature
    )
    for at in range(len(signature)):
        changed = bytearray(signature)
        changed[at] ^= 1
        assert not signed_by(node.certificate, b"the roster", bytes(changed))
    for rubbish in (b"", b"\x00", signature + b"\x00", signature[:-1]):
        assert not signed_by(node.certificate, b"the roster", rubbish)


def test_mask_keys_agree():
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

    a, b = generate_mask_key(), generate_mask_key()
    assert a != b
    assert len(a) == len(mask_public_key(a)) == 32

    def shared(private, public):
        return X25519PrivateKey.from_private_bytes(private).exchange(
            X25519PublicKey.from_public_bytes(public)
        )

    assert shared(a, mask_public_key(b)) == shared(b, mask_public_key(a))


@pytest.mark.filterwarnings("ignore:Parsed a serial number")
def test_a_certificate_with_any_bit_flipped_is_refused_as_bad_input(ca, node):
    """Among them versions and algorithms that do not exist, which cryptography reports apart."""
    good = x509.load_pem_x509_certificate(node.certificate)
    der = good.public_bytes(serialization.Encoding.DER)
    content = der.index(good.tbs_certificate_bytes)
    signed = range(8 * content, 8 * (content + len(good.tbs_certificate_bytes)))
    for bit in range(8 * len(der)):
        flipped = bytearray(der)
        flipped[bit // 8] ^= 1 << bit % 8
        lines = base64.encodebytes(flipped)
        pem = b"-----BEGIN CERTIFICATE-----\n" + lines + b"-----END CERTIFICATE-----\n"
        try:
            check_issued(pem, ca.certificate, "berlin", FEDERATION)
        except Misuse:
            continue
        assert bit not in signed  # the signature names a number of unused bits, which may change
