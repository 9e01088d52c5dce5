"""Flows over actions: inverses, densities and soft values against numerical integrals and automatic differentiation."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from worlds import Walk

from thespis.actors.flow import FlowActor
from thespis.cli.doctor_checks.learning import train
from thespis.core.errors import UserError
from thespis.core.feeds import Replay
from thespis.core.keys import key_of
from thespis.core.records import Batch, EnvSpec, TimeStep, View
from thespis.core.samples import random_steps
from thespis.core.spaces import Box, Discrete
from thespis.envs.probes.probe import Probe
from thespis.learners.normalisers import RunningScale
from thespis.methods.online.meow import MEow
from thespis.nets.coupling import Couplings

KEY = key_of(0)
VIEW = View(jnp.array([0.4, -1.0, 0.3]))


def wild(tree, key=KEY):
    """The same net with weights that leave nothing at 0."""
    leaves, shape = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    moved = [x + 0.4 * jax.random.normal(k, x.shape) for x, k in zip(leaves, keys, strict=True)]
    return jax.tree.unflatten(shape, moved)


def flow(shape, log_std=(-1.0, 0.3)):
    """The flow of one state."""
    spec = EnvSpec("here", Box((3,)), Box(shape, -1.0, 1.0))
    actor = FlowActor(spec, KEY, pairs=2, shifts=2, hidden=(8, 8), shift_hidden=(6,), log_std=log_std)
    return wild(actor)(VIEW)


@pytest.mark.parametrize("size", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_couplings_go_back_and_keep_volumes(size):
    net = wild(Couplings(size, 3, 2, (8,), KEY))
    z, context = jax.random.normal(KEY, (size,)), VIEW.observation
    y = net(z, context)
    assert jnp.abs(y - z).max() > 0.1
    np.testing.assert_allclose(net.inverse(y, context), z, atol=1e-5)
    derivative = jax.jacfwd(lambda z: net(z, context))(z)
    assert float(jnp.linalg.det(derivative)) == pytest.approx(1.0, abs=1e-4)
    if size > 1:
        assert jnp.abs(derivative - jnp.eye(size)).max() > 0.05
    assert jnp.abs(net(z, context + 1.0) - y).max() > 0.05


@pytest.mark.parametrize("shape", [(2, 2), pytest.param((1,), marks=pytest.mark.slow)])
def test_the_density_is_that_of_the_samples(shape):
    """By the change of variables, with the derivative of the whole way from the normal to the action."""
    chosen = flow(shape)
    z = 0.3 * jax.random.normal(KEY, chosen.log_std.shape)
    action, derivative = chosen._through(z), jax.jacfwd(lambda z: chosen._through(z).ravel())(z)
    normal = jax.scipy.stats.norm.logpdf(z, scale=jnp.exp(chosen.log_std)).sum()
    wanted = float(normal - jnp.linalg.slogdet(derivative)[1])
    assert action.shape == shape and float(chosen.log_prob(action)) == pytest.approx(wanted, abs=1e-3)
    assert chosen.sample(KEY).shape == chosen.mode().shape == shape
    np.testing.assert_allclose(chosen.mode(), chosen._through(jnp.zeros_like(z)))


@pytest.mark.parametrize(("size", "cells"), [(1, 4_000), pytest.param(2, 400, marks=pytest.mark.slow)])
def test_soft_values_are_log_integrals_of_soft_action_values(size, cells):
    alpha, chosen = 0.7, flow((size,))
    edge = (np.arange(cells) + 0.5) / cells * 2 - 1
    grid = jnp.asarray(np.stack(np.meshgrid(*[edge] * size), axis=-1).reshape(-1, size), "float32")
    q = alpha * np.asarray(jax.jit(jax.vmap(chosen.action_values))(grid), np.float64)
    cell = (2 / cells) ** size
    found = alpha * np.log(np.exp(q / alpha).sum(axis=0) * cell)
    np.testing.assert_allclose(found, alpha * chosen.values(), atol=0.01)
    assert abs(found[0] - found[1]) > 0.05  # the shifts differ
    density = np.exp(jax.jit(jax.vmap(chosen.log_prob))(grid))
    assert density.sum() * cell == pytest.approx(1.0, abs=0.01)
    samples = jax.vmap(chosen.sample)(jax.random.split(KEY, 20_000))
    np.testing.assert_allclose(samples.mean(axis=0), (density[:, None] * grid).sum(axis=0) * cell, atol=0.02)


def test_at_the_bounds_all_is_finite():
    chosen, slope = flow((2,)), jax.grad(lambda a, c: c.energy(a))
    for action in ([1.0, -1.0], [0.99999, 0.0], [0.0, 0.0]):
        action = jnp.array(action)
        assert jnp.isfinite(chosen.log_prob(action)) and jnp.isfinite(slope(action, chosen)).all()
    with pytest.raises(UserError, match="one box"):
        MEow().init(Walk(Discrete(3)).spec, KEY)
    with pytest.raises(UserError):
        MEow().init(EnvSpec("open", Box((3,)), Box((2,))), KEY)


# -- the method ------------------------------------------------------------------------------------------------


def test_an_update_against_the_only_loss():
    method, spec = MEow(hidden=(6,), shift_hidden=(5,), alpha=0.4, discount=0.9, max_gradient_norm=1e9), Walk().spec
    steps = random_steps(spec, np.random.default_rng(0), 1, 5)
    batch = Batch(steps, jnp.ones((1, 5), bool), (), jnp.int32(0))
    state = method.init(spec, KEY)
    state = eqx.tree_at(lambda s: (s.actor, s.target), state, (wild(state.actor), wild(state.target, key_of(1))))
    new, report = jax.jit(method.update)(state, batch, KEY)

    def missed(actor):
        def one(step):
            then, now = state.target(step.next_view), actor(step.view)
            v = jnp.minimum(*(then.log_normaliser() + then.shifts)) * 0.4
            target = step.reward + 0.9 * jnp.where(step.terminated, 0.0, v)
            q = 0.4 * (now.log_prob(step.action) + now.log_normaliser() + now.shifts)
            return jnp.sum((q - target) ** 2) / 2

        return jnp.mean(jax.vmap(one)(jax.tree.map(lambda x: x[0], steps)))

    assert float(report.metrics["critic_loss"]) == pytest.approx(float(jax.jit(missed)(state.actor)), rel=1e-3)
    wanted, found = jax.jit(jax.grad(missed))(state.actor), jax.tree.map(lambda m: m / 0.1, _moments(new.opt))
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-2, atol=2e-2), found, wanted)
    copy = jax.tree.map(lambda t, a: 0.995 * t + 0.005 * a, state.target, new.actor)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), new.target, copy)
    assert 0 < int(steps.terminated.sum()) < 5


def _moments(opt):
    """First moments of Adam, wherever they lie in the chain."""
    return next(part.mu for part in jax.tree.leaves(opt, is_leaf=lambda x: hasattr(x, "mu")) if hasattr(part, "mu"))


def test_judged_values_are_those_of_the_flow():
    method, spec = MEow(hidden=(6,), shift_hidden=(5,), observations=RunningScale()), Walk().spec
    state = method.init(spec, KEY)
    state = eqx.tree_at(lambda s: s.actor, state, wild(state.actor))
    episode = jax.tree.map(lambda x: x[:, 0], random_steps(spec, np.random.default_rng(0), 4, 1))
    critique = method.judge(state, episode)
    chosen = state.actor(method.scaled(state.scale, jax.tree.map(lambda x: x[2], episode.view)))
    least = 0.25 * float(chosen.action_values(episode.action[2]).min())
    assert critique.value is not None and critique.value[2] == pytest.approx(least, rel=1e-4)
    beyond = least - 0.25 * float(chosen.values().min())
    assert critique.advantage is not None and critique.advantage[2] == pytest.approx(beyond, rel=1e-3)


class Bandit(eqx.Module):
    """One step, paid by how near the action is to one of two places; the best policy at any alpha is known."""

    spec = EnvSpec("bandit", Box((1,), 0.0, 0.0), Box((2,), -1.0, 1.0))

    def reset(self, params, key):
        return jnp.zeros(()), self.answer(jnp.zeros(()), False)

    def step(self, state, action, key):
        return state, self.answer(paid(action), True)

    def answer(self, reward, ended):
        return TimeStep(jnp.zeros(1), reward, jnp.asarray(ended), jnp.zeros((), bool))


def paid(action):
    nearest = jnp.minimum(*(jnp.sum((action - jnp.array([x, 0.0])) ** 2) for x in (-0.5, 0.5)))
    return 3.0 * jnp.exp(-nearest / 0.15)


@pytest.mark.slow
def test_it_finds_the_soft_optimum_of_a_choice_with_two_best_actions():
    feed = Replay(capacity=40_000, batch=128, warmup=500, envs=4)
    method = MEow(alpha=1.0, log_std=(-2.0, 1.0), learning_rate=3e-3, hidden=(32, 32), shift_hidden=(8,), feed=feed)
    loop, carry = train(method, Probe("bandit", Bandit(), "", lambda discount: []), 12_000, envs=4, seeds=2)
    edge = (np.arange(200) + 0.5) / 100 - 1
    grid = np.stack(np.meshgrid(edge, edge), axis=-1).reshape(-1, 2)
    best = np.exp(np.asarray(jax.vmap(paid)(jnp.asarray(grid, "float32")), np.float64)) * 0.01**2
    for seed in range(2):
        chosen = jax.tree.map(lambda leaf, s=seed: leaf[s], loop.learner(carry).method).actor(View(jnp.zeros(1)))
        samples = jax.vmap(chosen.sample)(jax.random.split(KEY, 4_000))
        value, across = float(chosen.values().min()), np.asarray(samples[:, 0])
        soft = jax.vmap(paid)(samples) - jax.vmap(chosen.log_prob)(samples)
        assert value == pytest.approx(float(soft.mean()), abs=0.1)  # its own soft value, short of the best one by a KL
        assert np.log(best.sum()) - 0.35 < value < np.log(best.sum()) + 0.05
        assert 0.35 < (across > 0).mean() < 0.65
        assert (np.abs(across) < 0.2).mean() < 0.19  # 0.11 is best, 0.2 uniform, and one mode in the middle has more
