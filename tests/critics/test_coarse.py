"""Coarse to fine: bins against the recursion of the authors, targets and losses against loops in numpy."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
from cases import CASES
from worlds import BOX, Walk

from thespis.actors.ensembling import no_plans
from thespis.core.contracts import Mode
from thespis.core.errors import UserError
from thespis.core.samples import random_steps, random_view
from thespis.core.spaces import Box, Discrete
from thespis.critics.coarse import CoarseValue, Grid
from thespis.learners.coarse import in_a_row
from thespis.learners.gradient import AdamW, gradient_step
from thespis.methods.online.cqn import CQN

KEY, SPEC = made_up.quick_key(0), Walk().spec


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
    every = np.array(list(itertools.product(range(bins), repeat=levels)), "int32").T

    @jax.jit
    def both(actions, every):
        digits = grid.digits(actions)
        return digits, grid.centres(digits), grid.digits(grid.centres(every)[-1])

    digits, centres, again = jax.tree.map(np.asarray, both(actions, every))
    for i, action in enumerate(actions):
        wanted = cut(float(action), levels, bins)
        assert digits[:, i].tolist() == wanted[0]
        np.testing.assert_allclose(centres[:, i], wanted[1], atol=1e-6)
    np.testing.assert_allclose(centres[-1], np.clip(actions, -1, 1), atol=1.0 / bins**levels + 1e-6)
    np.testing.assert_array_equal(again, every)


@functools.cache
def made(sequence):
    """A net whose head is not 0."""

    @jax.jit
    def built(key):
        critic = CoarseValue(SPEC, (6, 6), Grid(2, 3), sequence, key)
        return eqx.tree_at(lambda c: c.head.weight, critic, jax.random.normal(key, critic.head.weight.shape))

    return built(KEY)


BEST, VALUE = eqx.filter_jit(CoarseValue.best), eqx.filter_jit(CoarseValue.__call__)


@jax.jit
def looked_for(critic, seen):
    """The best actions by every value of each level, where the digits so far have led."""
    encoded, digits = critic.encoder(seen), []
    for level in range(2):
        so_far = jnp.stack([*digits, *[jnp.ones(critic.shape, "int32")] * (2 - level)])
        centre = critic.grid.centres(so_far)[level]
        digits.append(jnp.argmax(critic.bins(encoded, level, centre), axis=-1))
    return jnp.stack(digits)


@pytest.mark.parametrize("sequence", [1, 3])
def test_the_best_actions_are_found_level_by_level(sequence):
    critic = made(sequence)
    places = list(itertools.product(range(sequence), range(2), (-0.9, 0.0, 0.9)))
    digits_of = jax.jit(critic.grid.digits)
    valued = eqx.filter_jit(lambda c, seen, many: jax.vmap(lambda actions: c(seen, actions))(many))
    for seed in range(4):
        seen = np.random.default_rng(seed).normal(size=3).astype("float32")
        found = np.asarray(BEST(critic, seen))
        changed = np.repeat(found[None], len(places), axis=0)
        for number, (step, dimension, other) in enumerate(places):
            changed[number, step, dimension] = other
        every = np.concatenate([found[None], changed])
        digits, values = np.asarray(digits_of(every)), np.asarray(valued(critic, seen, every))
        np.testing.assert_array_equal(digits[:, 0], looked_for(critic, seen))
        assert values.shape == (len(every), 2, *critic.shape)
        for number, (step, dimension, _) in enumerate(places, start=1):
            at = (step, dimension)
            same = digits[0][(number, *at)] == digits[0][(0, *at)]
            assert same or values[(number, 0, *at)] <= values[(0, 0, *at)]


def test_later_actions_do_not_change_the_values_of_earlier_ones_and_earlier_ones_do():
    critic, seen = made(3), np.array([0.1, -0.2, 0.3], "float32")
    actions = np.zeros((3, 3, 2), "float32")
    actions[1, 2], actions[2, 0] = 0.9, 0.9
    values, later, earlier = (np.asarray(VALUE(critic, seen, each)) for each in actions)
    np.testing.assert_array_equal(later[:, :2], values[:, :2])
    assert np.all(np.abs(earlier[1, 2] - values[1, 2]) > 1e-6)


def test_plans_are_weighed_as_a_table_of_all_of_them_is():
    rng, gain, size, table = np.random.default_rng(0), 0.3, 4, np.zeros((9, 13, 2))
    plans, filled = jax.tree.map(lambda x: np.asarray(x)[0], no_plans(1, size, 2)), np.zeros((9, 13), bool)
    step = jax.jit(lambda plans, plan: ((after := plans.after(plan)), after.now(gain)))
    for now in range(9):
        plan = rng.normal(size=(size, 2)).astype("float32")
        table[now, now : now + size], filled[now, now : now + size] = plan, True
        plans, found = step(plans, plan)
        said = table[:, now][filled[:, now]]  # the oldest first
        weights = np.exp(-gain * np.arange(len(said)))
        np.testing.assert_allclose(found, weights @ said / weights.sum(), atol=1e-5)


def test_a_row_of_actions_repeats_the_last_of_its_episode():
    actions = np.arange(10.0, dtype="float32").reshape(5, 2)
    found = jax.jit(lambda actions, last: in_a_row(actions, 1, last, 4))(actions, np.array(3, "int32"))
    np.testing.assert_array_equal(found, [[2, 3], [4, 5], [6, 7], [6, 7]])


def test_losses_and_targets_by_hand():
    """Of windows that end within the steps of reward, within the sequence, or not at all."""
    method = dataclasses.replace(CASES["cqn-as"].method, discount=0.8, hidden=(6, 6))
    critic, target = made(4), jax.tree.map(lambda x: np.asarray(x) * np.float32(0.7), made(4))

    @jax.jit
    def updated(critic, target, steps, key):
        state = dataclasses.replace(method.init(SPEC, key), critic=critic, target=target)
        batch = made_up.experience(method, state, steps, key)
        return batch, method.update(state, batch, key)[1], jax.random.split(key, 8)

    steps = random_steps(SPEC, np.random.default_rng(1), 4, 8)
    batch, report, keys = updated(critic, target, steps, KEY)
    batch = jax.tree.map(np.asarray, batch)
    ends = batch.mask.sum(0).tolist()
    assert {1, 4} <= set(ends) and len(set(ends)) > 2
    rows = [jax.tree.map(lambda x, i=row: x[:, i], batch.steps) for row in range(8)]
    last = [min(2, end) - 1 for end in ends]
    onward = np.stack([steps.next_view.observation[t] for steps, t in zip(rows, last, strict=True)])
    best = jax.jit(jax.vmap(lambda seen, key: critic.best(seen, key)))(onward, keys)
    valued = jax.jit(jax.vmap(lambda c, seen, actions: c(seen, actions), in_axes=(None, 0, 0)))
    later, losses = np.asarray(valued(target, onward, best)), []
    actions = np.stack(
        [[steps.action[min(k, end - 1)] for k in range(4)] for steps, end in zip(rows, ends, strict=True)]
    )
    said = np.asarray(valued(critic, batch.steps.view.observation[0], actions))
    for row, steps in enumerate(rows):
        earned, factor = 0.0, 1.0
        for t in range(min(2, ends[row])):
            earned += factor * float(steps.reward[t])
            factor *= 0.8 * (1.0 - float(steps.terminated[t]))
        losses.append(np.mean((said[row] - (earned + factor * later[row])) ** 2))
    assert report.metrics["critic_loss"] == pytest.approx(np.mean(losses), rel=1e-4)


def test_weights_decay_beside_adams_step():
    adam = AdamW(0.1, 0.5)
    moved = jax.jit(lambda at: gradient_step(adam, lambda x: (0.0 * x, ()), at, adam.init(at))[0])(np.float32(2.0))
    assert moved == pytest.approx(2.0 * (1 - 0.05))


def test_only_exploring_adds_noise_and_begins_at_random():
    method = dataclasses.replace(CASES["cqn"].method, noise=0.05)
    state = dataclasses.replace(jax.jit(lambda key: method.init(SPEC, key))(KEY), critic=made(1))
    state = dataclasses.replace(state, updates=jnp.array(1))
    views = random_view(SPEC, np.random.default_rng(0), (64,))

    @functools.partial(jax.jit, static_argnums=0)
    def played(mode, state):
        policy = method.policy(state, mode)
        return method.act(policy, method.begin(policy, 64), views, KEY)[0]

    best, sampled, explored = (played(mode, state) for mode in (Mode.EXPLOIT, Mode.SAMPLE, Mode.EXPLORE))
    np.testing.assert_array_equal(best, sampled)
    off = np.asarray(explored) - np.asarray(best)
    assert 0.03 < off.std() < 0.07 and np.abs(explored).max() <= 1.0
    first = played(Mode.EXPLORE, dataclasses.replace(state, updates=jnp.array(0)))
    assert np.abs(np.mean(first)) < 0.2 and 0.45 < np.std(first) < 0.7


def test_what_cannot_be_cut_is_said():
    for action in (Discrete(4), Box((2,))):
        with pytest.raises(UserError, match="bounded box"):
            CQN().init(Walk(action).spec, KEY)
    with pytest.raises(UserError, match="windows of 8 steps"):
        CQN(sequence=8).init(Walk(BOX).spec, KEY)
