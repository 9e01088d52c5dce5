"""Coarse to fine: bins against the recursion of the authors, targets and losses against loops in numpy."""

from __future__ import annotations

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES
from worlds import BOX, Walk

from thespis.actors.ensembling import no_plans
from thespis.core.conformance import _experience
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.keys import key_of
from thespis.core.samples import random_steps, random_view
from thespis.core.spaces import Box, Discrete
from thespis.critics.coarse import CoarseValue, Grid
from thespis.learners.coarse import in_a_row
from thespis.learners.gradient import AdamW, gradient_step
from thespis.methods.online.cqn import CQN

KEY, SPEC = key_of(0), Walk().spec


def cut(action, levels, bins):
    """Interval by interval: the bin on each level, and the middle of what it was cut from."""
    low, high, digits, middles = -1.0, 1.0, [], []
    for _ in range(levels):
        middles.append((low + high) / 2)
        edges = np.linspace(low, high, bins + 1)
        digit = int(np.clip(np.searchsorted(edges, action, side="right") - 1, 0, bins - 1))
        low, high = edges[digit], edges[digit + 1]
        digits.append(digit)
    return digits, [*middles, (low + high) / 2]


@pytest.mark.parametrize(("levels", "bins"), [(1, 2), (3, 5), (2, 3)])
def test_bins_are_those_of_the_recursion(levels, bins):
    grid, actions = Grid(levels, bins), np.random.default_rng(0).uniform(-1.2, 1.2, 40).astype("float32")
    digits = grid.digits(jnp.asarray(actions))
    centres = grid.centres(digits)
    for i, action in enumerate(actions):
        wanted = cut(float(action), levels, bins)
        assert digits[:, i].tolist() == wanted[0]
        np.testing.assert_allclose(centres[:, i], wanted[1], atol=1e-6)
    np.testing.assert_allclose(centres[-1], np.clip(actions, -1, 1), atol=1.0 / bins**levels + 1e-6)
    every = jnp.array(list(itertools.product(range(bins), repeat=levels))).T
    np.testing.assert_array_equal(grid.digits(grid.centres(every)[-1]), every)


def made(sequence):
    """A net whose head is not 0."""
    critic = CoarseValue(SPEC, (6, 6), Grid(2, 3), sequence, KEY)
    return eqx.tree_at(lambda c: c.head.weight, critic, jax.random.normal(KEY, critic.head.weight.shape))


@pytest.mark.parametrize("sequence", [1, 3])
def test_the_best_actions_are_found_level_by_level(sequence):
    critic = made(sequence)
    best, value = eqx.filter_jit(type(critic).best), eqx.filter_jit(type(critic).__call__)
    for seed in range(4):
        seen = jax.random.normal(jax.random.key(seed), (3,))
        found, encoded, digits = best(critic, seen), critic.encoder(seen), []
        for level in range(2):  # the values of each level, where the digits so far have led
            so_far = jnp.stack([*digits, *[jnp.ones(critic.shape, "int32")] * (2 - level)])
            centre = critic.grid.centres(so_far)[level]
            digits.append(jnp.argmax(critic.bins(encoded, level, centre), axis=-1))
        np.testing.assert_array_equal(critic.grid.digits(found), jnp.stack(digits))
        values = value(critic, seen, found)
        assert values.shape == (2, *critic.shape)
        for step, dimension, other in itertools.product(range(sequence), range(2), (-0.9, 0.0, 0.9)):
            changed = found.at[step, dimension].set(other)
            same = critic.grid.digits(changed)[0] == critic.grid.digits(found)[0]
            there = value(critic, seen, changed)[0, step, dimension]
            assert bool(same[step, dimension]) or there <= values[0, step, dimension]


def test_later_actions_do_not_change_the_values_of_earlier_ones_and_earlier_ones_do():
    critic, seen = made(3), jnp.array([0.1, -0.2, 0.3])
    actions = jnp.zeros((3, 2))
    values = critic(seen, actions)
    later, earlier = critic(seen, actions.at[2].set(0.9)), critic(seen, actions.at[0].set(0.9))
    np.testing.assert_array_equal(later[:, :2], values[:, :2])
    assert jnp.all(jnp.abs(earlier[1, 2] - values[1, 2]) > 1e-6)


def test_plans_are_weighed_as_a_table_of_all_of_them_is():
    rng, gain, size, table = np.random.default_rng(0), 0.3, 4, np.zeros((9, 13, 2))
    plans, filled = jax.tree.map(lambda x: x[0], no_plans(1, size, 2)), np.zeros((9, 13), bool)
    for now in range(9):
        plan = rng.normal(size=(size, 2)).astype("float32")
        table[now, now : now + size], filled[now, now : now + size] = plan, True
        plans = plans.after(jnp.asarray(plan))
        said = table[:, now][filled[:, now]]  # the oldest first
        weights = np.exp(-gain * np.arange(len(said)))
        np.testing.assert_allclose(plans.now(gain), weights @ said / weights.sum(), atol=1e-5)


def test_a_row_of_actions_repeats_the_last_of_its_episode():
    actions = jnp.arange(10.0).reshape(5, 2)
    found = in_a_row(actions, 1, jnp.array(3), 4)
    np.testing.assert_array_equal(found, [[2, 3], [4, 5], [6, 7], [6, 7]])


def test_losses_and_targets_by_hand():
    """Of windows that end within the steps of reward, within the sequence, or not at all."""
    method = dataclasses.replace(CASES["cqn-as"].method, discount=0.8, hidden=(6, 6))
    state = method.init(SPEC, KEY)
    critic, target = made(4), jax.tree.map(lambda x: x * 0.7, made(4))
    state = dataclasses.replace(state, critic=critic, target=target)
    batch = _experience(method, state, random_steps(SPEC, np.random.default_rng(1), 4, 8), KEY)
    ends = batch.mask.sum(0).tolist()
    assert {1, 4} <= set(ends) and len(set(ends)) > 2
    _, report = jax.jit(method.update)(state, batch, KEY)
    keys, losses = jax.random.split(KEY, 8), []
    chosen, valued = eqx.filter_jit(type(critic).best), eqx.filter_jit(type(critic).__call__)
    for row in range(8):
        earned, factor, steps = 0.0, 1.0, jax.tree.map(lambda x, i=row: x[:, i], batch.steps)
        for t in range(min(2, ends[row])):
            earned += factor * float(steps.reward[t])
            factor *= 0.8 * (1.0 - float(steps.terminated[t]))
            onward = steps.next_view.observation[t]
        best = chosen(critic, onward, keys[row])
        actions = jnp.stack([steps.action[min(k, ends[row] - 1)] for k in range(4)])
        wanted = earned + factor * valued(target, onward, best)
        losses.append(np.mean((valued(critic, steps.view.observation[0], actions) - wanted) ** 2))
    assert report.metrics["critic_loss"] == pytest.approx(np.mean(losses), rel=1e-4)


def test_weights_decay_beside_adams_step():
    moved, *_ = gradient_step(
        AdamW(0.1, 0.5), lambda x: (0.0 * x, ()), jnp.array(2.0), AdamW(0.1, 0.5).init(jnp.array(2.0))
    )
    assert moved == pytest.approx(2.0 * (1 - 0.05))


def test_only_exploring_adds_noise_and_begins_at_random():
    method = dataclasses.replace(CASES["cqn"].method, noise=0.05)
    state = dataclasses.replace(method.init(SPEC, KEY), critic=made(1), updates=jnp.array(1))
    views = jax.tree.map(jnp.asarray, random_view(SPEC, np.random.default_rng(0), (64,)))

    def played(mode, state):
        policy = method.policy(state, mode)
        return jax.jit(lambda: method.act(policy, method.begin(policy, 64), views, KEY)[0])()

    best, sampled, explored = (played(mode, state) for mode in (Mode.EXPLOIT, Mode.SAMPLE, Mode.EXPLORE))
    np.testing.assert_array_equal(best, sampled)
    off = np.asarray(explored - best)
    assert 0.03 < off.std() < 0.07 and np.abs(explored).max() <= 1.0
    first = played(Mode.EXPLORE, dataclasses.replace(state, updates=jnp.array(0)))
    assert np.abs(np.mean(first)) < 0.2 and 0.45 < np.std(first) < 0.7


def test_what_cannot_be_cut_is_said():
    for action in (Discrete(4), Box((2,))):
        with pytest.raises(UserError, match="bounded box"):
            CQN().init(Walk(action).spec, KEY)
    with pytest.raises(UserError, match="windows of 8 steps"):
        CQN(sequence=8).init(Walk(BOX).spec, KEY)
