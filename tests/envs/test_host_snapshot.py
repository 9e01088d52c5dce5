"""Saved states of host environments: a restored environment against the original, bit for bit."""

import functools

import gymnasium
import numpy as np
import pytest
import user_envs
from random_play import equal, play

import thespis
from thespis.data.feeds import Rollouts
from thespis.envs.host.vector import GymnasiumVectorEnv
from thespis.envs.registry import make_host

NAMES = ["CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1"]
MUJOCO = ["HalfCheetah-v5", "Hopper-v5", "Ant-v5", "Reacher-v5", "Pusher-v5", "Humanoid-v5"]


def assert_continues_bitwise(make, seeds):
    vector_env = make()
    view = play(vector_env, 50, vector_env.reset(seeds).view)[-1][2]
    saved = vector_env.get_state()
    assert all(isinstance(value, np.ndarray) and value.dtype != object for value in saved.values())
    restored = make()
    restored.set_state(saved)
    expected, result = (play(env, 50, view, start=50) for env in (vector_env, restored))
    assert equal(expected, result)


@pytest.mark.parametrize(
    "name", [*(f"gymnasium:{name}" for name in NAMES + MUJOCO), "gymnax:CartPole-v1", "probe:coin"]
)
def test_restored_env_continues_bitwise(name):
    if name.removeprefix("gymnasium:") in MUJOCO:
        pytest.importorskip("mujoco")
    assert_continues_bitwise(lambda: make_host(name, 2), [1, 2])


def test_restored_env_keeps_its_step_count():
    vector_env, restored = make_host("gymnasium:Pendulum-v1", 1), make_host("gymnasium:Pendulum-v1", 1)
    view = play(vector_env, 150, vector_env.reset([0]).view)[-1][2]
    restored.set_state(vector_env.get_state())
    transitions = play(restored, 60, view)
    assert [bool(step.truncated[0]) for _, step, _ in transitions].index(True) == 49


def test_envs_with_save_state_of_their_own():
    assert_continues_bitwise(lambda: make_host(user_envs.Saved, 2), [1, 2])


class Counted(gymnasium.Wrapper):
    """A wrapper with state that nothing saves."""


def test_envs_with_get_state_and_set_state():
    assert_continues_bitwise(lambda: make_host(user_envs.Stateful, 2), [1, 2])
    limited = functools.partial(gymnasium.wrappers.TimeLimit, max_episode_steps=7)
    assert_continues_bitwise(lambda: make_host(lambda: limited(user_envs.Stateful()), 2), [1, 2])
    assert make_host(lambda: Counted(user_envs.Stateful()), 1).get_state() is None


@pytest.mark.slow
def test_a_stateful_env_resumes_bit_for_bit(tmp_path):
    """A run that was stopped equals the straight one, in every row of metrics and in the state of the learner."""
    method = thespis.PPO(hidden_sizes=(4,), num_epochs=1, feed=Rollouts(num_steps=16, num_envs=2))
    options = {"steps": 256, "episodes": 1, "report_every": 32, "checkpoint_seconds": 1e9}

    def stop(event):
        if event.kind == "metrics" and event.step == 128:
            raise KeyError("stopped in the middle of episodes")

    with pytest.raises(KeyError):
        thespis.train(method, user_envs.Stateful, out=tmp_path / "stopped", callbacks=[stop], **options)
    warnings = []
    thespis.resume(
        tmp_path / "stopped",
        user_envs.Stateful,
        callbacks=[lambda e: warnings.append(e) if e.kind == "warning" else None],
    )
    thespis.train(method, user_envs.Stateful, out=tmp_path / "straight", **options)
    stopped, straight = ((tmp_path / name / "metrics.csv").read_bytes() for name in ("stopped", "straight"))
    assert stopped == straight and not warnings
    hashes = [
        thespis.load(tmp_path / n, user_envs.Stateful).final_scores["state_hash"] for n in ("stopped", "straight")
    ]
    assert hashes[0] == hashes[1]


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_restored_vector_env_continues_bitwise(mode):
    def make():
        envs = [lambda: gymnasium.make("CartPole-v1")] * 2
        return GymnasiumVectorEnv(gymnasium.vector.SyncVectorEnv(envs, autoreset_mode=mode))

    assert_continues_bitwise(make, [1, 2])


def test_unknown_envs_and_wrappers_have_no_state():
    assert make_host(user_envs.Coded, 1).get_state() is None

    class CartPole(gymnasium.envs.classic_control.CartPoleEnv):
        """A subclass, which may have more state than its parent."""

    assert make_host(CartPole, 1).get_state() is None
    sticky = gymnasium.wrappers.StickyAction(gymnasium.make("CartPole-v1"), 0.5)
    assert make_host(sticky, 1).get_state() is None


def test_making_mujoco_envs_leaves_no_file(tmp_path, monkeypatch, capfd):
    pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    make_host("gymnasium:HalfCheetah-v5", 1).close()
    assert not list(tmp_path.iterdir())
    assert "WARNING" not in capfd.readouterr().err
