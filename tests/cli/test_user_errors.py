"""Errors in the user's own code: the command names file, line and source; what was trained is saved."""

from __future__ import annotations

import sys

import pytest

from thespis import load, resume, train
from thespis.data.feeds import Rollouts
from thespis.methods.online.ppo import PPO
from thespis.runs.checkpoint import list_checkpoints

ENVIRONMENTS = """
import equinox as eqx
import gymnasium as gym
import jax.numpy as jnp
import numpy as np

from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box

FAULTY_STEP = [300]


class Faulty(gym.Env):
    observation_space = gym.spaces.Box(-4.0, 4.0, (1,), np.float32)
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    total = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.steps, self.total = self.steps + 1, self.total + 1
        if self.total == FAULTY_STEP[0]:
            1 / 0  # the faulty line
        return np.zeros(1, np.float32), 1.0, False, self.steps == 20, {}


class CompiledFaulty(eqx.Module):
    spec = EnvSpec("faulty", Box((1,), -4.0, 4.0), Box((1,), -1.0, 1.0), time_limit=50)

    def reset(self, params, key):
        return jnp.zeros(1), TimeStep(jnp.zeros(1), jnp.zeros(()), jnp.zeros((), bool), jnp.zeros((), bool))

    def step(self, state, action, key):
        return {}["missing"]
"""

SMALL = ("--steps", 2000, "--envs", 2, "--set", "num_steps=32", "hidden_sizes=8", "num_epochs=1", "--quiet")


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The environments above, as a module in the directory where the command runs."""
    (tmp_path / "faulty_module.py").write_text(ENVIRONMENTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "faulty_module"
    sys.modules.pop("faulty_module", None)


def test_an_environment_that_raises_is_named_by_file_and_line_and_the_run_is_saved(module, thespis, tmp_path):
    result = thespis("train", "ppo", "--env", f"{module}:Faulty", *SMALL, "--out", "run", code=2)
    where, source, message = result.err.splitlines()
    assert "faulty_module.py" in where and where.endswith("in step") and source.strip() == "1 / 0  # the faulty line"
    assert "environment 0, step 300, raised ZeroDivisionError: division by zero" in message
    assert "continue with: thespis resume run" in message
    # blocks of 64 steps of both environments: the error came in the tenth
    assert list_checkpoints(tmp_path / "run" / "checkpoints")[-1].stem == "step_000000000576"
    sys.modules[module].FAULTY_STEP[0] = 0
    assert "new episodes" in thespis("resume", "run", "--quiet").err
    assert load(tmp_path / "run").step == 2048


@pytest.mark.long
def test_the_whole_traceback_is_shown_on_request(module, thespis):
    words = ("train", "ppo", "--env", f"{module}:Faulty", *SMALL, "--out", "run", "--traceback")
    result = thespis(*words, code=2)
    assert "Traceback (most recent call last)" in result.err and "host_loop.py" in result.err
    assert result.err.splitlines()[-1].startswith("thespis: faulty_module:Faulty")


def test_an_error_in_a_compiled_environment_is_the_users_too(module, thespis):
    result = thespis("train", "ppo", "--env", f"{module}:CompiledFaulty", *SMALL, "--out", "run", code=2)
    where, source, message = result.err.splitlines()
    assert "faulty_module.py" in where and source.strip() == 'return {}["missing"]'
    assert message.startswith("thespis: KeyError: 'missing' (--traceback shows everything)")


@pytest.mark.slow
def test_a_callback_that_raises_ends_the_run_saved_and_it_resumes_to_the_same_bits(tmp_path):
    method = PPO(hidden_sizes=(8,), num_epochs=1, feed=Rollouts(num_steps=16, num_envs=2))
    options = {"steps": 320, "episodes": 2, "checkpoint_seconds": 1e9, "report_every": 64}

    def fails_late(event):
        if event.kind == "metrics" and event.step >= 192:
            raise ValueError("a fault in a callback")

    with pytest.raises(ValueError, match="a fault in a callback"):
        train(method, env="CartPole-v1", out=tmp_path / "stopped", callbacks=[fails_late], **options)
    assert list_checkpoints(tmp_path / "stopped" / "checkpoints")[-1].stem == "step_000000000192"
    resume(tmp_path / "stopped")
    train(method, env="CartPole-v1", out=tmp_path / "straight", **options)
    stopped, straight = ((tmp_path / name / "metrics.csv").read_bytes() for name in ("stopped", "straight"))
    assert stopped == straight
    hashes = [load(tmp_path / name).final_scores["state_hash"] for name in ("stopped", "straight")]
    assert hashes[0] == hashes[1]
