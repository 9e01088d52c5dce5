"""What the tests of the commands share: one small trained run."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from rooms import two_rooms

from thespis.cli.main import run as command_line

SMALL = ("--steps", "512", "--envs", "2", "--set", "length=32", "hidden=8", "epochs=1", "--episodes", "2")


class Said(NamedTuple):
    """What a command printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)


@pytest.fixture
def thespis(capfd, monkeypatch, tmp_path):
    """Runs a command line in this process, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def call(*words: object, code: int = 0) -> Said:
        capfd.readouterr()
        ended = command_line([str(word) for word in words])
        said = Said(ended, *capfd.readouterr())
        assert ended == code, said
        return said

    return call


TRAINED = ("train", "ppo", "--env", "CartPole-v1", "--seeds", "3", *SMALL, "--out", "run")
TRACKED = ("--evaluate-every", "256", "--tensorboard", "board")


@pytest.fixture(scope="session")
def training(tmp_path_factory) -> tuple[Path, Said]:
    """A tiny PPO run on CartPole with three seeds, evaluated and tracked on its way, and what was said of it."""
    folder = tmp_path_factory.mktemp("cli")
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        patch.setenv("COLUMNS", "100")
        code = command_line([*TRAINED, *TRACKED])
    assert code == 0, err.getvalue()
    return folder / "run", Said(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def trained(training) -> Path:
    """The directory of that run."""
    return training[0]


@pytest.fixture
def rooms() -> Iterator[tuple[str, str]]:
    """The names of two network namespaces, 10.213.7.1 and 10.213.7.2."""
    with two_rooms() as names:
        yield names
