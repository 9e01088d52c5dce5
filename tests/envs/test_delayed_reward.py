"""Delayed rewards: the same dialogues and returns as the task's, paid at the last turn."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from thespis.core.laws.environments import check_environment
from thespis.envs.text.delayed_reward import DelayedReward
from thespis.envs.text.echo import Echo
from thespis.envs.text.maze import Maze
from thespis.envs.text.task import TextEnv
from thespis.runtime.keys import fold, seed_key


def play(env: TextEnv, episode: int) -> tuple[np.ndarray, list[float]]:
    """The transcript and the rewards of an episode of the demonstrator."""
    reset, step, demonstrate = (jax.jit(f) for f in (env.reset, env.step, env.demonstrator_action))
    dialogue, timestep = reset((), seed_key(episode))
    rewards = []
    while not timestep.terminated:
        key = fold(seed_key(episode), "turn", len(rewards))
        dialogue, timestep = step(dialogue, demonstrate(dialogue, key), key)
        rewards.append(float(timestep.reward))
    return np.asarray(timestep.observation), rewards


@pytest.mark.long
@pytest.mark.parametrize(
    "task",
    [Echo(max_turns=5, demonstrator_noise=0.5), Maze(size=2, max_turns=4)],
    ids=["echo", "maze"],
)
def test_rewards_are_summed_at_the_last_turn(task):
    returns = set()
    for episode in range(8):
        transcript, rewards = play(TextEnv(task), episode)
        delayed_transcript, delayed = play(TextEnv(DelayedReward(task)), episode)
        np.testing.assert_array_equal(delayed_transcript, transcript)
        assert delayed[:-1] == [0.0] * (len(rewards) - 1)
        assert delayed[-1] == pytest.approx(sum(rewards))
        returns.add(round(sum(rewards), 3))
    assert len(returns) > 1


@pytest.mark.long
def test_delayed_task_follows_the_laws_of_environments():
    check_environment(TextEnv(DelayedReward(Echo(max_turns=2))))
