"""Methods that play by an average: magnetic mirror descent of parameters, fictitious self-play of what was played."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
from cases import KUHN

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.feeds import Rollouts
from thespis.core.keys import key_of
from thespis.core.records import Batch
from thespis.core.samples import random_steps
from thespis.curricula.fixed import Fixed
from thespis.evaluation.exploitability import judge_method
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.cloning import Cloning
from thespis.learners.crowd import EachAlone, one_of
from thespis.loops.compiled import CompiledLoop
from thespis.loops.parts import Parts
from thespis.methods.games.mmd import MMD, mirror_descent
from thespis.methods.games.nfsp import NFSP
from thespis.methods.online.ppo import PPO
from thespis.nets.body import GRU

SEAT = one_of(KUHN.spec, KUHN.spec.groups[0])


def test_the_average_counts_late_policies_more_at_first_and_then_forgets():
    method = MMD(dataclasses.replace(mirror_descent(), hidden=(8,), epochs=1, minibatch=12), decay=0.5)
    state = made_up.begun(method, SEAT)
    steps = random_steps(SEAT, np.random.default_rng(0), 4, 3)
    memory = method.begin(method.policy(state, Mode.EXPLORE), 3)
    extras = {"log_prob": -jnp.ones((4, 3))}
    steps = type(steps)(**{**vars(steps), "extras": extras})
    update, policies = jax.jit(method.update), [method.policy(state, Mode.EXPLORE)]
    for index in range(4):
        state, _ = update(state, Batch(steps, jnp.ones((4, 3), bool), memory, jnp.int32(index)), key_of(index))
        policies.append(method.policy(state, Mode.EXPLORE))
    weights = (2, 6, 12, 20)  # n (n + 1)
    wanted = jax.tree.map(lambda *x: sum(w * y for w, y in zip(weights, x, strict=False)) / 40, *policies)
    wanted = jax.tree.map(lambda old, new: 0.5 * old + 0.5 * new, wanted, policies[4])
    for mode in (Mode.SAMPLE, Mode.EXPLOIT):
        found = method.policy(state, mode)
        assert found.mode is mode
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def batch_of(method, state, index: int = 0, reward=None) -> Batch:
    """A random rollout with the log-probabilities by which the newest policy would have drawn its actions."""
    steps = random_steps(SEAT, np.random.default_rng(index), 4, 3)
    policy = method.policy(state, Mode.EXPLORE)
    memory = method.begin(policy, 3)
    extras = {"log_prob": log_chance(method, policy, steps)}
    steps = type(steps)(**{**vars(steps), "extras": extras} | ({} if reward is None else {"reward": reward}))
    return Batch(steps, jnp.ones((4, 3), bool), memory, jnp.int32(index))


def log_chance(method, policy, steps):
    """Of each action, from the net's own logits."""

    def one(view, action):
        return policy.network.choose(jax.tree.map(lambda x: x[0], policy.network.begin(1)), view)[0].log_prob(action)

    return jax.vmap(jax.vmap(one))(steps.view, steps.action)


def test_leaving_the_average_costs_reward():
    """An update is the one without a magnet, from rewards less what the divergence of each action costs."""
    mirror = dataclasses.replace(mirror_descent(), hidden=(8,), learning_rate=0.05, epochs=1, minibatch=12)
    drawn, free = MMD(mirror, magnet=0.7), MMD(mirror, magnet=None)
    start, update = made_up.begun(free, SEAT), jax.jit(free.update)
    state, _ = update(start, batch_of(free, start), key_of(1))
    batch = batch_of(free, state, 1)
    log_average = log_chance(free, free.policy(state, Mode.SAMPLE), batch.steps)
    cost = 0.7 * (batch.steps.extras["log_prob"] - log_average)
    assert float(jnp.abs(cost).max()) > 1e-4
    wanted, _ = update(state, batch_of(free, state, 1, batch.steps.reward - cost), key_of(2))
    found, _ = jax.jit(drawn.update)(state, batch, key_of(2))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    unmoved, _ = update(state, batch, key_of(2))
    assert max(np.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, (found, unmoved)), strict=True)) > 1e-3


def test_where_there_is_memory_the_average_cannot_draw():
    method = MMD(dataclasses.replace(mirror_descent(), hidden=(8,), epochs=1, minibatch=12, memory=GRU(4)))
    state = made_up.begun(method, SEAT)
    steps = random_steps(SEAT, np.random.default_rng(0), 4, 3)
    memory = method.begin(method.policy(state, Mode.EXPLORE), 3)
    with pytest.raises(UserError, match="magnet=none"):
        method.update(state, Batch(steps, jnp.ones((4, 3), bool), memory, jnp.int32(0)), key_of(1))


@pytest.mark.slow
def test_fictitious_self_play_nears_an_equilibrium_of_kuhn_poker():
    method = EachAlone(NFSP(capacity=50_000))
    loop = CompiledLoop(Parts(method, EnvironmentReward(), Fixed()), KUHN, 64, [0, 1], 10**7)
    states = loop.learner(loop.advance(loop.init(), 500)).method
    assert max(found.exploitability for found in judge_method(method, states, KUHN.game)) < 0.2


@pytest.mark.slow
def test_only_best_replies_teach_and_the_average_plays():
    """An episode is played by one of the two throughout; nothing of the average's episodes is kept or learnt."""
    method = NFSP(PPO(hidden=(8,), epochs=1, minibatch=12), Cloning(hidden=(8,)), anticipation=0.5, capacity=100)
    state = made_up.begun(method, SEAT)
    explore, plain = method.policy(state, Mode.EXPLORE), method.policy(state, Mode.SAMPLE)
    memory, taken = method.begin(explore, 400), []
    for i in range(3):
        view = jax.tree.map(jnp.asarray, random_steps(SEAT, np.random.default_rng(i), 1, 400).view)
        _, memory, extras = method.act(explore, memory, jax.tree.map(lambda x: x[0], view), key_of(i))
        taken.append(np.asarray(extras["best"]))
    np.testing.assert_array_equal(taken[0], taken[1])
    np.testing.assert_array_equal(taken[0], taken[2])
    assert 140 < taken[0].sum() < 260
    assert method.begin(plain, 3) == ()
    steps = random_steps(SEAT, np.random.default_rng(0), 4, 3)
    best = np.broadcast_to([True, False, False], (4, 3))
    extras = {"best": best, "own": {"log_prob": -jnp.ones((4, 3))}}
    batch = Batch(type(steps)(**{**vars(steps), "extras": extras}), jnp.ones((4, 3), bool), method.begin(explore, 3),
                  jnp.int32(0))  # fmt: skip
    update = jax.jit(method.update)
    after, _ = update(state, jax.tree.map(jnp.asarray, batch), key_of(1))
    assert int(after.played.seen) == 4
    np.testing.assert_array_equal(after.played.items[1][:4], steps.action[:, 0])
    others = jax.tree.map(
        lambda x: np.where(best, x, x + 1) if x.dtype == "float32" and x.shape == (4, 3) else x, steps
    )
    batch = Batch(type(steps)(**{**vars(others), "extras": extras}), batch.mask, batch.memory, batch.index)
    same, _ = update(state, jax.tree.map(jnp.asarray, batch), key_of(1))
    for a, b in zip(jax.tree.leaves(after.best.network), jax.tree.leaves(same.best.network), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_self_play_comes_to_rest_in_kuhn_poker():
    """Plain policy gradients circle; this ends near an equilibrium (uniform play is exploitable by 0.458)."""
    feed = Rollouts(length=32, envs=64)
    mirror = dataclasses.replace(mirror_descent(), hidden=(32, 32), minibatch=512, feed=feed)
    method = EachAlone(MMD(mirror))
    loop = CompiledLoop(Parts(method, EnvironmentReward(), Fixed()), KUHN, 64, [0, 1], 10**7)
    states = loop.learner(loop.advance(loop.init(), 600)).method
    assert max(found.exploitability for found in judge_method(method, states, KUHN.game)) < 0.05
