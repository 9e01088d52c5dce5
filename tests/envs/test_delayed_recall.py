"""Delayed recall: episodes against a plain Python reference, and the returns of policies with and without memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_environment
from thespis.envs.compiled.delayed_recall import DelayedRecall

ENV = DelayedRecall(num_symbols=3, delay=4, num_recalls=2)
LENGTH = 7


def play(env, seed, policy):
    """Observations, cue, return and length of an episode; ``policy`` sees all observations so far."""
    key = jax.random.key(seed)
    state, step = jax.jit(lambda key: env.reset((), key))(key)
    advance = jax.jit(env.step)
    observations, total = [np.asarray(step.observation)], 0.0
    while not step.terminated:
        action = jnp.int32(policy(observations))
        state, step = advance(state, action, jax.random.fold_in(key, len(observations)))
        total += float(step.reward)
        assert not step.truncated
        observations.append(np.asarray(step.observation))
    return observations, int(state.cue), total


def copy_and_remember(observations):
    """The right action: the symbol shown, or the first one where nothing is shown."""
    symbol = observations[-1][:3]
    return int(np.argmax(symbol if symbol.any() else observations[0][:3]))


def copy_and_guess(observations):
    """Copies symbols, and answers 0 where nothing is shown."""
    return int(np.argmax(observations[-1][:3]))


@pytest.mark.parametrize("seed", range(4))
def test_an_episode_shows_the_cue_then_distractors_then_asks(seed):
    observations, cue, total = play(ENV, seed, copy_and_remember)
    assert len(observations) == LENGTH + 1 and total == LENGTH == ENV.spec.return_bounds[1]
    assert np.argmax(observations[0][:3]) == cue
    for time, observation in enumerate(observations[:LENGTH]):
        shown = time <= 4
        assert observation[:3].sum() == shown and set(observation[:3]) <= {0.0, 1.0}
        assert observation[3:].tolist() == [time == 0, not shown]


@pytest.mark.long
def test_without_memory_recalls_are_guesses():
    returns, cues = zip(*[play(ENV, seed, copy_and_guess)[:0:-1] for seed in range(30)], strict=True)
    assert list(returns) == [5.0 + 2.0 * (cue == 0) for cue in cues] and set(cues) == {0, 1, 2}


def test_wrong_actions_earn_nothing():
    assert play(ENV, 0, lambda observations: (copy_and_remember(observations) + 1) % 3)[2] == 0.0


@pytest.mark.long
def test_with_a_visible_cue_no_memory_is_needed():
    env = DelayedRecall(num_symbols=3, delay=4, num_recalls=2, cue_visible=True)
    for seed in range(3):
        assert play(env, seed, copy_and_guess)[2] == LENGTH


def test_symbols_are_equally_likely():
    keys = jax.random.split(jax.random.key(0), 3_000)
    state, first = jax.jit(jax.vmap(lambda key: DelayedRecall().reset((), key)))(keys)
    _, step = jax.jit(jax.vmap(DelayedRecall().step, (0, None, 0)))(state, jnp.int32(0), keys[::-1])
    for observation in (first.observation, step.observation):
        assert np.abs(np.asarray(observation[:, :4]).mean(axis=0) - 0.25).max() < 0.03
    both = np.asarray(first.observation[:, :4]).T @ np.asarray(step.observation[:, :4]) / 3_000
    assert np.abs(both - 1 / 16).max() < 0.02  # independent


@pytest.mark.long
@pytest.mark.parametrize("visible", [False, True])
def test_contract(visible):
    check_environment(DelayedRecall(3, 2, 2, visible))
