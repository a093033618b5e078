"""Keys that stay at home: requests, bundles, and what happens if they are not the right ones."""

import json
import shutil
import stat

import pytest

from tacit.config.loading import make_config
from tacit.core.errors import Misuse
from tacit.peer.federation import signing
from tacit.peer.federation.certificates import certificate_info
from tacit.peer.federation.folders import FederationFolder, NodeFolder
from tacit.peer.federation.member_bundle import (
    bundle_path,
    install_bundle,
    read_bundle,
    write_bundle,
)
from tacit.peer.federation.member_request import init_member, read_request, renew_member
from tacit.peer.federation.membership import change_address, revoke, sign_renewal
from tacit.peer.federation.operator import add, create, remove

CONFIG = make_config(
    {"algorithm": {"name": "dsgt", "lr": 0.05}, "run": {"iterations_per_round": 5}}
)


def initialise(folder, name, port):
    return read_request(init_member(folder / name, name, f"127.0.0.1:{port}"))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Members a, b and c with keys of their own, before they join."""
    folder = tmp_path_factory.mktemp("members")
    requests = [initialise(folder, name, 7500 + at) for at, name in enumerate("abc")]
    create(folder / "clinic", "clinic", {}, CONFIG, requests=requests)
    return folder


@pytest.fixture
def clinic(made, tmp_path):
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return FederationFolder(tmp_path / "clinic")


def join(clinic, name, bundle_of=None):
    place = clinic.path.parent / name
    install_bundle(place, read_bundle(bundle_path(clinic, bundle_of or name)))
    return NodeFolder(place)


def changed(path, **values):
    """Change some values of a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return path


def test_members_join_with_keys_that_never_travelled(clinic):
    everything = [path for path in clinic.path.rglob("*") if path.is_file()]
    for name in "abc":
        node = join(clinic, name)
        assert node.name == name
        assert node.credentials().key == (node.path / "node.key").read_bytes()
        assert node.mask_secret() == bytes.fromhex((node.path / "mask.key").read_text())
        assert node.manifest().text == clinic.manifest().text
        assert node.log() == clinic.log()
        for secret in ("node.key", "mask.key"):
            assert stat.S_IMODE((node.path / secret).stat().st_mode) == 0o600
            content = (node.path / secret).read_bytes().strip()
            assert not any(content in path.read_bytes() for path in everything)
            assert content not in (node.path / f"{name}.request").read_bytes()


def test_a_second_join_changes_nothing(clinic):
    node = join(clinic, "a")
    before = {path.name: path.read_bytes() for path in node.path.iterdir()}
    join(clinic, "a")
    assert {path.name: path.read_bytes() for path in node.path.iterdir()} == before


# --- requests ---------------------------------------------------------------------------------


def test_a_request_with_the_key_of_another_is_refused(clinic):
    """Whoever changes a request cannot sign it: neither with a key of its own nor without."""
    victim = clinic.path.parent / "b" / "b.request"
    own = json.loads((clinic.path.parent / "a" / "a.request").read_text())
    public = json.loads(victim.read_text())["public_key"]
    path = clinic.path.parent / "false.request"
    for change in (
        {"public_key": public},
        {"mask_key": "00" * 32},
        {"name": "b"},
        {"address": "evil:1"},
        {"federation": "clinic-00000000"},
        {"signature": "00"},
    ):
        path.write_text(json.dumps(own | change))
        with pytest.raises(Misuse, match="not signed with the key that it holds"):
            read_request(path)


@pytest.mark.parametrize("change", [{"more": "x"}, {"mask_key": "zz"}, {"public_key": "x"}])
def test_what_is_not_a_request_is_refused(clinic, change):
    path = changed(clinic.path.parent / "a" / "a.request", **change)
    with pytest.raises(Misuse, match="not the request of a member"):
        read_request(path)


def test_two_members_cannot_have_one_mask_key(clinic, tmp_path):
    request = initialise(tmp_path, "d", 7503)
    stolen = clinic.manifest().member("b").mask_key
    values = json.loads((tmp_path / "d" / "d.request").read_text()) | {"mask_key": stolen.hex()}
    del values["signature"]
    text = json.dumps(values, separators=(",", ":")).encode()
    signature = signing.sign((tmp_path / "d" / "node.key").read_bytes(), text)
    (tmp_path / "false").write_text(json.dumps(values | {"signature": signature.hex()}))
    request = read_request(tmp_path / "false")
    with pytest.raises(Misuse, match="Two nodes have the mask key"):
        add(clinic.path, "d", request.address, request=request)


def test_keys_are_never_overwritten(tmp_path):
    initialise(tmp_path, "a", 7500)
    key = (tmp_path / "a" / "node.key").read_bytes()
    with pytest.raises(Misuse, match="exists already"):
        initialise(tmp_path, "a", 7500)
    assert (tmp_path / "a" / "node.key").read_bytes() == key


def test_requests_need_the_key_of_an_external_authority(clinic, tmp_path):
    authority = signing.create_authority("firm")
    requests = [read_request(clinic.path.parent / name / f"{name}.request") for name in "abc"]
    with pytest.raises(Misuse, match="--ca-key"):
        create(
            tmp_path / "x", "x", {}, CONFIG, requests=requests,
            ca_certificate=authority.certificate,
        )  # fmt: skip
    assert not (tmp_path / "x").exists()
    made = create(tmp_path / "x", "x", {}, CONFIG, requests=requests, authority=authority)
    assert made.ca() == authority.certificate


# --- bundles ----------------------------------------------------------------------------------


def test_the_bundle_of_another_member_is_refused(clinic):
    with pytest.raises(Misuse, match=r"It is for 'b', but the request in .* is for a"):
        join(clinic, "a", bundle_of="b")
    (clinic.path.parent / "a" / "b.request").write_text("")
    with pytest.raises(Misuse, match="mask key of b in the manifest is not the one"):
        join(clinic, "a", bundle_of="b")
    assert not (clinic.path.parent / "a" / "ca.pem").exists()


def test_a_certificate_for_another_key_is_refused(clinic):
    """The operator, or whoever has its keys, signed a key that is not the member's."""
    authority, federation = clinic.authority(), clinic.manifest().federation
    path = bundle_path(clinic, "a")
    false = signing.issue_credentials(authority, "a", federation).certificate.decode()
    changed(path, certificate=false)
    with pytest.raises(Misuse, match="for none of the keys"):
        join(clinic, "a")


def test_a_certificate_with_another_name_is_refused(clinic):
    authority, manifest = clinic.authority(), clinic.manifest()
    public = read_request(clinic.path.parent / "a" / "a.request").public_key
    for name, federation in (("b", manifest.federation), ("a", "clinic-00000000")):
        certificate = signing.issue_certificate(authority, public, name, federation, 9)
        changed(bundle_path(clinic, "a"), certificate=certificate.decode())
        with pytest.raises(Misuse, match=r"belongs to 'b'|must be for"):
            join(clinic, "a")


def test_another_authority_is_refused_after_the_first_bundle(clinic, tmp_path):
    join(clinic, "a")
    requests = [read_request(clinic.path.parent / name / f"{name}.request") for name in "abc"]
    other = create(tmp_path / "other", "clinic", {}, CONFIG, requests=requests)
    with pytest.raises(Misuse, match="another authority"):
        install_bundle(clinic.path.parent / "a", read_bundle(bundle_path(other, "a")))


def test_another_operator_of_the_same_authority_is_refused(clinic, tmp_path):
    join(clinic, "a")
    requests = [read_request(clinic.path.parent / name / f"{name}.request") for name in "abc"]
    authority = clinic.authority()
    other = create(tmp_path / "other", "x", {}, CONFIG, requests=requests, authority=authority)
    with pytest.raises(Misuse, match="another operator"):
        install_bundle(clinic.path.parent / "a", read_bundle(bundle_path(other, "a")))


def test_a_member_cannot_pose_as_the_operator(clinic):
    """B signs a manifest, and sends its own certificate as the operator's."""
    b = join(clinic, "b").credentials()
    path = bundle_path(clinic, "a")
    text = json.loads(path.read_text())["manifest"]
    changed(
        path, operator=b.certificate.decode(), signature=signing.sign(b.key, text.encode()).hex()
    )
    with pytest.raises(Misuse, match="belongs to 'b', not to 'operator'"):
        join(clinic, "a")


def test_a_changed_manifest_or_log_is_refused(clinic):
    path = bundle_path(clinic, "a")
    whole = json.loads(path.read_text())
    for change, reason in (
        ({"manifest": whole["manifest"] + "\n"}, "manifest is not signed"),
        ({"signature": "zz"}, "manifest is not signed"),
        ({"log": whole["log"].replace("certificate", "certificatf", 1)}, "Entry 2"),
        ({"log": ""}, "does not name the manifest"),
        ({"log": whole["log"].split("\n", 1)[1]}, "does not follow"),
    ):
        path.write_text(json.dumps(whole | change))
        with pytest.raises(Misuse, match=reason):
            join(clinic, "a")
    assert not (clinic.path.parent / "a" / "node.pem").exists()


# --- renewals ---------------------------------------------------------------------------------


def test_a_renewed_certificate_is_for_a_new_key(clinic):
    node = join(clinic, "a")
    before = node.credentials()
    request = renew_member(node.path)
    assert (
        read_request(request).fingerprint != read_request(renew_member(node.path)).fingerprint or 1
    )
    sign_renewal(clinic.path, read_request(request))
    assert node.credentials() == before
    after = join(clinic, "a").credentials()
    assert after.key != before.key
    assert after.certificate != before.certificate
    assert not (node.path / "renewal" / "node.key").exists()
    assert stat.S_IMODE((node.path / "node.key").stat().st_mode) == 0o600
    assert clinic.manifest().generation == 1
    assert node.log().certificates("a") == [before.certificate, after.certificate]


def test_a_renewal_that_was_interrupted_is_completed(clinic, monkeypatch):
    node = join(clinic, "a")
    sign_renewal(clinic.path, read_request(renew_member(node.path)))
    from tacit.peer.federation import member_bundle

    really = member_bundle.write_bytes

    def crash(path, *arguments, **options):
        if path.name == "node.pem":
            raise KeyboardInterrupt
        really(path, *arguments, **options)

    monkeypatch.setattr(member_bundle, "write_bytes", crash)
    with pytest.raises(KeyboardInterrupt):
        join(clinic, "a")
    with pytest.raises(Misuse, match="does not match its certificate"):
        node.credentials()
    monkeypatch.undo()
    join(clinic, "a").credentials()


def test_a_renewal_is_for_the_same_federation_and_mask_key(clinic, tmp_path):
    join(clinic, "a")
    first = read_request(clinic.path.parent / "a" / "a.request")
    with pytest.raises(Misuse, match="is for no federation yet"):
        sign_renewal(clinic.path, first)
    other = initialise(tmp_path / "other", "d", 7509)
    with pytest.raises(Misuse, match="'d' is not a member"):
        sign_renewal(clinic.path, other)


# --- revocations and addresses ----------------------------------------------------------------


def test_a_revoked_member_is_removed_and_can_come_back(clinic, tmp_path):
    old = join(clinic, "c").credentials()
    with pytest.raises(Misuse, match="already a member"):
        add(clinic.path, "c", "h:1")
    revoke(clinic.path, "c", "its key was stolen")
    after = clinic.manifest()
    assert after.names == ["a", "b"]
    assert not clinic.log().accepts("c", certificate_info(old.certificate).fingerprint)
    with pytest.raises(Misuse, match="already revoked"):
        revoke(clinic.path, "c")
    request = initialise(tmp_path / "again", "c", 7502)
    after = add(clinic.path, "c", request.address, request=request)
    assert (after.names, after.former_members) == (["a", "b", "c"], ())
    assert after.member("c").number == 3
    install_bundle(tmp_path / "again" / "c", read_bundle(bundle_path(clinic, "c")))
    new = NodeFolder(tmp_path / "again" / "c").credentials()
    log = clinic.log()
    assert log.accepts("c", certificate_info(new.certificate).fingerprint)
    assert not log.accepts("c", certificate_info(old.certificate).fingerprint)


def test_a_removed_member_keeps_its_name_until_it_is_revoked(clinic):
    remove(clinic.path, "c")
    with pytest.raises(Misuse, match="Revoke it: tacit federation revoke FOLDER c"):
        add(clinic.path, "c", "h:1")
    revoke(clinic.path, "c")
    assert "c" in add(clinic.path, "c", "h:1").names


def test_a_certificate_is_revoked_even_if_the_others_cannot_train_without_its_owner(clinic):
    remove(clinic.path, "c")
    number = clinic.log().number
    with pytest.raises(Misuse, match="'z' is not a member"):
        revoke(clinic.path, "z")
    assert clinic.log().number == number
    assert "only one node is left" in revoke(clinic.path, "b")
    assert clinic.log().revoked_in("b") == number + 1
    assert clinic.manifest().names == ["a", "b"]
    with pytest.raises(Misuse, match="already revoked"):
        revoke(clinic.path, "b", keep=True)


def test_a_revoked_bundle_is_refused(clinic):
    """A bundle that was stopped on its way, and delivered after the revocation."""
    join(clinic, "c")
    request = renew_member(clinic.path.parent / "c")
    sign_renewal(clinic.path, read_request(request))
    old = read_bundle(bundle_path(clinic, "c"))
    revoke(clinic.path, "c", keep=True)
    NodeFolder(clinic.path.parent / "c").update_log(clinic.log().text)
    with pytest.raises(Misuse, match="was revoked"):
        install_bundle(clinic.path.parent / "c", old)


def test_an_address_changes_without_a_new_generation(clinic):
    before, node = clinic.manifest(), join(clinic, "a")
    change_address(clinic.path, "b", "moved.example.org:7400")
    after = clinic.manifest()
    assert (after.hash, after.generation) == (before.hash, 1)
    assert after.member("b").address == "moved.example.org:7400"
    node.update_log(clinic.log().text)
    assert node.manifest().member("b").address == "moved.example.org:7400"
    for address, reason in ((after.member("a").address, "Two nodes"), ("x", "not an address")):
        with pytest.raises(Misuse, match=reason):
            change_address(clinic.path, "b", address)
    # The next roster has it too, and later changes start from there.
    assert remove(clinic.path, "c").member("b").address == "moved.example.org:7400"
    assert clinic.log().addresses(clinic.manifest().hash) == {}


def test_an_old_copy_of_the_operators_folder_is_refused(clinic, tmp_path):
    """What it would sign is a fork of what members have."""
    shutil.copytree(clinic.path, tmp_path / "backup")
    join(clinic, "a")
    change_address(clinic.path, "b", "h:1")
    backup = FederationFolder(tmp_path / "backup")
    change_address(backup.path, "b", "h:2")
    node = NodeFolder(clinic.path.parent / "a")
    node.update_log(clinic.log().text)
    with pytest.raises(Misuse, match=r"forks at entry 5: ours is 'address of b: h:1', the other"):
        node.update_log(backup.log().text)
    write_bundle(backup, "a")
    with pytest.raises(Misuse, match="forks at entry 5"):
        install_bundle(node.path, read_bundle(bundle_path(backup, "a")))
