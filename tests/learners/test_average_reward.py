"""Average-reward learning: updates against the paper's equations, and a linear-quadratic problem."""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import synthetic_batches
from jaxtyping import Array
from small_envs import Walk

import thespis
from thespis.cli.doctor_checks.probe_training import train_on_probe
from thespis.core.contracts import Mode
from thespis.core.laws.components import check_environment
from thespis.core.laws.random_samples import random_transitions
from thespis.core.records import Batch, EnvSpec, TimeStep, Transition, View
from thespis.core.spaces import Box
from thespis.data.feeds import Replay, Rollouts
from thespis.envs.compiled.multi_goal import MultiGoal
from thespis.envs.compiled.time_limit import TimeLimit
from thespis.envs.probes.probe import Probe
from thespis.envs.registry import make_compiled
from thespis.evidence.measures import average_reward
from thespis.learners.optim.normalizers import RewardCentering
from thespis.methods.online.ppo import PPO
from thespis.papers.aro_ddpg.method import ARODDPG

KEY, SPEC = synthetic_batches.quick_key(0), Walk().spec
METHOD = ARODDPG(hidden_sizes=(5,), learning_rate=1e-2, average_reward_learning_rate=0.1, tau=0.1)


def replay_batch(time, *, ends=True, shift=0.0):
    """A replay batch of random steps with rewards shifted by ``shift``; ``ends`` allows ends of episodes."""
    steps = random_transitions(SPEC, np.random.default_rng(0), time, 6)
    if not ends:
        no_ends = jax.device_put(np.zeros((time, 6), bool))
        steps = eqx.tree_at(lambda s: (s.terminated, s.truncated), steps, (no_ends, no_ends))
    steps = eqx.tree_at(lambda s: s.reward, steps, jax.device_put(np.asarray(steps.reward) + np.float32(shift)))
    return Batch(steps, *jax.device_put((np.ones((time, 6), bool), (), np.int32(1))))


def random_state(average=0.7):
    """A state whose online and target parameters all differ."""
    online, other = (synthetic_batches.init_state(METHOD, SPEC, i) for i in (1, 2))
    target_average, online_average, updates = jax.device_put(
        (np.float32(average), np.float32(average + 0.2), np.int32(1))
    )
    target = eqx.tree_at(lambda s: s.average_reward, other.target, target_average)
    return eqx.tree_at(
        lambda s: (s.target, s.online.average_reward, s.num_updates), online, (target, online_average, updates)
    )


UPDATE = jax.jit(METHOD.update)


def gradient(opt):
    """The gradient of the first Adam step, from its first moment."""
    return jax.tree.map(lambda m: np.asarray(m) / 0.1, opt[0].mu)


@pytest.mark.long
def test_update_matches_the_equations_of_the_paper():
    batch, state = replay_batch(1), random_state()
    new, report = UPDATE(state, batch, KEY)
    o, a, r, next_o = (
        np.asarray(x)[0]
        for x in (
            batch.steps.view.observation,
            batch.steps.action,
            batch.steps.reward,
            batch.steps.next_view.observation,
        )
    )
    alive = 1.0 - np.asarray(batch.steps.terminated, "float32")[0]

    def q(critics, i, o, a):
        return jax.vmap(lambda o, a: jax.tree.map(lambda x: x[i], critics)(o, a[None])[0])(o, a)

    def min_q(critics, o, a):
        return jnp.minimum(q(critics, 0, o, a), q(critics, 1, o, a))

    @jax.jit
    def gradients(state, new):
        next_value = alive * min_q(state.target.critics, next_o, jax.vmap(state.target.actor)(next_o))

        def xi(critics):  # equation 24, without its half: Adam's steps do not depend on it
            return sum(jnp.mean((r - 0.7 - q(critics, i, o, a) + next_value) ** 2) for i in (0, 1))

        def xi_3(average):  # equation 25
            return 0.5 * jnp.mean((r - average - min_q(state.target.critics, o, a) + next_value) ** 2)

        def actor_loss(actor):  # equation 28, with critics after their step
            return -jnp.mean(min_q(new.online.critics, o, jax.vmap(actor)(o)))

        before = state.online
        return jax.grad(actor_loss)(before.actor), jax.grad(xi)(before.critics), jax.grad(xi_3)(before.average_reward)

    expected = gradients(state, new)
    gradients_of_update = tuple(gradient(opt) for opt in new.opt_states)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-5), gradients_of_update, expected)
    polyak = jax.tree.map(
        lambda s, n: 0.9 * np.asarray(s) + 0.1 * np.asarray(n), state.target, new.online
    )  # equations 30 to 32
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6), new.target, polyak)
    assert float(report.metrics["average_reward"]) == float(new.online.average_reward) != np.float32(0.9)
    assert bool((alive == 0).any()) and bool((alive == 1).any())
    skipped, _ = UPDATE(state, eqx.tree_at(lambda b: b.update_index, batch, jax.device_put(np.int32(2))), KEY)
    for unchanged, before in ((skipped.target, state.target), (skipped.online.actor, state.online.actor)):
        jax.tree.map(np.testing.assert_array_equal, unchanged, before)


@pytest.mark.long
@pytest.mark.parametrize("time", [1, 3])
def test_constant_reward_shift_moves_only_the_average(time):
    plain, _ = UPDATE(random_state(), replay_batch(time), KEY)
    shifted, _ = UPDATE(random_state(0.7 + 5.0), replay_batch(time, shift=5.0), KEY)
    for a, b in ((plain.online.actor, shifted.online.actor), (plain.online.critics, shifted.online.critics)):
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-4), a, b)
    assert float(shifted.online.average_reward) - float(plain.online.average_reward) == pytest.approx(5.0, abs=1e-4)
    mismatched, _ = UPDATE(random_state(), replay_batch(time, shift=5.0), KEY)
    biases = (np.asarray(x.online.critics.out.bias) for x in (mismatched, plain))
    assert np.abs(np.subtract(*biases)).max() > 1e-3


def test_reward_centering():
    scale, first = RewardCentering(0.25), np.array([[1.0, 2.0], [3.0, 6.0]], "float32")

    @jax.jit
    def center(first):
        state = scale.update(scale.init(), first, first > 9, 1.0)
        average = scale.update(state, first + 4.0, first > 9, 1.0, first < 3)  # mean 5.5: only rewards 5 and 6 count
        return (
            scale.normalize(scale.init(), first),
            scale.reward_scale(state),
            scale.normalize(state, first),
            average[0],
        )

    fresh, unit, centered, average = center(first)
    assert fresh.tolist() == first.tolist() and unit == 1.0
    assert centered.tolist() == [[-2.0, -1.0], [0.0, 3.0]]
    assert average == pytest.approx(3.0 + 0.25 * 2.5)


@pytest.mark.long
def test_centered_actor_critic_ignores_a_constant_reward_shift():
    method = PPO(
        hidden_sizes=(5,),
        discount=1.0,
        num_epochs=1,
        minibatch_size=12,
        reward_normalizer=RewardCentering(),
        feed=Rollouts(4, num_envs=3),
    )
    state = synthetic_batches.init_state(method, SPEC)

    @jax.jit
    def updated_network(state, steps, shift):
        extras = {"log_prob": jnp.zeros((4, 3))}
        steps = dataclasses.replace(steps, reward=steps.reward + shift, extras=extras)
        batch = Batch(steps, jnp.ones((4, 3), bool), state.network.init_memory(3), jnp.int32(0))
        normalizer_states = method.rollout_processor().update_normalizers(state.normalizer_states, batch)
        state = eqx.tree_at(lambda s: s.normalizer_states, state, normalizer_states)
        return method.update(state, batch, KEY)[0].network

    steps = random_transitions(SPEC, np.random.default_rng(0), 4, 3)
    networks = [updated_network(state, steps, shift) for shift in (0.0, 5.0)]
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, atol=1e-5), *networks)


# -- the linear-quadratic problem ----------------------------------------------------------------------------


class LinearState(eqx.Module):
    x: Array
    time: Array


class LinearEnv(eqx.Module):
    """``x' = A x + B u + noise`` with reward ``-(x² + R u²)``. Episodes end only by a time limit."""

    spec = EnvSpec("linear", Box((1,)), Box((1,), -1.0, 1.0), time_limit=50)

    def reset(self, params, key):
        state = LinearState(jax.random.uniform(key, (1,), minval=-1.0), jnp.int32(0))
        return state, self.time_step(state, jnp.zeros(()))

    def step(self, state, action, key):
        reward = -(state.x[0] ** 2 + R * action[0] ** 2)
        x = A * state.x + B * action + NOISE * jax.random.normal(key, (1,))
        state = LinearState(x, state.time + 1)
        return state, self.time_step(state, reward)

    def time_step(self, state, reward):
        return TimeStep(state.x, reward, jnp.zeros((), bool), state.time >= 50)


A, B, R, NOISE = 0.9, 0.5, 0.1, 0.3


def riccati():
    p = 1.0
    for _ in range(500):
        p = 1.0 + A**2 * p - (A * B * p) ** 2 / (R + B**2 * p)
    return p


@pytest.mark.long
def test_linear_quadratic_reward_matches_theory():
    """The optimal gain earns ``-P noise²`` per step on average; a numpy simulation agrees."""
    check_environment(LinearEnv(), num_steps=60)
    p, rng = riccati(), np.random.default_rng(0)
    gain, x, total = A * B * p / (R + B**2 * p), 0.0, 0.0
    for noise in rng.normal(size=200_000).tolist():
        u = -gain * x
        total -= x**2 + R * u**2
        x = A * x + B * u + NOISE * noise
    assert total / 200_000 == pytest.approx(-p * NOISE**2, rel=0.02)


@pytest.mark.slow
def test_average_reward_values_and_policy_are_learned():
    feed = Replay(buffer_size=40_000, batch_size=128, learning_starts=200, num_envs=4)
    method = ARODDPG(learning_rate=1e-3, average_reward_learning_rate=1e-3, hidden_sizes=(32, 32), feed=feed)
    loop, carry = train_on_probe(
        method, Probe("linear", LinearEnv(), "", lambda discount: []), 40_000, num_envs=4, num_seeds=2
    )
    p, states = riccati(), loop.learner_state(carry).method
    gain = A * B * p / (R + B**2 * p)
    x, deviation = (g.ravel()[:, None] for g in np.meshgrid(np.linspace(-0.6, 0.6, 5), np.linspace(-0.3, 0.3, 3)))
    u = deviation - gain * x  # actions near those of the optimal policy
    expected = -(x**2 + R * u**2 + p * (A * x + B * u) ** 2)[:, 0]
    no_ends = jnp.zeros(len(x), bool)
    view, rewards = View(jnp.asarray(x, "float32")), jnp.zeros(len(x))
    episode = Transition(view, jnp.asarray(u, "float32"), rewards, no_ends, no_ends, view, no_ends)
    for seed in range(2):
        state = jax.tree.map(lambda leaf, seed=seed: leaf[seed], states)
        assert float(state.online.average_reward) == pytest.approx(-p * NOISE**2, rel=0.1)
        values = np.asarray(method.judge(state, episode).value)
        assert np.abs((values - values.mean()) - (expected - expected.mean())).max() < 0.2 * np.ptp(expected)
        policy = method.policy(state, Mode.EXPLOIT)
        actions, _, _ = method.act(policy, method.init_memory(policy, len(x)), view, KEY)
        np.testing.assert_allclose(actions, -gain * x, atol=0.2)  # a greedy policy of the immediate reward would act 0


# -- episodes without a limit -------------------------------------------------------------------------------


@pytest.mark.long
def test_time_limit_is_replaced_and_terminations_are_kept():
    check_environment(TimeLimit(MultiGoal(time_limit=5), 12), num_steps=30)
    env = TimeLimit(make_compiled("gymnax:Pendulum-v1"), 300)

    def roll_out(env, action, count):
        def walk(key):
            state, _ = env.reset(env.spec.params, key)
            step = lambda s, k: env.step(s, jnp.array(action), k)  # noqa: E731
            return jax.lax.scan(step, state, jax.random.split(key, count))[1]

        return jax.tree.map(np.asarray, jax.jit(walk)(KEY))

    steps = roll_out(env, [0.0], 300)
    assert steps.truncated.tolist() == [False] * 299 + [True] and env.spec.time_limit == 300
    steps = roll_out(TimeLimit(MultiGoal(time_limit=2), 9), [1.0, 0.0], 6)
    assert steps.terminated.any() and not steps.truncated.any()


@pytest.mark.slow
def test_average_reward_of_a_run(tmp_path):
    """The probe gives reward 1 in each step."""
    small = PPO(hidden_sizes=(4,), feed=Rollouts(8, num_envs=2))
    run = thespis.train(small, "probe:constant", steps=64, seeds=2, episodes=1, out=tmp_path / "run")
    assert average_reward(40, 3).compute(run).tolist() == [1.0, 1.0]
