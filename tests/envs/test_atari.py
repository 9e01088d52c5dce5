"""Atari games: preprocessing, lives and rewards in training and evaluation, saved states, options, and errors."""

import numpy as np
import pytest
from random_play import equal, play

from thespis.core.contracts import HostEnvironment, ReportsScores
from thespis.core.errors import UserError
from thespis.core.records import View
from thespis.core.spaces import Box, Discrete
from thespis.envs import registry
from thespis.envs.host import atari
from thespis.envs.host.atari import AtariEnv
from thespis.envs.host.gymnasium import GymnasiumSyncEnv

pytest.importorskip("ale_py")

NAME = "ALE/Breakout-v5"
NOOP = np.zeros(2, "int32")


def steps_of(envs, count: int, first_tick: int = 0):
    """Time steps and views after random actions, with the game's own scores and ends."""
    view, results = View(np.zeros(0)), []
    for tick in range(first_tick, count):
        ((_, step, view),) = play(envs, 1, view, tick)
        results.append((step, view, *envs.last_scores()))
    return results


@pytest.fixture(scope="module")
def games():
    """The same 150 random actions in two games, as in training and as in evaluation."""
    results = {}
    for training in (True, False):
        envs = registry.make_host(NAME, 2, training=training)
        envs.reset([1, 2])
        results[training] = steps_of(envs, 150)
        envs.close()
    return results


@pytest.mark.long
def test_a_name_gives_the_usual_preprocessing():
    envs = registry.make_host(NAME, 2)
    assert isinstance(envs, AtariEnv) and isinstance(envs, HostEnvironment) and isinstance(envs, ReportsScores)
    assert envs.spec.observation_space == Box((4, 84, 84), 0.0, 255.0, "uint8")
    assert envs.spec.action_space == Discrete(4) and envs.spec.time_limit == 27_000
    assert envs.options == atari.AtariOptions(repeat_action_probability=0.25)
    first = envs.reset([1, 2]).observation
    assert first.dtype == "uint8" and first[:, :3].max() == 0 and first[:, 3].max() > 100  # older frames are black
    (_, step, after), (_, then, _) = play(envs, 2, envs.reset([1, 2]).view)
    assert equal(step.observation, after.observation)
    np.testing.assert_array_equal(then.observation[:, :3], step.observation[:, 1:])  # oldest first
    envs.close()


@pytest.mark.long
def test_lost_lives_end_episodes_in_training_only_and_the_game_goes_on(games):
    training, evaluation = games[True], games[False]
    assert all(equal(a[0].observation, b[0].observation) for a, b in zip(training, evaluation, strict=True))
    ends = {kind: np.array([step.terminated for step, *_ in steps]) for kind, steps in games.items()}
    overs = np.array([over for *_, over in training])
    assert ends[True].sum() >= 5 * ends[False].sum() > 0  # five lives, the last of which ends the game
    np.testing.assert_array_equal(ends[False], overs)
    for (step, view, _, over), ended in zip(training, ends[True], strict=True):
        lost = ended & ~over
        np.testing.assert_array_equal(view.observation[lost], step.observation[lost])
        assert (view.observation[over] != step.observation[over]).any() or not over.any()


def test_rewards_are_signs_in_training_and_scores_are_the_games():
    envs = AtariEnv("ALE/SpaceInvaders-v5", {}, 2, training=True)  # an alien gives five points or more
    envs.reset([1, 2])
    rewards, scores = np.transpose([(step.reward, score) for step, _, score, _ in steps_of(envs, 80)], (1, 0, 2))
    assert scores.max() >= 5 and set(np.unique(rewards)) == {0.0, 1.0}
    np.testing.assert_array_equal(np.sign(scores), rewards)
    envs.close()


@pytest.mark.long
def test_fire_is_pressed_after_the_loss_of_a_life():
    def num_lost_lives(options):
        envs = AtariEnv(NAME, options, 2, training=True)
        envs.reset([1, 2])
        lost = sum(int(envs.step(NOOP)[0].terminated.sum()) for _ in range(200))
        envs.close()
        return lost

    assert num_lost_lives({"fire_reset": False}) == 0  # the ball never appears
    assert num_lost_lives({}) > 4


@pytest.mark.long
def test_a_restored_state_continues_exactly_with_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(atari, "RESEED_INTERVAL", 60)  # so that games begin with a new seed, and others without
    envs, other = (AtariEnv(NAME, {}, 2, num_threads=threads, training=True) for threads in (1, 2))
    assert envs.get_state() is None
    envs.reset([3, 4])
    steps_of(envs, 230)
    state = {name: np.array(value) for name, value in (envs.get_state() or {}).items()}
    assert state["num_seeded"].min() > 0 and len(set(state["starts"])) == 2
    expected = steps_of(envs, 330, 230)
    other.reset([9, 9])
    other.set_state(state)
    assert all(equal(a, b) for a, b in zip(expected, steps_of(other, 330, 230), strict=True))
    assert any(over.any() for *_, over in expected)
    envs.close()
    other.close()


@pytest.mark.long
def test_a_seed_gives_the_same_game_again_beside_any_other():
    envs, alone = AtariEnv(NAME, {}, 3), AtariEnv(NAME, {}, 1)
    first, again, single = envs.reset([5, 6, 5]), envs.reset([5, 6, 5]), alone.reset([6])
    assert equal(first, again)
    np.testing.assert_array_equal(single.observation[0], first.observation[1])
    for action in (1, 3, 2, 3, 0, 2):
        batch, one = envs.step(np.full(3, action, "int32"))[0], alone.step(np.full(1, action, "int32"))[0]
        np.testing.assert_array_equal(batch.observation[1], one.observation[0])
        np.testing.assert_array_equal(batch.observation[0], batch.observation[2])
    envs.close()
    alone.close()


def test_options_change_the_preprocessing_and_stand_in_the_name():
    name = f"{NAME}?frame_stack=2&screen_size=42&full_action_space=True&max_num_frames_per_episode=40"
    envs = registry.make_host(name, 1)
    assert envs.spec.name == f"gymnasium:{name}"
    assert envs.spec.observation_space.shape == (2, 42, 42) and envs.spec.action_space == Discrete(18)
    envs.reset([1])
    truncated = [bool(envs.step(NOOP[:1])[0].truncated[0]) for _ in range(10)]
    assert truncated == [*[False] * 9, True] and envs.spec.time_limit == 10
    envs.close()


def test_other_names_of_games_have_their_own_sticky_actions():
    envs = registry.make_host("BreakoutNoFrameskip-v4", 1)
    assert isinstance(envs, AtariEnv) and envs.options == atari.AtariOptions()
    envs.close()


def test_without_preprocessing_it_is_gymnasiums_environment():
    envs = registry.make_host(f"{NAME}?preprocess=False&obs_type=ram", 1)
    assert isinstance(envs, GymnasiumSyncEnv) and envs.spec.observation_space.shape == (128,)
    envs.close()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{NAME}?frameskip=2", "no option 'frameskip': its options are .*frame_skip"),
        (f"{NAME}?frame_stack=0", "at least 1"),
        ("Breakout-v4", "skips frames at random"),
        ("ALE/Breakot-v5", "cannot be made"),
    ],
)
def test_mistakes_are_one_line(name, message):
    with pytest.raises(UserError, match=message) as caught:
        registry.make_host(name, 1)
    assert "\n" not in str(caught.value)


def test_without_the_library_the_error_names_the_extra(monkeypatch):
    monkeypatch.setattr(atari, "is_installed", lambda module: False)
    with pytest.raises(UserError, match=r"pip install .*\[atari\]"):
        registry.make_host(NAME, 1)
    assert registry.make_host("gymnasium:CartPole-v1", 1).num_envs == 1
