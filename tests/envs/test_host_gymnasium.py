import gymnasium
import numpy as np
import pytest
import user_worlds
from play import equal, play

from thespis.core.errors import UserError
from thespis.core.spaces import Box, Discrete, MultiDiscrete, dict_space, tuple_space
from thespis.envs.host.vector import Vector
from thespis.envs.registry import host

MODES = list(gymnasium.vector.AutoresetMode)


def assert_true_successors(told):
    """Every transition is of one world and one episode, and the next view is the reset's where it ended."""
    for view, step, after in told:
        ended = step.terminated | step.truncated
        np.testing.assert_array_equal(step.observation, view.observation + np.array([0, 0, 1], "float32"))
        np.testing.assert_array_equal(step.reward, step.observation[:, 2])
        np.testing.assert_array_equal(after.observation[~ended], step.observation[~ended])
        np.testing.assert_array_equal(after.observation[ended, 1], step.observation[ended, 1] + 1)
        assert not after.observation[ended, 2].any()
        np.testing.assert_array_equal(step.truncated[ended], step.observation[ended, 1] % 2 == 1)
        assert not (step.truncated & step.terminated).any()


def test_every_transition_is_true_and_no_step_is_a_filler():
    worlds = host(user_worlds.Coded, 3)
    user_worlds.Coded.steps_taken = 0
    told = play(worlds, 40, worlds.start([1, 2, 3]).view)
    assert_true_successors(told)
    assert user_worlds.Coded.steps_taken == 3 * 40
    assert sum((step.terminated.sum() > 0) + (step.truncated.sum() > 0) for _, step, _ in told) > 10


def vector(make, mode, n=3, **options):
    return Vector(gymnasium.vector.SyncVectorEnv([make] * n, autoreset_mode=mode, **options))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("make", [user_worlds.Coded, user_worlds.Masked, user_worlds.Trees])
def test_all_autoreset_modes_give_the_transitions_of_single_environments(mode, make):
    single, together = host(make, 3), vector(make, mode, copy=False)
    assert single.spec == together.spec or single.spec.observation == together.spec.observation
    make.steps_taken = 0
    one, other = (play(worlds, 30, worlds.start([5, 6, 7]).view) for worlds in (single, together))
    assert equal(one, other)
    assert make is user_worlds.Trees or make.steps_taken == 2 * 3 * 30


@pytest.mark.parametrize("mode", MODES)
def test_cartpole_is_the_same_in_every_mode(mode):
    single = host("gymnasium:CartPole-v1", 2)
    together = vector(lambda: gymnasium.make("CartPole-v1"), mode, n=2)
    assert together.spec == single.spec and single.spec.time_limit == 500
    assert equal(*(play(worlds, 60, worlds.start([5, 6]).view) for worlds in (single, together)))


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::DeprecationWarning")  # fork among JAX's threads
def test_worlds_in_processes():
    make = [user_worlds.Coded, user_worlds.Coded]
    together = Vector(gymnasium.vector.AsyncVectorEnv(make, autoreset_mode="NextStep"))
    try:
        assert equal(*(play(worlds, 20, worlds.start([5, 6]).view) for worlds in (host(make[0], 2), together)))
    finally:
        together.close()


def test_a_vector_that_cannot_restart_single_worlds_is_refused():
    with pytest.raises(UserError, match="filler rows"):
        host(gymnasium.make_vec("CartPole-v1", 2, vectorization_mode="vector_entry_point"), 2)


def test_threads_change_nothing():
    one, other = (host(user_worlds.Coded, 5, threads=threads) for threads in (1, 2))
    seeds = [1, 2, 3, 4, 5]
    assert equal(*(play(worlds, 30, worlds.start(seeds).view) for worlds in (one, other)))
    other.close()


def test_a_world_keeps_its_stream_in_a_larger_batch():
    few, many = host(user_worlds.Coded, 2), host(user_worlds.Coded, 6)
    told = [play(worlds, 20, worlds.start(list(range(worlds.n))).view) for worlds in (few, many)]
    for (_, short, _), (_, long, _) in zip(*told, strict=True):
        np.testing.assert_array_equal(short.observation, long.observation[:2])


def test_starting_again_with_the_same_seeds_repeats_everything():
    worlds = host("gymnasium:CartPole-v1", 2)
    assert equal(*(play(worlds, 30, worlds.start([3, 4]).view) for _ in range(2)))


def test_masks_are_read_from_the_info():
    worlds = host(user_worlds.Masked, 4)
    assert worlds.spec.legal
    for view, step, after in play(worlds, 20, worlds.start([1, 2, 3, 4]).view):
        np.testing.assert_array_equal(view.legal, np.arange(2) == view.observation[:, 2:] % 2)
        assert step.legal.shape == after.legal.shape == (4, 2)
    assert not host(user_worlds.Coded, 1).spec.legal


def test_trees_and_shifted_choices():
    worlds = host(user_worlds.Trees, 2)
    assert worlds.spec.observation == dict_space(
        box=Box((2,), 0.0, 1.0), pair=tuple_space(Discrete(3), MultiDiscrete((2, 2)))
    )
    assert worlds.spec.action == dict_space(
        a=tuple_space(Box((1,), -2.0, 2.0), MultiDiscrete((2, 2, 2))), z=MultiDiscrete((2, 3))
    )
    first = worlds.start([0, 1])
    assert first.observation["pair"][0].tolist() == [0, 0]
    assert first.observation["pair"][1].tolist() == [[1, 0], [1, 0]]
    ((_, step, _),) = play(worlds, 1, first.view)
    assert step.observation["pair"][0].tolist() == [2, 2]
    assert step.truncated.all() and step.reward.tolist() == [0.5, 0.5]


def test_pictures_stay_bytes_and_doubles_become_floats():
    worlds = host(user_worlds.Duck, 2)
    assert worlds.spec.action == Box((2,), (-1.0, 0.0), (1.0, 2.0))
    ((view, step, _),) = play(worlds, 1, worlds.start([0, 1]).view)
    assert view.observation.dtype == "uint8" and step.reward.dtype == "float32"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (user_worlds.Broken, r"environment 0, step 3, raised RuntimeError: the robot fell off the table"),
        (user_worlds.OldStep, r"environment 0, step 1: step must return \(observation, reward, terminated"),
    ],
)
def test_a_world_that_fails_is_named(make, said):
    worlds = host(make, 2)
    with pytest.raises(UserError, match=said) as caught:
        play(worlds, 5, worlds.start([1, 2]).view)
    assert "\n" not in str(caught.value)


def test_the_original_error_is_kept():
    worlds = host(user_worlds.Broken, 2, threads=2)
    with pytest.raises(UserError) as caught:
        play(worlds, 5, worlds.start([1, 2]).view)
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_wrong_shapes_are_said_once_and_clearly():
    with pytest.raises(UserError, match=r"observation has shape \(2,\) and its space declares \(3,\)"):
        host(user_worlds.WrongShape, 1).start([0])
    worlds = host("gymnasium:Pendulum-v1", 2)
    worlds.start([0, 1])
    with pytest.raises(UserError, match=r"must have shape \(2, 1\) \(worlds first\), not \(2,\)"):
        worlds.step(np.zeros(2, "float32"))
    with pytest.raises(UserError, match="2 worlds need 2 seeds, not 1"):
        worlds.start([0])


def test_512_worlds_of_32_seeds_share_no_stream():
    from thespis.core.keys import roots, world_seed

    seeds = [world_seed(root, i) for root in roots(list(range(32))) for i in range(16)]
    observations = host(user_worlds.Coded, 512).start(seeds).observation
    assert len(np.unique(observations[:, 0])) == 512
