"""The flag ``--trust``: commands that read a run with code outside of Thespis."""

from __future__ import annotations

import sys

import pytest

ENV = """
from pathlib import Path

import gymnasium
import numpy as np

Path(__file__).with_name("imported").touch()


class Flip(gymnasium.Env):
    observation_space, action_space = gymnasium.spaces.Box(0, 1, (1,)), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.zeros(1, np.float32), float(action), True, False, {}


def make():
    return Flip()
"""
SMALL = ("--steps", 64, "--envs", 2, "--set", "num_steps=16", "hidden_sizes=8", "num_epochs=1", "--episodes", 2)


@pytest.fixture
def forget(tmp_path, monkeypatch):
    """Writes the module of an environment; the returned function makes this process forget that it was imported."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "flipping.py").write_text(ENV)

    def forget_module():
        sys.modules.pop("flipping", None)
        (tmp_path / "imported").unlink(missing_ok=True)

    yield forget_module
    forget_module()


@pytest.mark.long
def test_commands_import_the_module_of_a_run_only_if_it_is_named(forget, tmp_path, thespis):
    training = thespis("train", "ppo", "--env", "flipping:make", *SMALL, "--out", "run")
    assert "thespis evaluate run --episodes 100 --trust flipping" in training.out
    for words in (["evaluate", "run"], ["record", "run"], ["resume", "run"], ["collect", "run", "--out", "d"]):
        more = {"evaluate": ["--episodes", 2], "collect": ["--episodes", 2]}.get(words[0], [])
        forget()
        result = thespis(*words, *more, code=2)
        (line,) = result.err.splitlines()
        assert "names flipping:make" in line and "--trust flipping" in line
        assert not (tmp_path / "imported").exists()
        thespis(*words, *more, "--trust", "flipping")
        assert (tmp_path / "imported").exists()
    forget()
    thespis("report", "run")
    assert not (tmp_path / "imported").exists()
