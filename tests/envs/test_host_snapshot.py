import gymnasium
import numpy as np
import pytest
import user_worlds
from play import equal, play

from thespis.envs.host.vector import Vector
from thespis.envs.registry import host

NAMES = ["CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1"]
MUJOCO = ["HalfCheetah-v5", "Hopper-v5", "Ant-v5", "Reacher-v5", "Pusher-v5", "Humanoid-v5"]


def assert_goes_on_bitwise(make, seeds):
    worlds = make()
    view = play(worlds, 50, worlds.start(seeds).view)[-1][2]
    saved = worlds.save()
    assert all(isinstance(value, np.ndarray) and value.dtype != object for value in saved.values())
    fresh = make()
    fresh.load(saved)
    one, other = (play(each, 50, view, start=50) for each in (worlds, fresh))
    assert equal(one, other)


@pytest.mark.parametrize(
    "name", [*(f"gymnasium:{name}" for name in NAMES + MUJOCO), "gymnax:CartPole-v1", "probe:coin"]
)
def test_a_saved_world_goes_on_bitwise(name):
    if name.removeprefix("gymnasium:") in MUJOCO:
        pytest.importorskip("mujoco")
    assert_goes_on_bitwise(lambda: host(name, 2), [1, 2])


def test_a_time_limit_goes_on_counting():
    worlds, fresh = host("gymnasium:Pendulum-v1", 1), host("gymnasium:Pendulum-v1", 1)
    view = play(worlds, 150, worlds.start([0]).view)[-1][2]
    fresh.load(worlds.save())
    told = play(fresh, 60, view)
    assert [bool(step.truncated[0]) for _, step, _ in told].index(True) == 49


def test_worlds_that_save_themselves():
    assert_goes_on_bitwise(lambda: host(user_worlds.Saved, 2), [1, 2])


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_a_vector_of_known_worlds(mode):
    def make():
        envs = [lambda: gymnasium.make("CartPole-v1")] * 2
        return Vector(gymnasium.vector.SyncVectorEnv(envs, autoreset_mode=mode))

    assert_goes_on_bitwise(make, [1, 2])


def test_unknown_worlds_and_wrappers_say_so():
    assert host(user_worlds.Coded, 1).save() is None

    class CartPole(gymnasium.envs.classic_control.CartPoleEnv):
        """May keep more than its parent."""

    assert host(CartPole, 1).save() is None
    sticky = gymnasium.wrappers.StickyAction(gymnasium.make("CartPole-v1"), 0.5)
    assert host(sticky, 1).save() is None


def test_making_mujoco_worlds_leaves_no_file_behind(tmp_path, monkeypatch, capfd):
    pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    host("gymnasium:HalfCheetah-v5", 1).close()
    assert not list(tmp_path.iterdir())
    assert "WARNING" not in capfd.readouterr().err
