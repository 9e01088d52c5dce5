"""Coarse-to-fine Q networks (CQN): bins against a recursion, greedy actions, targets and losses against loops."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import synthetic_batches
from method_cases import CASES
from small_envs import BOX, Walk

from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.laws.random_samples import random_transitions, random_view
from thespis.core.spaces import Box, Discrete
from thespis.learners.optim.optimizers import AdamW, gradient_step
from thespis.papers.action_sequence_critic_rl.coarse_to_fine import (
    ActionBins,
    CoarseToFineQ,
    action_sequence,
    init_temporal_ensemble,
    margin_loss,
)
from thespis.papers.action_sequence_critic_rl.method import CQN

KEY, SPEC = synthetic_batches.quick_key(0), Walk().spec


def bins_of(action, levels, bins):
    """Bin indices on each level, and centers of the intervals, by recursive subdivision."""
    low, high, digits, centers = -1.0, 1.0, [], []
    for _ in range(levels):
        centers.append((low + high) / 2)
        edges = np.linspace(low, high, bins + 1)
        digit = int(np.clip(np.searchsorted(edges, action, side="right") - 1, 0, bins - 1))
        low, high = edges[digit], edges[digit + 1]
        digits.append(digit)
    return digits, [*centers, (low + high) / 2]


@pytest.mark.parametrize(("levels", "bins"), [(1, 2), (3, 5), (2, 3)])
def test_bins_match_the_recursion(levels, bins):
    action_bins, actions = ActionBins(levels, bins), np.random.default_rng(0).uniform(-1.2, 1.2, 40).astype("float32")
    all_digits = np.array(list(itertools.product(range(bins), repeat=levels)), "int32").T

    @jax.jit
    def both(actions, all_digits):
        digits = action_bins.encode_action(actions)
        return (
            digits,
            action_bins.level_centers(digits),
            action_bins.encode_action(action_bins.level_centers(all_digits)[-1]),
        )

    digits, centers, round_trip = jax.tree.map(np.asarray, both(actions, all_digits))
    for i, action in enumerate(actions):
        expected = bins_of(float(action), levels, bins)
        assert digits[:, i].tolist() == expected[0]
        np.testing.assert_allclose(centers[:, i], expected[1], atol=1e-6)
    np.testing.assert_allclose(centers[-1], np.clip(actions, -1, 1), atol=1.0 / bins**levels + 1e-6)
    np.testing.assert_array_equal(round_trip, all_digits)


@functools.cache
def make_critic(sequence):
    """A network with a nonzero head."""

    @jax.jit
    def build(key):
        critic = CoarseToFineQ(SPEC, (6, 6), ActionBins(2, 3), sequence, key)
        return eqx.tree_at(lambda c: c.head.weight, critic, jax.random.normal(key, critic.head.weight.shape))

    return build(KEY)


BEST, VALUE = eqx.filter_jit(CoarseToFineQ.greedy_actions), eqx.filter_jit(CoarseToFineQ.__call__)


@jax.jit
def exhaustive_greedy(critic, obs):
    """Greedy digits by an argmax over all bin values on each level, given the digits of the levels before."""
    features, digits = critic.encoder(obs), []
    for level in range(2):
        so_far = jnp.stack([*digits, *[jnp.ones(critic.shape, "int32")] * (2 - level)])
        center = critic.action_bins.level_centers(so_far)[level]
        digits.append(jnp.argmax(critic.bin_values(features, level, center), axis=-1))
    return jnp.stack(digits)


@pytest.mark.long
@pytest.mark.parametrize("sequence", [1, 3])
def test_greedy_actions_are_chosen_level_by_level(sequence):
    critic = make_critic(sequence)
    changes = list(itertools.product(range(sequence), range(2), (-0.9, 0.0, 0.9)))
    digits_of = jax.jit(critic.action_bins.encode_action)
    values_of = eqx.filter_jit(lambda c, obs, sequences: jax.vmap(lambda actions: c(obs, actions))(sequences))
    for seed in range(4):
        obs = np.random.default_rng(seed).normal(size=3).astype("float32")
        best = np.asarray(BEST(critic, obs))
        changed = np.repeat(best[None], len(changes), axis=0)
        for index, (step, dimension, value) in enumerate(changes):
            changed[index, step, dimension] = value
        sequences = np.concatenate([best[None], changed])
        digits, values = np.asarray(digits_of(sequences)), np.asarray(values_of(critic, obs, sequences))
        np.testing.assert_array_equal(digits[:, 0], exhaustive_greedy(critic, obs))
        assert values.shape == (len(sequences), 2, *critic.shape)
        for index, (step, dimension, _) in enumerate(changes, start=1):
            position = (step, dimension)
            same_digit = digits[0][(index, *position)] == digits[0][(0, *position)]
            assert same_digit or values[(index, 0, *position)] <= values[(0, 0, *position)]


def test_values_depend_on_earlier_actions_only():
    critic, obs = make_critic(3), np.array([0.1, -0.2, 0.3], "float32")
    actions = np.zeros((3, 3, 2), "float32")
    actions[1, 2], actions[2, 0] = 0.9, 0.9
    values, later, earlier = (np.asarray(VALUE(critic, obs, sequence)) for sequence in actions)
    np.testing.assert_array_equal(later[:, :2], values[:, :2])
    assert np.all(np.abs(earlier[1, 2] - values[1, 2]) > 1e-6)


def test_temporal_ensemble_matches_a_table_of_all_plans():
    rng, gain, size, table = np.random.default_rng(0), 0.3, 4, np.zeros((9, 13, 2))
    plans, filled = (
        jax.tree.map(lambda x: np.asarray(x)[0], init_temporal_ensemble(1, size, 2)),
        np.zeros((9, 13), bool),
    )
    step = jax.jit(lambda plans, plan: ((updated := plans.add_chunk(plan)), updated.ensemble_action(gain)))
    for t in range(9):
        plan = rng.normal(size=(size, 2)).astype("float32")
        table[t, t : t + size], filled[t, t : t + size] = plan, True
        plans, result = step(plans, plan)
        proposals = table[:, t][filled[:, t]]  # the oldest first
        weights = np.exp(-gain * np.arange(len(proposals)))
        np.testing.assert_allclose(result, weights @ proposals / weights.sum(), atol=1e-5)


def test_a_very_negative_coefficient_leaves_the_newest_plan_alone():
    plans = jax.tree.map(lambda x: x[0], init_temporal_ensemble(1, 3, 2))
    for chunk in np.random.default_rng(0).normal(size=(5, 3, 2)).astype("float32"):
        plans = plans.add_chunk(jnp.asarray(chunk))
        np.testing.assert_allclose(plans.ensemble_action(-100.0), chunk[0], atol=1e-6)


def test_action_sequence_repeats_the_last_action_of_its_episode():
    actions = np.arange(10.0, dtype="float32").reshape(5, 2)
    result = jax.jit(lambda actions, last: action_sequence(actions, 1, last, 4))(actions, np.array(3, "int32"))
    np.testing.assert_array_equal(result, [[2, 3], [4, 5], [6, 7], [6, 7]])


@pytest.mark.long
def test_loss_and_targets_match_a_loop():
    """Windows that end within the n-step rewards, within the action sequence, or not at all."""
    method = dataclasses.replace(CASES["cqn-as"].method, discount=0.8, hidden_sizes=(6, 6))
    critic, target = make_critic(4), jax.tree.map(lambda x: np.asarray(x) * np.float32(0.7), make_critic(4))

    @jax.jit
    def run_update(critic, target, steps, key):
        state = dataclasses.replace(method.init(SPEC, key), critic=critic, target_critic=target)
        batch = synthetic_batches.collect_batch(method, state, steps, key)
        return batch, method.update(state, batch, key)[1], jax.random.split(key, 8)

    steps = random_transitions(SPEC, np.random.default_rng(1), 4, 8)
    batch, report, keys = run_update(critic, target, steps, KEY)
    batch = jax.tree.map(np.asarray, batch)
    ends = batch.mask.sum(0).tolist()
    assert {1, 4} <= set(ends) and len(set(ends)) > 2
    rows = [jax.tree.map(lambda x, i=row: x[:, i], batch.steps) for row in range(8)]
    last = [min(2, end) - 1 for end in ends]
    next_obs = np.stack([steps.next_view.observation[t] for steps, t in zip(rows, last, strict=True)])
    best = jax.jit(jax.vmap(lambda obs, key: critic.greedy_actions(obs, key)))(next_obs, keys)
    values_of = jax.jit(jax.vmap(lambda c, obs, actions: c(obs, actions), in_axes=(None, 0, 0)))
    next_values, losses = np.asarray(values_of(target, next_obs, best)), []
    actions = np.stack(
        [[steps.action[min(k, end - 1)] for k in range(4)] for steps, end in zip(rows, ends, strict=True)]
    )
    values = np.asarray(values_of(critic, batch.steps.view.observation[0], actions))
    for row, steps in enumerate(rows):
        n_step_return, factor = 0.0, 1.0
        for t in range(min(2, ends[row])):
            n_step_return += factor * float(steps.reward[t])
            factor *= 0.8 * (1.0 - float(steps.terminated[t]))
        losses.append(np.mean((values[row] - (n_step_return + factor * next_values[row])) ** 2))
    assert report.metrics["critic_loss"] == pytest.approx(np.mean(losses), rel=1e-4)


def test_margin_loss_matches_a_loop():
    rng = np.random.default_rng(0)
    values = rng.normal(scale=0.2, size=(2, 3, 2, 4)).astype("float32")
    digits = rng.integers(0, 4, size=(2, 3, 2)).astype("int32")
    losses = [
        max(0.0, 0.1 + values[(*place, other)] - values[(*place, digits[place])])
        for place in np.ndindex(2, 3, 2)
        for other in range(4)
    ]
    assert jax.jit(margin_loss)(values, digits, 0.1) == pytest.approx(np.mean(losses), rel=1e-5)


@pytest.mark.long
def test_margin_loss_is_on_demonstrations_alone():
    method = dataclasses.replace(CASES["cqn"].method, bc_coef=2.0, bc_margin=0.3, hidden_sizes=(6, 6))
    state = dataclasses.replace(jax.jit(lambda key: method.init(SPEC, key))(KEY), critic=make_critic(1))
    steps = random_transitions(SPEC, np.random.default_rng(1), 4, 8)
    batch = synthetic_batches.collect_batch(method, state, steps, KEY)
    batch = dataclasses.replace(batch, sources=(("demos", 3), ("own", 5)))
    report = jax.jit(method.update)(state, batch, KEY)[1]

    @jax.jit
    def loss(obs, action):
        return margin_loss(*state.critic.all_bin_values(obs, action.reshape(1, -1)), 0.3)

    first = jax.tree.map(lambda x: np.asarray(x[0]), (batch.steps.view.observation, batch.steps.action))
    expected = np.mean([loss(first[0][row], first[1][row]) for row in range(3)])
    assert report.metrics["margin_loss"] == pytest.approx(expected, rel=1e-4)


def test_adamw_decays_weights_apart_from_the_gradient():
    adam = AdamW(0.1, 0.5)
    updated = jax.jit(lambda x: gradient_step(adam, lambda x: (0.0 * x, ()), x, adam.init(x))[0])(np.float32(2.0))
    assert updated == pytest.approx(2.0 * (1 - 0.05))


@pytest.mark.long
def test_only_exploration_is_noisy_and_initially_random():
    method = dataclasses.replace(CASES["cqn"].method, exploration_noise=0.05)
    state = dataclasses.replace(jax.jit(lambda key: method.init(SPEC, key))(KEY), critic=make_critic(1))
    state = dataclasses.replace(state, num_updates=jnp.array(1))
    views = random_view(SPEC, np.random.default_rng(0), (64,))

    @functools.partial(jax.jit, static_argnums=0)
    def act(mode, state):
        policy = method.policy(state, mode)
        return method.act(policy, method.init_memory(policy, 64), views, KEY)[0]

    greedy, sampled, explored = (act(mode, state) for mode in (Mode.EXPLOIT, Mode.SAMPLE, Mode.EXPLORE))
    np.testing.assert_array_equal(greedy, sampled)
    noise = np.asarray(explored) - np.asarray(greedy)
    assert 0.03 < noise.std() < 0.07 and np.abs(explored).max() <= 1.0
    initial = act(Mode.EXPLORE, dataclasses.replace(state, num_updates=jnp.array(0)))
    assert np.abs(np.mean(initial)) < 0.2 and 0.45 < np.std(initial) < 0.7


def test_unsupported_action_spaces_are_rejected():
    for action in (Discrete(4), Box((2,))):
        with pytest.raises(UserError, match="bounded box"):
            CQN().init(Walk(action).spec, KEY)
    with pytest.raises(UserError, match="windows of 8 steps"):
        CQN(action_sequence_length=8).init(Walk(BOX).spec, KEY)
