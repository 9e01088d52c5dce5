"""Atomic writes: data are synchronized before the rename, and the directory after it."""

from __future__ import annotations

import os

import pytest

from thespis.runtime.disk import atomic_write


@pytest.fixture
def events(monkeypatch):
    """Calls of the operating system in order: synchronized files and renames."""
    calls, fsync, replace = [], os.fsync, os.replace

    def synced(handle):
        calls.append(("sync", os.fstat(handle).st_ino, os.fstat(handle).st_size))
        fsync(handle)

    def renamed(source, target):
        calls.append(("rename", os.stat(source).st_ino))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    return calls


@pytest.mark.skipif(os.name != "posix", reason="directories are synchronised where they can be opened")
def test_order_of_sync_and_rename(events, tmp_path):
    path = tmp_path / "a"
    with atomic_write(path) as file:
        file.write(b"whole")
    (what, inode, size), rename, directory = events
    assert (what, size) == ("sync", 5) and rename == ("rename", inode) and inode == path.stat().st_ino
    assert directory[:2] == ("sync", tmp_path.stat().st_ino)


def test_errors_rename_nothing(events, tmp_path):
    (tmp_path / "a").write_bytes(b"before")
    with pytest.raises(ZeroDivisionError), atomic_write(tmp_path / "a") as file:
        file.write(b"half")
        1 / 0  # noqa: B018
    assert events == [] and (tmp_path / "a").read_bytes() == b"before"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
