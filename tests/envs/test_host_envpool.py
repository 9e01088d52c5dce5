"""EnvPool adapter: resets, true last observations, time limits and seeds, against known dynamics."""

import numpy as np
import pytest
from random_play import equal, play

from thespis.core.errors import UserError
from thespis.core.spaces import Box
from thespis.envs.host.envpool import ENV_NAMES, EnvPool

envpool = pytest.importorskip("envpool")


def test_listed_names_exist_in_envpool():
    assert set(ENV_NAMES) <= set(envpool.list_all_envs())


def test_no_filler_steps_and_true_last_observations():
    vector_env = EnvPool("CartPole-v1", 4)
    transitions = play(vector_env, 120, vector_env.reset([1, 2, 3, 4]).view)
    for view, step, after in transitions:
        ended = step.terminated | step.truncated
        next_position = view.observation[:, 0] + 0.02 * view.observation[:, 1]  # CartPole's first equation
        np.testing.assert_allclose(step.observation[:, 0], next_position, atol=1e-6)
        np.testing.assert_array_equal(step.reward, 1.0)
        np.testing.assert_array_equal(after.observation[~ended], step.observation[~ended])
        assert (np.abs(after.observation[ended]) <= 0.05).all()
    assert sum(int(step.terminated.sum()) for _, step, _ in transitions) > 10
    vector_env.close()


def test_time_limit_truncates():
    vector_env = EnvPool("Pendulum-v1", 2)
    assert vector_env.spec.time_limit == 200 and vector_env.spec.action_space == Box((1,), -2.0, 2.0)
    transitions = play(vector_env, 201, vector_env.reset([1, 2]).view)
    assert [step.truncated.tolist() for _, step, _ in transitions].index([True, True]) == 199
    assert sum(step.truncated.sum() for _, step, _ in transitions) == 2
    assert not any(step.terminated.any() for _, step, _ in transitions)


def test_seeded_env_does_not_depend_on_index_or_threads():
    single, batch = EnvPool("CartPole-v1", 1), EnvPool("CartPole-v1", 6, num_threads=2)
    seeds = [8, 9, 7, 2**31 - 1, 6, 5]
    first, first_of_batch = single.reset([7]), batch.reset(seeds)
    assert len(np.unique(first_of_batch.observation, axis=0)) == 6
    np.testing.assert_array_equal(first.observation[0], first_of_batch.observation[2])
    zeros = np.zeros
    for _ in range(60):  # across several resets
        _, single_step = single.step(zeros(1, "int32"))
        _, batch_step = batch.step(zeros(6, "int32"))
        np.testing.assert_array_equal(single_step.observation[0], batch_step.observation[2])
    assert equal(batch.reset(seeds), first_of_batch)


def test_mujoco_in_float32():
    vector_env = EnvPool("Hopper-v5", 2)
    ((view, step, _),) = play(vector_env, 1, vector_env.reset([1, 2]).view)
    assert view.observation.shape == (2, 11) and step.observation.dtype == "float32"
    assert vector_env.get_state() is None


def test_unknown_name_suggests_the_nearest():
    with pytest.raises(UserError, match="nearest: Hopper-v5"):
        EnvPool("Hoper-v5", 1)
