"""Cache of data that depends only on the package's files: computed once, and again when a file changes."""

import os

from thespis.cli import cache


def test_data_are_computed_once_until_a_file_changes(tmp_path, monkeypatch):
    package, calls = tmp_path / "package", []
    package.mkdir()
    (package / "a.py").write_text("x = 1\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    digest = cache.package_digest
    monkeypatch.setattr(cache, "package_digest", lambda: digest(package))

    def compute():
        calls.append(1)
        return {"calls": len(calls)}

    assert cache.load_or_compute("data", compute) == cache.load_or_compute("data", compute) == {"calls": 1}
    assert cache.load_or_compute("other", compute) == {"calls": 2}
    (package / "a.py").write_text("x = 2\n")
    os.utime(package / "a.py", ns=(0, 0))
    assert cache.load_or_compute("data", compute) == cache.load_or_compute("data", compute) == {"calls": 3}
    (package / "b.py").write_text("")
    assert cache.load_or_compute("data", compute) == {"calls": 4}


def test_a_cache_that_cannot_be_used_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "thespis").write_text("a file where a directory should be")
    assert cache.load_or_compute("data", lambda: [1]) == [1]
    (tmp_path / "thespis").unlink()
    path = tmp_path / "thespis" / "cli" / "data.json"
    path.parent.mkdir(parents=True)
    path.write_text("{damaged")
    assert cache.load_or_compute("data", lambda: [2]) == [2]
    assert cache.load_or_compute("data", lambda: [3]) == [2], "the damaged file was replaced"
