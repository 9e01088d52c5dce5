"""Recurrent replay: values, targets, losses and priorities step by step, memory as the actor had it, and a T-maze."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from method_cases import CASES
from small_envs import VECTOR

import thespis
from thespis.core.laws.assertions import assert_same_bits
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch, EnvSpec
from thespis.core.spaces import Discrete
from thespis.critics.recurrent_q import RecurrentQ
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import PrioritizedSampler
from thespis.data.sequence_replay import SequenceReplay
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.off_policy.recurrent_q import ValueRescaling, sequence_priorities, sequence_q_values
from thespis.methods.online.r2d2 import R2D2
from thespis.nets.body import GRU
from thespis.objectives.returns import sliding_n_step_returns
from thespis.objectives.value_rescaling import rescale_value, unscale_value
from thespis.papers.rtrl_actor_critic.envs import TMaze
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components

SPEC, ROWS, BURN_IN, LENGTH = EnvSpec("choices", VECTOR, Discrete(4), has_action_mask=True), 5, 3, 6
METHOD = R2D2(
    hidden_sizes=(8,),
    memory=GRU(4),
    dueling=True,
    discount=0.9,
    n_step=3,
    max_grad_norm=1e9,
    feed=SequenceReplay(batch_size=ROWS, burn_in=BURN_IN, sequence_length=LENGTH, sampler=PrioritizedSampler()),
)


def test_rescaling_against_its_formulas_in_double_precision():
    x, epsilon = np.concatenate([np.linspace(-300, 300, 41), [1e-3, -1e-3]]), 1e-3
    expected = np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + epsilon * x
    np.testing.assert_allclose(rescale_value(jnp.asarray(x, "float32"), epsilon), expected, rtol=1e-4, atol=1e-7)
    y = np.linspace(-30, 30, 41)
    inverse = np.sign(y) * (((np.sqrt(1 + 4 * epsilon * (np.abs(y) + 1 + epsilon)) - 1) / (2 * epsilon)) ** 2 - 1)
    np.testing.assert_allclose(unscale_value(jnp.asarray(y, "float32"), epsilon), inverse, rtol=1e-5, atol=1e-6)
    for small in (1e-3, 1e-2, 0.0):
        values = jnp.asarray(x, "float32")
        np.testing.assert_allclose(unscale_value(rescale_value(values, small), small), values, rtol=1e-5, atol=1e-6)
    assert ValueRescaling().unscale(ValueRescaling().rescale(jnp.asarray(7.0))) == pytest.approx(7.0, rel=1e-5)


def n_step_target(t, reward, next_value, terminated, done, discount, n):
    total, factor = 0.0, 1.0
    for k in range(t, len(reward)):
        total += factor * reward[k]
        factor *= discount
        if terminated[k]:
            return total
        if done[k] or k == t + n - 1 or k == len(reward) - 1:
            return total + factor * next_value[k]
    raise AssertionError


@pytest.mark.parametrize("n", [1, 2, 3, 20])
def test_sliding_returns_against_a_sum_for_every_step(n):
    rng = np.random.default_rng(n)
    for _ in range(5):
        reward, next_value = rng.normal(size=(2, 12))
        end = rng.uniform(size=12)
        terminated, done = end < 0.15, end < 0.3
        ours = sliding_n_step_returns(
            *map(jnp.asarray, (reward.astype("float32"), next_value.astype("float32"), terminated, done)), 0.9, n
        )
        expected = [n_step_target(t, reward, next_value, terminated, done, 0.9, n) for t in range(12)]
        np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-5)


def random_batch(seed=0):
    """Sequences with ends of episodes in the burn-in and after it, legal actions, and a memory of the actor's."""
    rng = np.random.default_rng(seed)
    steps = random_transitions(SPEC, rng, BURN_IN + LENGTH, ROWS)
    terminated, truncated, first = (np.array(x) for x in (steps.terminated, steps.truncated, steps.is_first))
    terminated[:], truncated[:], first[:] = False, False, False
    terminated[1, 0] = first[2, 0] = truncated[5, 1] = first[6, 1] = terminated[6, 2] = first[7, 2] = True
    first[0, 3] = True
    legal = np.array(steps.view.action_mask)
    action = np.array([[rng.choice(np.flatnonzero(legal[t, b])) for b in range(ROWS)] for t in range(len(legal))])
    steps = dataclasses.replace(
        steps, terminated=terminated, truncated=truncated, is_first=first, action=action.astype("int32")
    )
    memory = rng.normal(size=(ROWS, 4)).astype("float32")
    weights, indices = rng.uniform(0.2, 1, ROWS).astype("float32"), jnp.arange(ROWS)
    steps, memory, weights = jax.tree.map(jnp.asarray, (steps, memory, weights))
    return Batch(steps, jnp.ones((BURN_IN + LENGTH, ROWS), bool), memory, jnp.int32(0), weights, indices)


def different_target(method, seed=1):
    state = method.init(SPEC, jax.random.key(0))
    return eqx.tree_at(lambda s: s.target_critic, state, method.init(SPEC, jax.random.key(seed)).critic)


def step_by_step(critic: RecurrentQ, batch, row):
    """Values at every step and at its next observation, by one call of the network at a time."""
    memory, values, next_values = batch.memory[row], [], []
    for t in range(BURN_IN + LENGTH):
        view, next_view = (jax.tree.map(lambda x, t=t: x[t, row], v) for v in (batch.steps.view, batch.steps.next_view))
        memory = jnp.zeros_like(memory) if batch.steps.is_first[t, row] else memory
        value, memory = critic(memory, view.observation)
        next_value = np.asarray(critic(memory, next_view.observation)[0], "float64")
        values.append(np.asarray(value, "float64"))
        next_values.append(np.where(next_view.action_mask, next_value, -np.inf))
    return np.stack(values), np.stack(next_values)


def h(x, epsilon=1e-3):
    return np.sign(x) * (np.sqrt(np.abs(x) + 1) - 1) + epsilon * x


def h_inverse(y, epsilon=1e-3):
    return np.sign(y) * (((np.sqrt(1 + 4 * epsilon * (np.abs(y) + 1 + epsilon)) - 1) / (2 * epsilon)) ** 2 - 1)


@pytest.mark.long
@pytest.mark.parametrize("double_q", [True, False])
@pytest.mark.parametrize("rescaled", [True, False])
def test_losses_and_priorities_written_out(double_q, rescaled):
    method = dataclasses.replace(METHOD, double_q=double_q, value_rescaling=ValueRescaling() if rescaled else None)
    state, batch = different_target(method), random_batch()
    scale, unscale = (h, h_inverse) if rescaled else (lambda x: x, lambda x: x)
    errors = np.zeros((LENGTH, ROWS))
    for row in range(ROWS):
        values, online = step_by_step(state.critic, batch, row)
        _, target = step_by_step(state.target_critic, batch, row)
        best = (online if double_q else target).argmax(axis=1)
        next_value = unscale(np.take_along_axis(target, best[:, None], 1)[:, 0])
        own = [np.asarray(x)[BURN_IN:, row] for x in (batch.steps.reward, batch.steps.terminated, batch.steps.done)]
        for t in range(LENGTH):
            goal = n_step_target(t, own[0], next_value[BURN_IN:], own[1], own[2], 0.9, 3)
            errors[t, row] = values[BURN_IN + t, batch.steps.action[BURN_IN + t, row]] - scale(goal)
    loss = np.mean(0.5 * errors**2)
    _, report = jax.jit(method.update)(state, batch, jax.random.key(0))
    assert float(report.metrics["critic_loss"]) == pytest.approx(loss, rel=1e-3)
    priorities = 0.9 * np.abs(errors).max(axis=0) + 0.1 * np.abs(errors).mean(axis=0)
    np.testing.assert_allclose(report.priorities, priorities, rtol=1e-3)
    np.testing.assert_allclose(sequence_priorities(jnp.asarray([[1.0], [-3.0]]), 0.5), [0.5 * 3 + 0.5 * 2], rtol=1e-6)


def changed(batch, where, **fields):
    """The batch with noise added at steps ``where`` of the named fields."""
    steps, rng = batch.steps, np.random.default_rng(7)
    for name in fields:
        if name == "observation":
            x = np.array(steps.view.observation)
            x[where] += rng.normal(size=x[where].shape)
            steps = eqx.tree_at(lambda s: s.view.observation, steps, jnp.asarray(x))
        else:
            x = np.array(getattr(steps, name))
            x[where] = x[where] + 1.0 if x.dtype.kind == "f" else (x[where] + 1) % 4
            steps = dataclasses.replace(steps, **{name: jnp.asarray(x)})
    return dataclasses.replace(batch, steps=steps)


@pytest.mark.long
def test_the_burn_in_warms_up_memory_and_is_not_learned_from():
    state, batch, update = different_target(METHOD), random_batch(), jax.jit(METHOD.update)
    learned, key = update(state, batch, jax.random.key(0))[0].critic, jax.random.key(0)
    before = slice(0, BURN_IN)
    other = update(state, changed(batch, before, reward=True, action=True), key)[0].critic
    assert_same_bits(learned, other, "rewards and actions of the burn-in")
    for where, field in ((before, "observation"), (slice(BURN_IN, None), "reward")):
        other = update(state, changed(batch, where, **{field: True}), key)[0].critic
        assert np.abs(np.asarray(other.advantage_out.weight) - np.asarray(learned.advantage_out.weight)).max() > 0


def test_no_gradient_reaches_into_the_burn_in():
    """The gradient is that of the steps after it, from a constant memory."""
    state, batch = different_target(METHOD), random_batch()
    after = jax.tree.map(lambda x: x[BURN_IN:], batch.steps)

    def summed(critic, memory, steps, burn_in):
        values, next_values = sequence_q_values(critic, memory, steps, burn_in)
        return jnp.sum(jnp.where(steps.view.action_mask[burn_in:], values, 0.0)) + jnp.sum(
            jnp.where(steps.next_view.action_mask[burn_in:], next_values, 0.0)
        )

    @jax.jit
    def gradients(critic):
        memory = batch.memory
        for t in range(BURN_IN):
            memory = jnp.where(batch.steps.is_first[t][:, None], 0.0, memory)
            _, memory = jax.vmap(critic)(memory, batch.steps.view.observation[t])
        gradient = jax.grad(summed)
        constant = gradient(critic, jax.lax.stop_gradient(memory), after, 0)
        return (
            gradient(critic, batch.memory, batch.steps, BURN_IN),
            constant,
            gradient(critic, batch.memory, batch.steps, 0),
        )

    ours, expected, through = gradients(state.critic)
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)
    assert np.abs(ours.body.core.weight_hh - through.body.core.weight_hh).max() > 1e-3


@pytest.mark.long
def test_memory_of_a_sequence_is_used_or_zero():
    state, batch, key = different_target(METHOD), random_batch(), jax.random.key(0)
    update = jax.jit(METHOD.update)
    zero = update(state, dataclasses.replace(batch, memory=jnp.zeros_like(batch.memory)), key)[1]
    none = update(state, dataclasses.replace(batch, memory=()), key)[1]
    assert_same_bits(zero, none, "no memory is a memory of zeros")
    assert np.abs(np.asarray(update(state, batch, key)[1].priorities) - np.asarray(zero.priorities)).max() > 1e-3


@pytest.mark.long
def test_stored_memory_is_what_the_actor_had():
    """Stored before each step of the warm-up, where the network is the initial one: against one step at a time."""
    case = CASES["r2d2"]
    method = dataclasses.replace(case.method, feed=dataclasses.replace(case.method.feed, learning_starts=1_000))
    loop = CompiledLoop(Components(method, EnvironmentReward(), FixedCurriculum()), case.env, 3, [0], 2_000)
    carry = loop.advance(loop.init(), 7)
    steps = jax.tree.map(lambda x: np.asarray(x)[0], loop.snapshot(carry)["carry"].learner.store.steps)
    critic = jax.tree.map(lambda x: x[0], loop.learner_state(carry).method.critic)
    stored, nonzero = steps.extras.memory, 0
    assert stored.shape[1:] == (3, 4)
    for env in range(3):
        memory = jnp.zeros(4)
        for t in range(14):
            memory = jnp.zeros(4) if steps.is_first[t, env] else memory
            np.testing.assert_allclose(stored[t, env], memory, atol=1e-5)
            nonzero += int(np.abs(memory).max() > 0.01)
            _, memory = critic(memory, jax.tree.map(lambda x, t=t, env=env: x[t, env], steps.view.observation))
    assert steps.is_first[1:14].any() and nonzero > 10


T_MAZE = R2D2(
    hidden_sizes=(32,),
    memory=GRU(32),
    learning_rate=1e-3,
    adam_epsilon=1e-8,
    discount=0.95,
    n_step=3,
    target_update_interval=100,
    epsilon_decay_updates=1_500.0,
    feed=SequenceReplay(
        buffer_size=50_000, batch_size=32, update_interval=2, num_envs=8, sequence_length=12, burn_in=4
    ),
)


def with_feed(method, **settings):
    return dataclasses.replace(method, feed=dataclasses.replace(method.feed, **settings))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "solved"),
    [
        (T_MAZE, True),
        (with_feed(T_MAZE, sampler=PrioritizedSampler(beta_updates=2_500)), True),
        (dataclasses.replace(T_MAZE, memory=None, feed=dataclasses.replace(T_MAZE.feed, stored_memory=False)), False),
    ],
    ids=["memory", "priorities", "no memory"],
)
def test_the_turn_of_a_t_maze_needs_memory(method, solved, tmp_path):
    """Six steps after the cue; without memory no policy turns correctly in more than half of the episodes."""
    run = thespis.train(method, env=TMaze(6, time_limit=50), steps=40_000, episodes=100, out=tmp_path / "run")
    success = np.mean(np.asarray(run.final_scores["greedy"]["scores"]) > 3.0)
    assert success >= 0.95 if solved else 0.3 < success < 0.7, success
