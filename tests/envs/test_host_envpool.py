import numpy as np
import pytest
from play import equal, play

from thespis.core.errors import UserError
from thespis.core.spaces import Box
from thespis.envs.host.envpool import NAMES, EnvPool

envpool = pytest.importorskip("envpool")


def test_the_listed_worlds_exist():
    assert set(NAMES) <= set(envpool.list_all_envs())


def test_no_filler_rows_and_true_last_observations():
    worlds = EnvPool("CartPole-v1", 4)
    told = play(worlds, 120, worlds.start([1, 2, 3, 4]).view)
    for view, step, after in told:
        ended = step.terminated | step.truncated
        moved = view.observation[:, 0] + 0.02 * view.observation[:, 1]  # CartPole's first equation
        np.testing.assert_allclose(step.observation[:, 0], moved, atol=1e-6)
        np.testing.assert_array_equal(step.reward, 1.0)
        np.testing.assert_array_equal(after.observation[~ended], step.observation[~ended])
        assert (np.abs(after.observation[ended]) <= 0.05).all()
    assert sum(int(step.terminated.sum()) for _, step, _ in told) > 10
    worlds.close()


def test_a_time_limit_is_a_truncation():
    worlds = EnvPool("Pendulum-v1", 2)
    assert worlds.spec.time_limit == 200 and worlds.spec.action == Box((1,), -2.0, 2.0)
    told = play(worlds, 201, worlds.start([1, 2]).view)
    assert [step.truncated.tolist() for _, step, _ in told].index([True, True]) == 199
    assert sum(step.truncated.sum() for _, step, _ in told) == 2
    assert not any(step.terminated.any() for _, step, _ in told)


def test_a_seed_gives_its_world_whatever_its_place_and_the_threads():
    few, many = EnvPool("CartPole-v1", 1), EnvPool("CartPole-v1", 6, threads=2)
    seeds = [8, 9, 7, 2**31 - 1, 6, 5]
    first, whole = few.start([7]), many.start(seeds)
    assert len(np.unique(whole.observation, axis=0)) == 6
    np.testing.assert_array_equal(first.observation[0], whole.observation[2])
    zeros = np.zeros
    for _ in range(60):  # across several resets
        _, one = few.step(zeros(1, "int32"))
        _, all_of_them = many.step(zeros(6, "int32"))
        np.testing.assert_array_equal(one.observation[0], all_of_them.observation[2])
    assert equal(many.start(seeds), whole)


def test_mujoco_in_float32():
    worlds = EnvPool("Hopper-v5", 2)
    ((view, step, _),) = play(worlds, 1, worlds.start([1, 2]).view)
    assert view.observation.shape == (2, 11) and step.observation.dtype == "float32"
    assert worlds.save() is None


def test_an_unknown_world_gets_the_nearest_ones():
    with pytest.raises(UserError, match="nearest: Hopper-v5"):
        EnvPool("Hoper-v5", 1)
