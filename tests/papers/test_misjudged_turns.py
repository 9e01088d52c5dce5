"""Share of turns that a critic misjudges, in the trial of ArCHer, against plain Python."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from thespis.core.records import Transition, View
from thespis.papers.archer.paper import disagreement, paid_at_the_end


def test_rewards_and_advantages_are_each_compared_with_their_mean():
    rng = np.random.default_rng(0)
    rewards, advantages = rng.normal(size=(2, 5, 8))
    mean_reward, mean_advantage = rewards.sum() / 40, advantages.sum() / 40
    count = 0
    for reward, advantage in zip(rewards.ravel(), advantages.ravel(), strict=True):
        count += (reward > mean_reward) != (advantage > mean_advantage)
    assert disagreement(rewards, advantages) == pytest.approx(count / 40)
    assert disagreement(rewards, 2 * rewards + 1) == 0
    assert disagreement(rewards, -rewards) == 1


def test_episodes_are_paid_their_sum_in_the_last_turn():
    rewards = np.array([[0.125, 0.0, 0.125], [0.0, 0.0, 0.125]], "float32")
    view, zeros = View(np.zeros((2, 3))), np.zeros((2, 3), bool)
    steps = Transition(view, np.zeros((2, 3)), rewards, zeros, zeros, view, zeros)
    paid = jax.tree.map(np.asarray, paid_at_the_end(steps))
    np.testing.assert_array_equal(paid.reward, [[0, 0, 0.25], [0, 0, 0.125]])
    for field in dataclasses.fields(Transition):
        if field.name != "reward":
            assert jax.tree.all(jax.tree.map(np.array_equal, getattr(paid, field.name), getattr(steps, field.name))), (
                field.name
            )
