"""Average reward: gradients that are enumerated, and values that solve a small chain's equations."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
from worlds import Walk

from thespis.core.records import Batch, Transition, View
from thespis.core.samples import random_steps
from thespis.core.spaces import Discrete
from thespis.envs.compiled.slow_walk import SlowWalk
from thespis.learners.adagrad import descent
from thespis.learners.average_reward import Learnt, one_step, stepper
from thespis.learners.trajectories import FixedLength, MultiLevel
from thespis.methods.online.mac import MAC

KEY = made_up.quick_key(0)


def weights(length, steps):
    """Of all the steps of a trajectory so long."""
    return np.array([length.weight(jnp.int32(i), jnp.int32(steps)) for i in range(steps)])


@pytest.mark.parametrize("levels", [1, 2, 4])
def test_expected_is_the_gradient_of_the_longest_trajectory(levels):
    """Over all that can be drawn, with its chance, on one stored sequence: exact. ``bar g_n`` as in the definition."""
    g = np.random.default_rng(levels).normal(size=2**levels)
    expected, steps = 0.0, 0.0
    for j in range(1, levels + 1):
        one = g[0] + 2**j * (g[: 2**j].mean() - g[: 2 ** (j - 1)].mean())
        assert weights(MultiLevel(levels), 2**j) @ g[: 2**j] == pytest.approx(one)
        expected, steps = expected + 2.0**-j * one, steps + 2.0**-j * 2**j
    beyond = 2.0**-levels
    expected, steps = expected + beyond * weights(MultiLevel(levels), 1)[0] * g[0], steps + beyond
    assert expected == pytest.approx(g.mean())
    assert steps == levels + beyond


def test_lengths_are_drawn_with_those_chances():
    drawn = np.asarray(jax.vmap(MultiLevel(3).draw)(jax.random.split(KEY, 20_000)))
    for steps, chance in ((2, 1 / 2), (4, 1 / 4), (8, 1 / 8), (1, 1 / 8)):
        assert (drawn == steps).mean() == pytest.approx(chance, abs=0.015)
    assert set(drawn) == {1, 2, 4, 8}


def test_a_fixed_length_is_a_mean():
    assert int(FixedLength(5).draw(KEY)) == 5
    np.testing.assert_allclose(weights(FixedLength(5), 5), 0.2, rtol=1e-6)


@pytest.mark.parametrize("kind", ["adagrad", "adagrad-norm", "sgd"])
def test_steps_fall_as_gradients_add_up(kind):
    given = np.random.default_rng(0).normal(size=(6, 3))
    given[:2] = 0.0  # nothing moves, and nothing breaks, before anything is known
    transform, total = descent(kind, 0.3), np.zeros(3)
    state = transform.init(jnp.zeros(3))
    for g in given:
        total += g**2 if kind == "adagrad" else (g**2).sum()
        step, state = transform.update(jnp.asarray(g, "float32"), state)
        wanted = g if kind == "sgd" else np.divide(g, np.sqrt(total), out=np.zeros(3), where=total > 0)
        np.testing.assert_allclose(step, -0.3 * wanted, rtol=1e-5, atol=1e-7)


def test_a_trajectory_makes_the_step_that_its_gradients_add_up_to():
    """Two worlds, four steps and then two of plain descent, against gradients of single steps summed by hand."""
    method = MAC(0.1, 0.2, MultiLevel(2), "sgd", (4,), dataclasses.replace(MAC().feed, envs=2))
    spec = Walk(Discrete(3)).spec
    state = jax.jit(lambda: method.init(spec, KEY))()
    update, grad = jax.jit(method.update), jax.jit(jax.grad(one_step, has_aux=True))
    experience = jax.jit(lambda state, steps: made_up.experience(method, state, steps, KEY))
    learnt = [state.learnt]
    for length in (4, 2):
        state = eqx.tree_at(lambda s: s.length, state, jnp.int32(length))
        total = jax.tree.map(jnp.zeros_like, state.learnt)
        for i in range(length):
            steps = random_steps(spec, np.random.default_rng(10 * length + i), 1, 2)
            batch = experience(state, steps)
            gradient, _ = grad(learnt[-1], batch)
            weight = (i == 0) + (1.0 if i >= length // 2 else -1.0)
            total = jax.tree.map(lambda t, g, w=weight: t + w * g, total, gradient)
            assert jax.tree.all(jax.tree.map(lambda x, y: (x == y).all(), state.learnt, learnt[-1]))
            state, report = update(state, batch, KEY)
            assert float(report.metrics["length"]) == length
        rate = Learnt(jax.tree.map(lambda _: 0.1, total.network), jnp.float32(0.2))
        rate = eqx.tree_at(lambda r: r.network.critic, rate, jax.tree.map(lambda _: 0.2, total.network.critic))
        wanted = jax.tree.map(lambda x, r, g: x - r * g, learnt[-1], rate, total)
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=2e-4, atol=1e-6), state.learnt, wanted)
        learnt.append(state.learnt)


def fixed_point(transition, paid):
    """Average reward and values (up to a constant) of a chain, by linear algebra."""
    n = len(paid)
    stationary = np.linalg.lstsq(np.vstack([transition.T - np.eye(n), np.ones(n)]), np.eye(n + 1)[-1], rcond=None)[0]
    average = stationary @ paid
    values = np.linalg.lstsq(np.eye(n) - transition, paid - average, rcond=None)[0]
    return average, values, stationary


def test_the_gradient_rests_where_the_chain_is_solved():
    """Every place of a walk as often as it is visited: critic and average do not move there, but for other values."""
    world = SlowWalk(places=5, stay=0.2, grip=0.0)
    transition = np.zeros((5, 5))
    for i in range(5):
        transition[i, i] += 0.2
        for to in (i - 1, i + 1):
            transition[i, np.clip(to, 0, 4)] += 0.4
    paid = transition @ np.array([world.lure, 0, 0, 0, 1.0])
    average, values, stationary = fixed_point(transition, paid)
    np.testing.assert_allclose(stationary, 0.2)
    network = MAC(hidden=()).init(world.spec, KEY).learnt.network
    grad = jax.jit(jax.grad(one_step, has_aux=True))

    def gradient(values, average):
        """The mean over every transition, with its chance: rows are (from, to), all at once."""
        solved = eqx.tree_at(lambda n: n.critic.out.weight, network, jnp.asarray(values, "float32")[:, None])
        pays = np.array([world.lure, 0, 0, 0, 1.0])
        pairs = [(i, j) for i in range(5) for j in range(5) for _ in range(round(transition[i, j] / 0.2))]
        one, other = (np.eye(5, dtype="float32")[list(x)][None] for x in zip(*pairs, strict=True))
        no = jnp.zeros((1, len(pairs)), bool)
        reward = jnp.asarray([[pays[j] for _, j in pairs]], "float32")
        extras = {"log_prob": jnp.zeros(reward.shape)}
        steps = Transition(View(one), jnp.zeros(no.shape, "int32"), reward, no, no, View(other), no, extras)
        batch = Batch(steps, ~no, network.begin(len(pairs)), jnp.int32(0))
        found, _ = grad(Learnt(solved, jnp.float32(average)), batch)
        return float(abs(found.network.critic.out.weight).max()), float(abs(found.average))

    assert max(gradient(values, average)) < 1e-6
    assert max(gradient(values + 3.0, average)) < 1e-6  # values are known up to a constant
    assert gradient(values * 1.1, average)[0] > 1e-3
    assert gradient(values, average + 0.1)[1] > 0.05


def test_an_end_is_worth_the_average():
    """Episodes of one step: the error is ``r - average - V(s)``, whatever is seen last."""
    spec = Walk(Discrete(3)).spec
    method = MAC(hidden=(), feed=dataclasses.replace(MAC().feed, envs=4))
    state = made_up.begun(method, spec)
    steps = random_steps(spec, np.random.default_rng(0), 1, 4)
    steps = dataclasses.replace(steps, terminated=jnp.ones((1, 4), bool), truncated=jnp.zeros((1, 4), bool))
    batch = jax.jit(lambda state, steps: made_up.experience(method, state, steps, KEY))(state, steps)
    learnt = eqx.tree_at(lambda x: x.average, state.learnt, jnp.float32(0.3))
    value = jax.vmap(lambda o: learnt.network.critic((), o)[0])(batch.steps.view.observation[0])
    _, metrics = jax.jit(one_step)(learnt, batch)
    wanted = np.mean(np.square(np.asarray(steps.reward[0]) - 0.3 - np.asarray(value))) / 2
    assert float(metrics["critic_loss"]) == pytest.approx(wanted, rel=1e-4)


def test_parts_have_step_sizes_of_their_own():
    learnt = MAC(hidden=(3,)).init(Walk(Discrete(3)).spec, KEY).learnt
    transform = stepper(learnt, "adagrad-norm", 0.5, 0.25)
    ones = jax.tree.map(jnp.ones_like, learnt)
    step, _ = transform.update(ones, transform.init(learnt), learnt)
    size = lambda tree: np.sqrt(sum(float((x**2).sum()) for x in jax.tree.leaves(tree)))  # noqa: E731
    assert size((step.network.body, step.network.head)) == pytest.approx(0.5)
    assert size(step.network.critic) == pytest.approx(0.25)
    assert size(step.average) == pytest.approx(0.25)
