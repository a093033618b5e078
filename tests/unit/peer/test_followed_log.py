import io
import json
import shutil

import pytest

from support.clinics import clinics
from tacit.core.errors import Misuse
from tacit.peer.federation.folders import FederationFolder, NodeFolder
from tacit.peer.federation.membership import change_address, revoke
from tacit.peer.monitoring.event_log import EventLog
from tacit.peer.node.followed_log import FollowedLog


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return clinics(tmp_path_factory.mktemp("followed") / "f")


@pytest.fixture
def operator(home, tmp_path):
    return FederationFolder(shutil.copytree(home.path, tmp_path / "operator"))


@pytest.fixture
def folder(home, tmp_path):
    return NodeFolder(shutil.copytree(home.node("a").path, tmp_path / "a"))


@pytest.fixture
def events():
    return io.StringIO()


@pytest.fixture
def followed(folder, events):
    return FollowedLog(folder, EventLog(events, "a"))


def test_new_entries_take_effect_are_told_and_stored(operator, folder, followed, events):
    told = []
    unsubscribe = followed.subscribe(lambda entries: told.append([one.kind for one in entries]))
    manifest = folder.manifest()
    change_address(operator.path, "b", "h:1")
    assert followed.update(operator.log().text) is True
    assert followed.address(manifest.member("b"), manifest) == "h:1"
    assert followed.address(manifest.member("c"), manifest) == manifest.member("c").address
    assert followed.update(operator.log().text) is False
    revoke(operator.path, "c", keep=True)
    assert followed.update(operator.log().text) is True
    assert (followed.roots("c"), followed.roots("b")) == (b"", folder.ca())
    assert told == [["address"], ["revocation"]]
    assert folder.log() == operator.log()
    assert followed.changed.is_set()
    lines = [json.loads(line) for line in events.getvalue().splitlines()]
    assert [line["change"] for line in lines] == [
        "address of b: h:1",
        "all earlier certificates of c revoked",
    ]
    unsubscribe()
    change_address(operator.path, "b", "h:2")
    followed.update(operator.log().text)
    assert len(told) == 2


def test_a_log_in_the_folder_is_followed(operator, folder, followed):
    change_address(operator.path, "b", "h:1")
    followed.refresh()
    assert followed.log.number == 4
    folder.update_log(operator.log().text)
    followed.refresh()
    assert followed.log == operator.log()


def test_a_log_that_was_rolled_back_on_the_disk_is_restored(operator, folder, followed):
    before = folder.log().text
    change_address(operator.path, "b", "h:1")
    followed.update(operator.log().text)
    (folder.path / "federation.log").write_bytes(before)
    followed.refresh()
    assert followed.log == folder.log() == operator.log()


def test_a_fork_changes_nothing(operator, folder, followed, home, tmp_path):
    other = FederationFolder(shutil.copytree(home.path, tmp_path / "other"))
    change_address(operator.path, "b", "h:1")
    change_address(other.path, "b", "h:2")
    followed.update(operator.log().text)
    with pytest.raises(Misuse, match="forks at entry 5"):
        followed.update(other.log().text)
    assert followed.log == folder.log() == operator.log()


def test_a_revocation_takes_effect_even_if_the_disk_is_full(
    operator, folder, followed, monkeypatch
):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    revoke(operator.path, "c", keep=True)
    monkeypatch.setattr(type(folder), "update_log", full)
    assert followed.update(operator.log().text) is True
    assert followed.roots("c") == b""
    monkeypatch.undo()
    assert folder.log().number == 4
    followed.refresh()
    assert folder.log() == operator.log()
