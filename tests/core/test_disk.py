"""What was written is on the disk before it takes a name, and the name before anybody is told."""

from __future__ import annotations

import os

import pytest

from thespis.core.disk import replacing


@pytest.fixture
def events(monkeypatch):
    """What was asked of the operating system, in order: the files that were synchronised, and renames."""
    found, fsync, replace = [], os.fsync, os.replace

    def synced(handle):
        found.append(("sync", os.fstat(handle).st_ino, os.fstat(handle).st_size))
        fsync(handle)

    def renamed(source, target):
        found.append(("rename", os.stat(source).st_ino))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    return found


@pytest.mark.skipif(os.name != "posix", reason="directories are synchronised where they can be opened")
def test_bytes_then_the_name_then_the_directory(events, tmp_path):
    path = tmp_path / "a"
    with replacing(path) as file:
        file.write(b"whole")
    (what, inode, size), rename, directory = events
    assert (what, size) == ("sync", 5) and rename == ("rename", inode) and inode == path.stat().st_ino
    assert directory[:2] == ("sync", tmp_path.stat().st_ino)


def test_an_error_renames_nothing(events, tmp_path):
    (tmp_path / "a").write_bytes(b"before")
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "a") as file:
        file.write(b"half")
        1 / 0  # noqa: B018
    assert events == [] and (tmp_path / "a").read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
