"""Gymnasium adapter: transitions, autoreset modes, seeds, threads, masks and errors, against environments of a user."""

import gymnasium
import numpy as np
import pytest
import user_envs
from random_play import equal, play

from thespis.core.errors import UserError
from thespis.core.spaces import Box, Discrete, MultiDiscrete, dict_space, tuple_space
from thespis.envs.host.vector import GymnasiumVectorEnv
from thespis.envs.registry import make_host

MODES = list(gymnasium.vector.AutoresetMode)


def assert_true_successors(transitions):
    """Each transition stays in one environment and episode; where that ended, the next view is that of the reset."""
    for view, step, after in transitions:
        ended = step.terminated | step.truncated
        np.testing.assert_array_equal(step.observation, view.observation + np.array([0, 0, 1], "float32"))
        np.testing.assert_array_equal(step.reward, step.observation[:, 2])
        np.testing.assert_array_equal(after.observation[~ended], step.observation[~ended])
        np.testing.assert_array_equal(after.observation[ended, 1], step.observation[ended, 1] + 1)
        assert not after.observation[ended, 2].any()
        np.testing.assert_array_equal(step.truncated[ended], step.observation[ended, 1] % 2 == 1)
        assert not (step.truncated & step.terminated).any()


def test_transitions_are_successors_without_filler_steps():
    vector_env = make_host(user_envs.Coded, 3)
    user_envs.Coded.steps_taken = 0
    transitions = play(vector_env, 40, vector_env.reset([1, 2, 3]).view)
    assert_true_successors(transitions)
    assert user_envs.Coded.steps_taken == 3 * 40
    assert sum((step.terminated.sum() > 0) + (step.truncated.sum() > 0) for _, step, _ in transitions) > 10


def sync_vector_env(make, mode, n=3, **options):
    return GymnasiumVectorEnv(gymnasium.vector.SyncVectorEnv([make] * n, autoreset_mode=mode, **options))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [user_envs.Coded, user_envs.Masked, user_envs.Trees])
def test_every_autoreset_mode_matches_single_envs(mode, make):
    single, vectorized = make_host(make, 3), sync_vector_env(make, mode, copy=False)
    assert single.spec == vectorized.spec or single.spec.observation_space == vectorized.spec.observation_space
    make.steps_taken = 0
    expected, result = (play(vector_env, 30, vector_env.reset([5, 6, 7]).view) for vector_env in (single, vectorized))
    assert equal(expected, result)
    assert make is user_envs.Trees or make.steps_taken == 2 * 3 * 30


@pytest.mark.parametrize("mode", MODES)
def test_cartpole_is_the_same_in_every_mode(mode):
    single = make_host("gymnasium:CartPole-v1", 2)
    vectorized = sync_vector_env(lambda: gymnasium.make("CartPole-v1"), mode, n=2)
    assert vectorized.spec == single.spec and single.spec.time_limit == 500
    assert equal(*(play(vector_env, 60, vector_env.reset([5, 6]).view) for vector_env in (single, vectorized)))


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")  # fork while JAX's threads run
def test_async_vector_env_matches_single_envs():
    make = [user_envs.Coded, user_envs.Coded]
    vectorized = GymnasiumVectorEnv(gymnasium.vector.AsyncVectorEnv(make, autoreset_mode="NextStep"))
    try:
        assert equal(
            *(play(vector_env, 20, vector_env.reset([5, 6]).view) for vector_env in (make_host(make[0], 2), vectorized))
        )
    finally:
        vectorized.close()


def test_vector_env_without_partial_resets_is_rejected():
    with pytest.raises(UserError, match="filler rows"):
        make_host(gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point"), 2)


def test_result_does_not_depend_on_threads():
    single_threaded, two_threaded = (make_host(user_envs.Coded, 5, num_threads=threads) for threads in (1, 2))
    seeds = [1, 2, 3, 4, 5]
    assert equal(
        *(play(vector_env, 30, vector_env.reset(seeds).view) for vector_env in (single_threaded, two_threaded))
    )
    two_threaded.close()


def test_random_stream_does_not_depend_on_batch_size():
    small, large = make_host(user_envs.Coded, 2), make_host(user_envs.Coded, 6)
    transitions = [
        play(vector_env, 20, vector_env.reset(list(range(vector_env.num_envs))).view) for vector_env in (small, large)
    ]
    for (_, small_step, _), (_, large_step, _) in zip(*transitions, strict=True):
        np.testing.assert_array_equal(small_step.observation, large_step.observation[:2])


def test_reset_with_the_same_seeds_repeats_everything():
    vector_env = make_host("gymnasium:CartPole-v1", 2)
    assert equal(*(play(vector_env, 30, vector_env.reset([3, 4]).view) for _ in range(2)))


def test_action_masks_are_read_from_info():
    vector_env = make_host(user_envs.Masked, 4)
    assert vector_env.spec.has_action_mask
    for view, step, after in play(vector_env, 20, vector_env.reset([1, 2, 3, 4]).view):
        np.testing.assert_array_equal(view.action_mask, np.arange(2) == view.observation[:, 2:] % 2)
        assert step.action_mask.shape == after.action_mask.shape == (4, 2)
    assert not make_host(user_envs.Coded, 1).spec.has_action_mask


@pytest.mark.long
def test_nested_spaces_and_shifted_discrete_actions():
    vector_env = make_host(user_envs.Trees, 2)
    assert vector_env.spec.observation_space == dict_space(
        box=Box((2,), 0.0, 1.0), pair=tuple_space(Discrete(3), MultiDiscrete((2, 2)))
    )
    assert vector_env.spec.action_space == dict_space(
        a=tuple_space(Box((1,), -2.0, 2.0), MultiDiscrete((2, 2, 2))), z=MultiDiscrete((2, 3))
    )
    first = vector_env.reset([0, 1])
    assert first.observation["pair"][0].tolist() == [0, 0]
    assert first.observation["pair"][1].tolist() == [[1, 0], [1, 0]]
    ((_, step, _),) = play(vector_env, 1, first.view)
    assert step.observation["pair"][0].tolist() == [2, 2]
    assert step.truncated.all() and step.reward.tolist() == [0.5, 0.5]


def test_images_stay_uint8_and_doubles_become_float32():
    vector_env = make_host(user_envs.Duck, 2)
    assert vector_env.spec.action_space == Box((2,), (-1.0, 0.0), (1.0, 2.0))
    ((view, step, _),) = play(vector_env, 1, vector_env.reset([0, 1]).view)
    assert view.observation.dtype == "uint8" and step.reward.dtype == "float32"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (user_envs.Broken, r"environment 0, step 3, raised RuntimeError: the robot fell off the table"),
        (user_envs.OldStep, r"environment 0, step 1: step must return \(observation, reward, terminated"),
    ],
)
def test_failing_env_is_named(make, message):
    vector_env = make_host(make, 2)
    with pytest.raises(UserError, match=message) as caught:
        play(vector_env, 5, vector_env.reset([1, 2]).view)
    assert "\n" not in str(caught.value)


def test_original_error_is_the_cause():
    vector_env = make_host(user_envs.Broken, 2, num_threads=2)
    with pytest.raises(UserError) as caught:
        play(vector_env, 5, vector_env.reset([1, 2]).view)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_wrong_shapes_are_one_line_errors():
    with pytest.raises(UserError, match=r"observation has shape \(2,\) and its space declares \(3,\)"):
        make_host(user_envs.WrongShape, 1).reset([0])
    vector_env = make_host("gymnasium:Pendulum-v1", 2)
    vector_env.reset([0, 1])
    with pytest.raises(UserError, match=r"must have shape \(2, 1\) \(environments first\), not \(2,\)"):
        vector_env.step(np.zeros(2, "float32"))
    with pytest.raises(UserError, match="2 environments need 2 seeds, not 1"):
        vector_env.reset([0])


def test_512_envs_of_32_seeds_share_no_random_stream():
    from thespis.runtime.keys import env_seed, root_keys

    seeds = [env_seed(root, i) for root in root_keys(list(range(32))) for i in range(16)]
    observations = make_host(user_envs.Coded, 512).reset(seeds).observation
    assert len(np.unique(observations[:, 0])) == 512
