"""Foraging environment: every step against a reference in plain Python, and harvests of known policies."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_environment
from thespis.core.records import Critique, Report
from thespis.data.feeds import Replay
from thespis.envs.compiled.foraging import PATCHES, ForagingEnv, ForagingState
from thespis.evaluation.run import Run
from thespis.evidence.multi_goal import harvest_shares, num_neglected_patches

ENV_NAME = "thespis.envs.compiled.foraging:ForagingEnv"


def reference_step(food, action, env):
    """Reference step: food after it, and reward."""
    x, y = (min(max(a, -1.0), 1.0) for a in action)
    if env.is_aimed:
        best = PATCHES[food.index(max(food))]
        x, y = x + best[0], y + best[1]
    harvest = [
        amount * math.exp(-((x - px) ** 2 + (y - py) ** 2) / (2 * env.patch_radius**2))
        for amount, (px, py) in zip(food, PATCHES, strict=True)
    ]
    return [min(amount - taken + env.growth, 1.0) for amount, taken in zip(food, harvest, strict=True)], sum(harvest)


class Forager:
    """Goes to the patch with the most food, to the first patch only, or to no patch: a number for each seed."""

    name, citations, details, feed = "forager", (), (), Replay()

    def init(self, spec, key):
        return jnp.array([0, 1, 2])

    def policy(self, state, mode):
        return state

    def init_memory(self, policy, n):
        return ()

    def act(self, policy, memory, view, key):
        best = jnp.array(PATCHES)[jnp.argmax(view.observation, axis=1)]
        first = jnp.full(best.shape, 0.6)
        return jnp.select([policy == 0, policy == 1], [best, first], jnp.zeros_like(best)), memory, ()

    def judge(self, state, episode):
        return Critique()

    def update(self, state, batch, key):
        return state, Report({})


class ForagerRun(Run):
    """A run with three seeds of ``Forager``."""

    def __init__(self):
        self.config: Any = {"env": ENV_NAME, "seeds": [0, 1, 2]}
        self.method: Any = Forager()

    @property
    def states(self):
        return self.method.init(ForagingEnv().spec, jax.random.key(0))


@pytest.mark.parametrize("env", [ForagingEnv(), ForagingEnv(patch_radius=0.5, growth=0.05, is_aimed=True)])
def test_every_step_matches_the_reference(env):
    check_environment(env)
    rng = np.random.default_rng(0)
    foods, actions = rng.uniform(0, 1, (300, 4)).astype("float32"), rng.uniform(-1.5, 1.5, (300, 2)).astype("float32")
    times = rng.choice([0, env.time_limit - 1], 300).astype("int32")
    states, steps = jax.vmap(lambda f, a, t: env.step(ForagingState(f, t), a, jax.random.key(0)))(foods, actions, times)
    for i, (food, action) in enumerate(zip(foods.tolist(), actions.tolist(), strict=True)):
        food, reward = reference_step(food, action, env)
        np.testing.assert_allclose(states.food[i], food, atol=1e-5)
        np.testing.assert_allclose(steps.observation[i], food, atol=1e-5)
        assert steps.reward[i] == pytest.approx(reward, abs=1e-5)
    assert not steps.terminated.any() and steps.truncated.tolist() == (times == env.time_limit - 1).tolist()


def test_starts_are_uniform():
    foods = jax.vmap(lambda key: ForagingEnv().reset((), key)[0].food)(jax.random.split(jax.random.key(0), 2_000))
    np.testing.assert_allclose(foods.mean(axis=0), 0.5, atol=0.03)
    np.testing.assert_allclose(foods.std(axis=0), 12**-0.5, rtol=0.1)


def test_aimed_actions_are_relative_to_the_best_patch():
    food, offset = jnp.array([0.2, 0.1, 0.9, 0.4]), jnp.array([0.1, -0.2])
    aimed = dataclasses.replace(ForagingEnv(), is_aimed=True).harvest(food, offset)
    np.testing.assert_allclose(aimed, ForagingEnv().harvest(food, offset + jnp.array(PATCHES[2])), rtol=1e-6)


def test_neglected_patches_of_known_policies():
    run = ForagerRun()
    shares = harvest_shares(run, 5)
    assert (shares[0] > 0.9).all()  # visits every patch in turn
    assert shares[1, 0] > 0.9 and (shares[1, 1:] < 0.01).all()
    assert (shares[2] < 0.01).all()
    assert num_neglected_patches(5).compute(run).tolist() == [0.0, 3.0, 4.0]
