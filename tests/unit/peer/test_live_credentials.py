import io
import json
import os
import shutil

import pytest

from support.clinics import clinics
from tacit.core.errors import Misuse
from tacit.peer.federation import signing
from tacit.peer.federation.folders import NodeFolder
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node.live_credentials import LiveCredentials, expiry_notice

DAY = 86_400.0


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return clinics(tmp_path_factory.mktemp("live") / "f")


@pytest.fixture
def folder(home, tmp_path):
    return NodeFolder(shutil.copytree(home.node("a").path, tmp_path / "a"))


@pytest.fixture
def log():
    return io.StringIO()


@pytest.fixture
def live(folder, log):
    return LiveCredentials(folder, "a", EventLog(log, "a"))


def write(folder, **files):
    """Replace files as a renewal does: in one step each."""
    for name, content in files.items():
        part = folder.path / f"{name}.part"
        part.write_bytes(content)
        part.chmod(0o600)
        os.replace(part, folder.path / f"node.{name}")


def events(log):
    return [json.loads(line)["event"] for line in log.getvalue().splitlines()]


def issue(home, name="a"):
    return signing.issue_credentials(home.authority(), name, home.manifest().federation)


def test_a_renewed_certificate_is_used_once_it_fits_its_key(home, folder, live, log):
    old, new = live.current(), issue(home)
    write(folder, key=new.key)
    assert live.current() == old
    assert events(log) == ["certificate not used"]
    write(folder, pem=new.certificate)
    assert live.current() == new
    assert events(log) == ["certificate not used", "certificate renewed"]
    assert live.current() is live.current()


@pytest.mark.parametrize("kind", ["another name", "another authority", "rubbish", "none"])
def test_what_other_nodes_would_refuse_is_not_used(home, folder, live, kind):
    old = live.current()
    stranger = signing.create_authority("clinics-00000000")
    federation = home.manifest().federation
    found = {
        "another name": issue(home, "b"),
        "another authority": signing.issue_credentials(stranger, "a", federation),
        "rubbish": signing.Credentials(b"x", b"y"),
    }.get(kind)
    if found is None:
        (folder.path / "node.pem").unlink()
    else:
        write(folder, key=found.key, pem=found.certificate)
    assert live.current() == old


def test_a_key_that_others_may_read_is_not_used(home, folder, live):
    old, new = live.current(), issue(home)
    write(folder, key=new.key, pem=new.certificate)
    (folder.path / "node.key").chmod(0o644)
    assert live.current() == old
    (folder.path / "node.key").chmod(0o600)
    assert live.current() == new


def test_there_must_be_credentials_at_the_start(folder, live):
    (folder.path / "node.pem").unlink()
    with pytest.raises(Misuse):
        live.current()


def test_the_notice_of_an_expiry():
    assert expiry_notice("a", 100 * DAY, 85.9 * DAY) == ""
    assert "expires in 14 days" in expiry_notice("a", 100 * DAY, 86 * DAY)
    assert "expires in 1 day," in expiry_notice("a", 100 * DAY, 98.5 * DAY)
    assert "the certificate of a expired on 1970-04-11" in expiry_notice("a", 100 * DAY, 101 * DAY)
