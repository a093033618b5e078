import errno
import os
import stat
import subprocess
import sys
import threading

import pytest

from tacit.core.errors import Misuse
from tacit.core.storage import (
    append_text,
    file_lock,
    read_json,
    read_private,
    replacing,
    write_bytes,
    write_json,
    write_private,
    write_text,
)


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "x.json"
    write_text(path, "old")
    write_json(path, {"γ": 1})
    assert read_json(path) == {"γ": 1}
    assert files(tmp_path) == ["x.json"]


def test_a_failed_write_leaves_the_old_contents(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})

    def interrupted():
        with replacing(path) as part:
            part.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert read_json(path) == {"a": 1}
    assert files(tmp_path) == ["x.json"]


def test_concurrent_writers_never_mix(tmp_path):
    path, seen = tmp_path / "x", set()
    contents = [bytes([digit]) * 200_000 for digit in b"abcd"]
    write_bytes(path, contents[0])

    def write(content):
        for _ in range(20):
            write_bytes(path, content)
            seen.add(path.read_bytes())

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen <= set(contents)
    assert files(tmp_path) == ["x"]


def test_a_durable_write_syncs_the_file_before_and_the_folder_after_the_replacement(
    tmp_path, monkeypatch
):
    events, sync, replace = [], os.fsync, os.replace

    def fsync(handle):
        events.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        sync(handle)

    def replaced(*paths):
        events.append("replace")
        replace(*paths)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replaced)
    write_text(tmp_path / "x", "one")
    assert events == ["replace"]
    write_text(tmp_path / "x", "two", durable=True)
    assert events[1:] == ["file", "replace", "folder"]


def test_a_full_disk_leaves_the_old_contents_and_nothing_else(tmp_path, monkeypatch):
    write_text(tmp_path / "x", "old")

    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_text(tmp_path / "x", "new", durable=True)
    assert (tmp_path / "x").read_text() == "old"
    assert files(tmp_path) == ["x"]


def test_text_is_appended(tmp_path):
    append_text(tmp_path / "x", "γ\n")
    append_text(tmp_path / "x", "δ\n")
    assert (tmp_path / "x").read_text(encoding="utf-8") == "γ\nδ\n"


def test_an_append_that_does_not_fit_leaves_the_file_as_it_was(tmp_path):
    resource = pytest.importorskip("resource")
    append_text(tmp_path / "x", "kept\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))
    try:
        with pytest.raises(OSError, match="No space"):
            append_text(tmp_path / "x", "too long\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "x").read_text() == "kept\n"


@pytest.mark.parametrize("text", ["{", "[1]", ""])
def test_json_that_is_no_object_is_refused_by_name(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(Misuse, match=r"x\.json") as caught:
        read_json(path, "Measure again.")
    assert caught.value.remedy == "Measure again."


def test_a_private_file_is_private_from_its_first_moment(tmp_path, monkeypatch):
    seen, really = [], os.open

    def watching(path, *rest, **named):
        handle = really(path, *rest, **named)
        if path != tmp_path:  # the folder is opened to be synced
            seen.append(stat.S_IMODE(os.fstat(handle).st_mode))
        return handle

    before = os.umask(0)
    try:
        monkeypatch.setattr(os, "open", watching)
        write_private(tmp_path / "key", b"secret")
    finally:
        os.umask(before)
    assert seen == [0o600]
    assert read_private(tmp_path / "key") == b"secret"
    with pytest.raises(Misuse, match="never overwritten"):
        write_private(tmp_path / "key", b"other")
    assert read_private(tmp_path / "key") == b"secret"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o606])
def test_a_key_that_others_may_read_is_refused(tmp_path, mode):
    write_private(tmp_path / "key", b"secret")
    (tmp_path / "key").chmod(mode)
    with pytest.raises(Misuse, match="chmod 600"):
        read_private(tmp_path / "key")


def test_a_key_that_is_not_there(tmp_path):
    with pytest.raises(Misuse, match="no private key"):
        read_private(tmp_path / "key")


HOLDER = """
import sys
from pathlib import Path
from tacit.core.storage import file_lock
with file_lock(Path(sys.argv[1])):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("name", ["folder", "file"])
def test_one_process_at_a_time_has_a_lock_and_death_releases_it(tmp_path, name):
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout.readline() == b"locked\n"
        with file_lock(path, wait=False) as acquired:
            assert not acquired
        holder.kill()
    with file_lock(path) as acquired:
        assert acquired
