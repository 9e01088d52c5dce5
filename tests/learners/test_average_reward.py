"""The average reward: updates against the paper's equations, and a linear-quadratic world whose answer is known."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import made_up
import numpy as np
import pytest
from jaxtyping import Array
from worlds import Walk

import thespis
from thespis.cli.doctor_checks.learning import train
from thespis.core.conformance import check_environment
from thespis.core.contracts import Mode
from thespis.core.feeds import Replay, Rollouts
from thespis.core.records import Batch, EnvSpec, TimeStep, Transition, View
from thespis.core.samples import random_steps
from thespis.core.spaces import Box
from thespis.envs.compiled.lasting import Lasting
from thespis.envs.compiled.multi_goal import MultiGoal
from thespis.envs.probes.probe import Probe
from thespis.envs.registry import compiled
from thespis.evidence.measures import average_reward
from thespis.learners.normalisers import Centred
from thespis.methods.online.aro_ddpg import ARODDPG
from thespis.methods.online.ppo import PPO

KEY, SPEC = made_up.quick_key(0), Walk().spec
METHOD = ARODDPG(hidden=(5,), learning_rate=1e-2, average_rate=0.1, target_rate=0.1)


def sampled(time, *, ends=True, shift=0.0):
    """Windows of random steps, as replay hands them out; their rewards moved by ``shift``."""
    steps = random_steps(SPEC, np.random.default_rng(0), time, 6)
    if not ends:
        nowhere = jax.device_put(np.zeros((time, 6), bool))
        steps = eqx.tree_at(lambda s: (s.terminated, s.truncated), steps, (nowhere, nowhere))
    steps = eqx.tree_at(lambda s: s.reward, steps, jax.device_put(np.asarray(steps.reward) + np.float32(shift)))
    return Batch(steps, *jax.device_put((np.ones((time, 6), bool), (), np.int32(1))))


def begun(average=0.7):
    """A state in which nothing is equal to anything else."""
    now, other = (made_up.begun(METHOD, SPEC, i) for i in (1, 2))
    slow_average, now_average, updates = jax.device_put((np.float32(average), np.float32(average + 0.2), np.int32(1)))
    slow = eqx.tree_at(lambda s: s.average, other.slow, slow_average)
    return eqx.tree_at(lambda s: (s.slow, s.now.average, s.updates), now, (slow, now_average, updates))


UPDATE = jax.jit(METHOD.update)


def gradient(opt):
    """What the first step of Adam was given."""
    return jax.tree.map(lambda m: np.asarray(m) / 0.1, opt[0].mu)


def test_an_update_against_the_equations_of_the_paper():
    batch, state = sampled(1), begun()
    new, report = UPDATE(state, batch, KEY)
    o, a, r, then = (np.asarray(x)[0] for x in (batch.steps.view.observation, batch.steps.action, batch.steps.reward,
                                    batch.steps.next_view.observation))  # fmt: skip
    alive = 1.0 - np.asarray(batch.steps.terminated, "float32")[0]

    def q(critics, i, o, a):
        return jax.vmap(lambda o, a: jax.tree.map(lambda x: x[i], critics)(o, a[None])[0])(o, a)

    def lesser(critics, o, a):
        return jnp.minimum(q(critics, 0, o, a), q(critics, 1, o, a))

    @jax.jit
    def gradients(state, new):
        following = alive * lesser(state.slow.critics, then, jax.vmap(state.slow.actor)(then))

        def xi(critics):  # equation 24, without its half: Adam's steps do not depend on it
            return sum(jnp.mean((r - 0.7 - q(critics, i, o, a) + following) ** 2) for i in (0, 1))

        def xi_3(average):  # equation 25
            return 0.5 * jnp.mean((r - average - lesser(state.slow.critics, o, a) + following) ** 2)

        def climbed(actor):  # equation 28, with critics after their step
            return -jnp.mean(lesser(new.now.critics, o, jax.vmap(actor)(o)))

        before = state.now
        return jax.grad(climbed)(before.actor), jax.grad(xi)(before.critics), jax.grad(xi_3)(before.average)

    wanted = gradients(state, new)
    found = tuple(gradient(opt) for opt in new.opts)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5), found, wanted)
    moved = jax.tree.map(
        lambda s, n: 0.9 * np.asarray(s) + 0.1 * np.asarray(n), state.slow, new.now
    )  # equations 30 to 32
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6), new.slow, moved)
    assert float(report.metrics["average_reward"]) == float(new.now.average) != np.float32(0.9)
    assert bool((alive == 0).any()) and bool((alive == 1).any())
    waits, _ = UPDATE(state, eqx.tree_at(lambda b: b.index, batch, jax.device_put(np.int32(2))), KEY)
    for kept, before in ((waits.slow, state.slow), (waits.now.actor, state.now.actor)):
        jax.tree.map(np.testing.assert_array_equal, kept, before)


@pytest.mark.parametrize("time", [1, 3])
def test_what_is_paid_everywhere_moves_the_average_and_nothing_else(time):
    plain, _ = UPDATE(begun(), sampled(time), KEY)
    richer, _ = UPDATE(begun(0.7 + 5.0), sampled(time, shift=5.0), KEY)
    for a, b in ((plain.now.actor, richer.now.actor), (plain.now.critics, richer.now.critics)):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-4), a, b)
    assert float(richer.now.average) - float(plain.now.average) == pytest.approx(5.0, abs=1e-4)
    wrong, _ = UPDATE(begun(), sampled(time, shift=5.0), KEY)
    biases = (np.asarray(x.now.critics.out.bias) for x in (wrong, plain))
    assert np.abs(np.subtract(*biases)).max() > 1e-3


def test_centred_rewards():
    scale, first = Centred(0.25), np.array([[1.0, 2.0], [3.0, 6.0]], "float32")

    @jax.jit
    def told(first):
        state = scale.update(scale.init(), first, first > 9, 1.0)
        later = scale.update(state, first + 4.0, first > 9, 1.0, first < 3)  # the mean of 5 and 6
        return scale.apply(scale.init(), first), scale.unit(state), scale.apply(state, first), later[0]

    fresh, unit, centred, later = told(first)
    assert fresh.tolist() == first.tolist() and unit == 1.0
    assert centred.tolist() == [[-2.0, -1.0], [0.0, 3.0]]
    assert later == pytest.approx(3.0 + 0.25 * 2.5)


def test_centred_an_actor_critic_does_not_mind_what_is_paid_everywhere():
    method = PPO(hidden=(5,), discount=1.0, epochs=1, minibatch=12, rewards=Centred(), feed=Rollouts(4, envs=3))
    state = made_up.begun(method, SPEC)

    @jax.jit
    def network(state, steps, shift):
        extras = {"log_prob": jnp.zeros((4, 3))}
        steps = dataclasses.replace(steps, reward=steps.reward + shift, extras=extras)
        batch = Batch(steps, jnp.ones((4, 3), bool), state.network.begin(3), jnp.int32(0))
        scales = method.assessor().learn_scales(state.scales, batch)
        state = eqx.tree_at(lambda s: s.scales, state, scales)
        return method.update(state, batch, KEY)[0].network

    steps = random_steps(SPEC, np.random.default_rng(0), 4, 3)
    learnt = [network(state, steps, shift) for shift in (0.0, 5.0)]
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), *learnt)


# -- the linear-quadratic world ------------------------------------------------------------------------------


class Place(eqx.Module):
    x: Array
    time: Array


class Linear(eqx.Module):
    """``x' = A x + B u + noise``, paid ``-(x² + R u²)``; nothing ends it but a limit, after which it starts anew."""

    spec = EnvSpec("linear", Box((1,)), Box((1,), -1.0, 1.0), time_limit=50)

    def reset(self, params, key):
        state = Place(jax.random.uniform(key, (1,), minval=-1.0), jnp.int32(0))
        return state, self.answer(state, jnp.zeros(()))

    def step(self, state, action, key):
        paid = -(state.x[0] ** 2 + R * action[0] ** 2)
        x = A * state.x + B * action + NOISE * jax.random.normal(key, (1,))
        state = Place(x, state.time + 1)
        return state, self.answer(state, paid)

    def answer(self, state, paid):
        return TimeStep(state.x, paid, jnp.zeros((), bool), state.time >= 50)


A, B, R, NOISE = 0.9, 0.5, 0.1, 0.3


def riccati():
    p = 1.0
    for _ in range(500):
        p = 1.0 + A**2 * p - (A * B * p) ** 2 / (R + B**2 * p)
    return p


def test_the_world_of_the_oracle_pays_what_theory_says():
    """The best gain earns ``-P noise²`` a step; a numpy walk under it agrees."""
    check_environment(Linear(), ticks=60)
    p, rng = riccati(), np.random.default_rng(0)
    gain, x, total = A * B * p / (R + B**2 * p), 0.0, 0.0
    for noise in rng.normal(size=200_000).tolist():
        u = -gain * x
        total -= x**2 + R * u**2
        x = A * x + B * u + NOISE * noise
    assert total / 200_000 == pytest.approx(-p * NOISE**2, rel=0.02)


@pytest.mark.slow
def test_it_finds_the_average_the_differential_values_and_the_best_gain():
    feed = Replay(capacity=40_000, batch=128, warmup=200, envs=4)
    method = ARODDPG(learning_rate=1e-3, average_rate=1e-3, hidden=(32, 32), feed=feed)
    loop, carry = train(method, Probe("linear", Linear(), "", lambda discount: []), 40_000, envs=4, seeds=2)
    p, states = riccati(), loop.learner(carry).method
    gain = A * B * p / (R + B**2 * p)
    x, off = (g.ravel()[:, None] for g in np.meshgrid(np.linspace(-0.6, 0.6, 5), np.linspace(-0.3, 0.3, 3)))
    u = off - gain * x  # where it has been: around what it does
    wanted = -(x**2 + R * u**2 + p * (A * x + B * u) ** 2)[:, 0]
    nothing = jnp.zeros(len(x), bool)
    view, number = View(jnp.asarray(x, "float32")), jnp.zeros(len(x))
    episode = Transition(view, jnp.asarray(u, "float32"), number, nothing, nothing, view, nothing)
    for seed in range(2):
        state = jax.tree.map(lambda leaf, seed=seed: leaf[seed], states)
        assert float(state.now.average) == pytest.approx(-p * NOISE**2, rel=0.1)
        found = np.asarray(method.judge(state, episode).value)
        assert np.abs((found - found.mean()) - (wanted - wanted.mean())).max() < 0.2 * np.ptp(wanted)
        policy = method.policy(state, Mode.EXPLOIT)
        answers, _, _ = method.act(policy, method.begin(policy, len(x)), view, KEY)
        np.testing.assert_allclose(answers, -gain * x, atol=0.2)  # who looks at no next step stands still


# -- the long run ------------------------------------------------------------------------------------------------


def test_a_lasting_world_goes_on_beyond_its_limit_and_ends_where_it_ends():
    check_environment(Lasting(MultiGoal(limit=5), 12), ticks=30)
    world = Lasting(compiled("gymnax:Pendulum-v1"), 300)

    def walked(world, action, count):
        def walk(key):
            state, _ = world.reset(world.spec.params, key)
            step = lambda s, k: world.step(s, jnp.array(action), k)  # noqa: E731
            return jax.lax.scan(step, state, jax.random.split(key, count))[1]

        return jax.tree.map(np.asarray, jax.jit(walk)(KEY))

    steps = walked(world, [0.0], 300)
    assert steps.truncated.tolist() == [False] * 299 + [True] and world.spec.time_limit == 300
    steps = walked(Lasting(MultiGoal(limit=2), 9), [1.0, 0.0], 6)
    assert steps.terminated.any() and not steps.truncated.any()


@pytest.mark.slow
def test_the_reward_per_step_of_a_run(tmp_path):
    """The probe pays 1 a step."""
    small = PPO(hidden=(4,), feed=Rollouts(8, envs=2))
    run = thespis.train(small, "probe:constant", steps=64, seeds=2, episodes=1, out=tmp_path / "run")
    assert average_reward(40, 3).of(run).tolist() == [1.0, 1.0]
