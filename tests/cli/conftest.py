"""Fixtures of the command-line tests: a command runner, a small trained run, two network namespaces."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from network_namespaces import two_network_namespaces

from thespis.cli.main import run as command_line

SMALL = ("--steps", "512", "--envs", "2", "--set", "num_steps=32", "hidden_sizes=8", "num_epochs=1", "--episodes", "2")


class CommandResult(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The JSON document on stdout."""
        return json.loads(self.out)


@pytest.fixture
def thespis(capfd, monkeypatch, tmp_path):
    """Run a command line in this process, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def call(*words: object, code: int = 0) -> CommandResult:
        capfd.readouterr()
        exit_code = command_line([str(word) for word in words])
        result = CommandResult(exit_code, *capfd.readouterr())
        assert exit_code == code, result
        return result

    return call


TRAIN_WORDS = ("train", "ppo", "--env", "CartPole-v1", "--seeds", "3", *SMALL, "--out", "run")
TRACKING_WORDS = ("--evaluate-every", "256", "--tensorboard", "board")


@pytest.fixture(scope="session")
def training(tmp_path_factory) -> tuple[Path, CommandResult]:
    """A tiny PPO run on CartPole with three seeds, evaluations and a tracker, and the output of its command."""
    folder = tmp_path_factory.mktemp("cli")
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as monkeypatch, redirect_stdout(out), redirect_stderr(err):
        monkeypatch.chdir(folder)
        monkeypatch.setenv("COLUMNS", "100")
        code = command_line([*TRAIN_WORDS, *TRACKING_WORDS])
    assert code == 0, err.getvalue()
    return folder / "run", CommandResult(code, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def trained(training) -> Path:
    """The directory of the run of :func:`training`."""
    return training[0]


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    """The names of two connected network namespaces, with the addresses 10.213.7.1 and 10.213.7.2."""
    with two_network_namespaces() as names:
        yield names
