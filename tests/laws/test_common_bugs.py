"""Ten bugs that recur across RL libraries, numbered, each against known values or brute force.

The seventh, KL estimators, is tested in tests/objectives.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from method_cases import CASES
from small_envs import HostEnvAdapter, Walk

from thespis.actors.distributions import SquashedNormal
from thespis.core.contracts import Mode
from thespis.core.laws.assertions import assert_same_bits, to_numpy
from thespis.core.laws.random_samples import first_episode_mask, random_transitions, randomize_padding
from thespis.core.records import Batch, Critique, Report
from thespis.core.spaces import Box, Discrete
from thespis.curricula.fixed import FixedCurriculum
from thespis.data.feeds import Replay, Rollouts
from thespis.envs.probes.data_streams import EpisodeTagProbe, is_successor
from thespis.envs.probes.values import ConstantRewardProbe, RewardSequenceProbe
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.on_policy.method import BatchNormalizer, evaluate_rollout
from thespis.learners.optim.minibatches import to_sequences
from thespis.methods.online.dqn import DQN
from thespis.methods.online.ppo import PPO
from thespis.runtime.keys import env_seed, fold, indexed_keys, root_keys
from thespis.training.compiled_loop import CompiledLoop
from thespis.training.components import Components, zero_transition
from thespis.training.host_loop import HostLoop

KEY = jax.random.key(0)


def parts(method) -> Components:
    return Components(method, EnvironmentReward(), FixedCurriculum())


class Recorder(eqx.Module):
    """A method whose state is the last batch of its update."""

    feed: Rollouts | Replay = eqx.field(static=True)
    rows: int = eqx.field(static=True)
    name: ClassVar[str] = "recorder"
    citations: ClassVar[tuple] = ()
    details: ClassVar[tuple] = ()

    def init(self, spec, key):
        example = zero_transition(parts(StatelessRecorder(self.feed, self.rows)), spec, (), ())
        length = self.feed.num_steps if isinstance(self.feed, Rollouts) else self.feed.sequence_length
        shape = (length, self.rows)
        steps = jax.tree.map(lambda x: jnp.zeros((*shape, *x.shape), x.dtype), example)
        return steps, jnp.zeros(shape, bool)

    def policy(self, state, mode):
        return ()

    def init_memory(self, policy, n):
        return ()

    def act(self, policy, memory, view, key):
        return jnp.zeros(view.observation.shape[0], "int32"), memory, ()

    def judge(self, state, episode):
        return Critique()

    def update(self, state, batch, key):
        return (batch.steps, batch.mask), Report({})


class StatelessRecorder(Recorder):
    """A recorder without state, used to infer the shape of a transition."""

    def init(self, spec, key):
        return ()


def recorded_batches(feed, rows, blocks, host=False):
    method, envs, seeds = Recorder(feed, rows), 3, [0, 1]
    if host:
        loop: Any = HostLoop(parts(method), HostEnvAdapter(EpisodeTagProbe(), envs, seeds), envs, seeds, 1000)
    else:
        loop = CompiledLoop(parts(method), EpisodeTagProbe(), envs, seeds, 1000)
    carry = loop.init()
    for _ in range(blocks):
        carry = loop.advance(carry, 1)
        yield to_numpy(loop.learner_state(carry).method)


DQN_QUICK = DQN(
    learning_rate=1e-2,
    discount=0.9,
    hidden_sizes=(8,),
    target_update_interval=10,
    epsilon_decay_updates=200.0,
    feed=Replay(buffer_size=400, batch_size=32, learning_starts=40, num_envs=4),
)


def trained_values(env, blocks=600):
    loop = CompiledLoop(parts(DQN_QUICK), env, 4, [0], 10_000)
    carry = loop.advance(loop.init(), blocks)
    state = jax.tree.map(lambda x: np.asarray(x)[0], loop.learner_state(carry).method)
    known = env.known_values(0.9)
    episode = random_transitions(env.spec, np.random.default_rng(0), len(known), 1)
    episode = jax.tree.map(lambda x: np.asarray(x)[:, 0], episode)
    observations = np.stack([np.asarray(k.observation) for k in known])
    episode = eqx.tree_at(lambda e: e.view.observation, episode, observations)
    return np.asarray(jax.jit(DQN_QUICK.judge)(state, episode).value), np.array([k.value for k in known])


@pytest.mark.long
@pytest.mark.parametrize("limit", [10, 1000])
def test_1_time_limit_is_not_termination(limit):
    values, known = trained_values(ConstantRewardProbe(limit))
    assert known == pytest.approx([10.0])
    np.testing.assert_allclose(values, known, rtol=0.02)


def test_1_termination_has_value_zero():
    values, known = trained_values(RewardSequenceProbe())
    np.testing.assert_allclose(known, [2.71, 1.9, 1.0])
    np.testing.assert_allclose(values, known, rtol=0.02)


@pytest.mark.parametrize("host", [False, True], ids=["compiled", "host"])
def test_2_next_observations_are_those_of_the_same_episode(host):
    """For all steps of a rollout, also the last ones of episodes; each step is in exactly one batch."""
    steps_in_episodes, num_ends = [], 0
    for steps, mask in recorded_batches(Rollouts(8), 3, 4, host):
        assert mask.all()
        assert np.all(is_successor(steps.view.observation, steps.next_view.observation))
        length, step = steps.view.observation[..., 2], steps.next_view.observation[..., 1]
        np.testing.assert_array_equal(steps.terminated | steps.truncated, step == length)
        np.testing.assert_array_equal(steps.reward, step)
        np.testing.assert_array_equal(steps.is_first, steps.view.observation[..., 1] == 0)
        steps_in_episodes.append(steps.view.observation[..., :2].reshape(-1, 2))
        num_ends += int((step == length).sum())
    steps_in_episodes = np.concatenate(steps_in_episodes)
    assert len(np.unique(steps_in_episodes, axis=0)) == len(steps_in_episodes) == 2 * 3 * 8 * 4
    assert num_ends > 30


def quadratic_gae(reward, value, next_value, terminated, ended, discount, gae_lambda):
    """GAE in quadratic time (Schulman et al., 2016, equations 11, 16): one sum from every step to its episode's end."""
    error = reward + discount * np.where(terminated, 0.0, next_value) - value
    result = np.zeros(len(reward))
    for t in range(len(reward)):
        for k in range(t, len(reward)):
            result[t] += (discount * gae_lambda) ** (k - t) * error[k]
            if ended[k]:
                break
    return result


@pytest.fixture(scope="module")
def evaluate_steps():
    """PPO's advantages of synthetic steps and the values of all next observations, compiled once for all seeds."""
    method, spec = PPO(hidden_sizes=(6,), discount=0.97, gae_lambda=0.9), Walk().spec

    @jax.jit
    def evaluate(steps):
        network = method.init(spec, KEY).network
        batch = Batch(steps, jnp.ones((20, 3), bool), network.init_memory(3), jnp.int32(0))
        next_value = jax.vmap(jax.vmap(lambda o: network.critic((), o)[0]))(steps.next_view.observation)
        return method.rollout_processor().compute_advantages(network, ((), (), ()), batch), next_value

    return evaluate


@pytest.mark.parametrize("seed", range(5))
def test_3_advantages_stop_at_episode_ends(seed, evaluate_steps):
    steps = to_numpy(random_transitions(Walk().spec, np.random.default_rng(seed), 20, 3))
    steps = dataclasses.replace(steps, extras={"log_prob": np.zeros((20, 3), "float32")})
    rollout_steps, next_value = to_numpy(evaluate_steps(steps))
    for row in range(3):
        columns = (steps.reward, rollout_steps.value, next_value, steps.terminated, steps.done)
        expected = quadratic_gae(
            *(np.asarray(x, "float64")[:, row] for x in columns[:3]),
            *(np.asarray(x)[:, row] for x in columns[3:]),
            0.97,
            0.9,
        )
        np.testing.assert_allclose(rollout_steps.advantage[:, row], expected, atol=2e-5)
    last = np.asarray(steps.done)
    later = np.cumsum(last, axis=0) - last > 0  # all steps after the first episode of each row
    reward = np.where(later, steps.reward + 3.0, steps.reward).astype("float32")
    changed = to_numpy(evaluate_steps(dataclasses.replace(steps, reward=reward)))[0]
    assert_same_bits(rollout_steps.advantage[~later], changed.advantage[~later], "the first episodes")
    assert later.any() and not np.array_equal(rollout_steps.advantage, changed.advantage)


def rollout(method, env, envs=3):
    """A method's state and the second of two rollouts of its own actor, so that the memory at its start is not zero.

    The environment receives canonical actions.
    """
    spec = env.spec
    state = jax.jit(lambda: method.init(spec, KEY))()
    if isinstance(spec.action_space, Box):  # wide enough that many samples are out of bounds
        state = eqx.tree_at(lambda s: s.network.policy_head.free_params, state, (jnp.full(2, 1.0),))
    policy = method.policy(state, Mode.EXPLORE)

    @jax.jit
    def play(memory, env_state, view, first, begin):
        def tick(carry, t):
            memory, env_state, view, first = carry
            fresh = method.init_memory(policy, envs)
            memory = jax.tree.map(lambda f, m: jnp.where(first[:, None], f, m), fresh, memory)
            action, memory, extras = method.act(policy, memory, view, fold(KEY, "act", t))
            keys = indexed_keys(fold(KEY, "step", t), envs)
            new_state, step = jax.vmap(env.step)(env_state, action, keys)
            reset_state, start = jax.vmap(env.reset, in_axes=(None, 0))(spec.params, keys)
            ended = step.terminated | step.truncated

            def choose(a, b):
                return jnp.where(ended.reshape(-1, *[1] * (a.ndim - 1)), a, b)

            next_step = jax.tree.map(choose, (reset_state, start.view), (new_state, step.view))
            row = (view, action, step, first, extras)
            return (memory, *next_step, ended), row

        return jax.lax.scan(tick, (memory, env_state, view, first), begin + jnp.arange(12))

    env_state, step = jax.vmap(env.reset, in_axes=(None, 0))(spec.params, indexed_keys(KEY, envs))
    carry = (method.init_memory(policy, envs), env_state, step.view, jnp.ones(envs, bool))
    carry, _ = play(*carry, 0)
    _, (view, action, step, first, extras) = play(*carry, 12)
    steps = random_transitions(spec, np.random.default_rng(0), 12, envs)
    steps = dataclasses.replace(
        steps,
        view=view,
        action=action,
        reward=step.reward,
        terminated=step.terminated,
        truncated=step.truncated,
        next_view=step.view,
        is_first=first,
        extras=extras,
    )
    return state, Batch(steps, jnp.ones((12, envs), bool), carry[0], jnp.int32(0))


@pytest.mark.parametrize("name", ["ppo", "ppo with memory"])
def test_4_ratios_are_1_before_the_first_update(name):
    """For every stored action, also out of bounds; with memory, also at and between episode starts."""
    method, env = CASES[name].method, CASES[name].env
    state, batch = rollout(method, env)
    rollout_steps = jax.jit(method.rollout_processor().compute_advantages)(
        state.network, state.normalizer_states, batch
    )
    evaluation = jax.jit(evaluate_rollout)(state.network, batch.memory, rollout_steps)
    ratio = np.exp(np.asarray(evaluation.log_prob - batch.steps.extras["log_prob"], "float64"))
    np.testing.assert_allclose(ratio, 1.0, atol=1e-5)
    assert batch.steps.is_first.any() and not batch.steps.is_first.all()
    if name == "ppo":
        outside = np.abs(np.asarray(batch.steps.action)) > 1
        assert outside.mean() > 0.3  # actions are stored before clipping
    else:
        assert np.abs(np.asarray(batch.memory[0])).max() > 0.01  # the memory at the start of the rollout is not zero


def test_4_squashed_policy_is_a_density_on_the_box():
    policy = SquashedNormal(jnp.array([0.9]), jnp.array([0.4]))
    edges = np.linspace(-1, 1, 200_001)
    middle = jnp.asarray((edges[1:] + edges[:-1]) / 2, "float32")[:, None]
    density = np.exp(np.asarray(jax.vmap(policy.log_prob)(middle), "float64"))
    assert (density * np.diff(edges)).sum() == pytest.approx(1.0, abs=2e-3)


def test_5_advantages_do_not_depend_on_the_minibatch_size():
    """Advantages in the loss of each step, collected from minibatches of 1, 7 and 24 steps."""
    raw = jnp.asarray(np.random.default_rng(0).normal(2.0, 3.0, (8, 3)).astype("float32"))
    normalizer, results = BatchNormalizer(), []
    for size in (1, 7, 24):
        data = to_sequences((normalizer.normalize_batch(raw), ()), keep_sequences=False).steps
        order = np.random.default_rng(size).permutation(24)
        result = np.full(24, np.nan)
        for i in range(0, 24, size):
            result[order[i : i + size]] = normalizer.normalize_minibatch(data[0, order[i : i + size]])
        results.append(result)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
    assert np.all(np.isfinite(normalizer.normalize_batch(jnp.full((8, 3), 7.0))))


@pytest.mark.parametrize("name", ["dqn", "td3", "sac", "bc"])
def test_6_padding_does_not_change_updates(name):
    """Neither losses nor their divisors depend on padding: parameters and metrics are equal, bit by bit."""
    method, spec, rng = CASES[name].method, CASES[name].env.spec, np.random.default_rng(0)
    steps = random_transitions(spec, rng, 3, 6)
    mask = jnp.asarray(first_episode_mask(steps.done))
    update, state = jax.jit(method.update), jax.jit(lambda: method.init(spec, KEY))()
    batch = Batch(steps, mask, (), jnp.int32(0))
    expected = update(state, batch, KEY)
    changed = dataclasses.replace(batch, steps=randomize_padding(spec, steps, mask, rng))
    assert_same_bits(expected, update(state, changed, KEY), "padding")
    assert not mask.all()
    shorter = dataclasses.replace(batch, mask=mask.at[1:].set(False))
    with pytest.raises(Exception, match="differs"):
        assert_same_bits(expected, update(state, shorter, KEY), "the mask is used")


def test_8_replayed_windows_stay_within_an_episode_and_off_the_write_head():
    """In a running loop, at every position of the write head, also after the ring of 10 ticks is overwritten."""
    feed, num_padded = Replay(buffer_size=30, batch_size=16, learning_starts=9, update_interval=1, sequence_length=4), 0
    for steps, mask in recorded_batches(feed, 16, 25):
        if not mask.any():  # no update before the warm-up ends
            continue
        assert mask[:, 0].all()
        obs, next_obs, ended = steps.view.observation, steps.next_view.observation, steps.terminated | steps.truncated
        assert np.all(is_successor(obs, next_obs)[mask])
        valid = mask[:, 1:]  # step k is valid only if step k - 1 did not end the episode
        np.testing.assert_array_equal(valid, mask[:, :-1] & ~ended[:, :-1])
        assert np.all(is_successor(obs[:, :-1], obs[:, 1:])[valid])
        num_padded += int((~mask).sum())
    assert num_padded > 100


def test_9_seeds_determine_environments_and_share_none():
    def observations(*seeds):
        loop = CompiledLoop(parts(Recorder(Rollouts(8), 3)), EpisodeTagProbe(), 3, list(seeds), 1000)
        carry, blocks = loop.init(), []
        for _ in range(3):
            carry = loop.advance(carry, 1)
            blocks.append(to_numpy(loop.learner_state(carry).method)[0].view.observation)
        return np.stack(blocks, axis=1)  # [seed, block, ...]

    both, single = observations(5, 6), observations(5)
    assert_same_bits(both[0], single[0], "the same seed")
    tags = [set(obs[..., 0].ravel().tolist()) for obs in both]
    assert not tags[0] & tags[1]

    @jax.jit
    def env_seeds(keys):
        def seeds_of_root(root):
            starts = jax.vmap(lambda env: fold(fold(root, "worlds", 0), "world", env))(jnp.arange(16))
            return jax.vmap(lambda key: jax.random.bits(key, dtype="uint32") >> 1)(starts)

        return jax.vmap(seeds_of_root)(keys)

    keys = root_keys(list(range(32)))
    host = np.asarray(env_seeds(keys))
    assert len(np.unique(host)) == 512
    for seed, env in ((0, 0), (3, 7), (31, 15)):
        assert env_seed(fold(keys[seed], "worlds", 0), env) == host[seed, env]


@pytest.mark.parametrize("name", ["ppo", pytest.param("ppo with memory", marks=pytest.mark.slow)])
def test_10_policy_changes_by_learning_only(name):
    """With learning rate 0 every ratio is 1 and every KL is 0, over all epochs of several rollouts.

    The observation normalizer changes between rollouts only: a change inside a rollout would show as a ratio.
    """
    method = dataclasses.replace(CASES[name].method, learning_rate=0.0, num_epochs=3)
    loop = CompiledLoop(parts(method), CASES[name].env, 3, [0, 1], 1000)
    carry = loop.init()
    before = to_numpy(loop.learner_state(carry).method.network)
    for _ in range(4):
        carry, metric_sums = loop.pop_metric_sums(loop.advance(carry, 1))
        assert np.all(np.abs(metric_sums.sums["kl"]) <= 1e-6)
        assert np.all(metric_sums.sums["clipped"] == 0)
        assert np.all(metric_sums.sums["gradient"] > 1e-4)  # gradients were not zero
    assert_same_bits(before, to_numpy(loop.learner_state(carry).method.network), "parameters")


def test_10_greedy_and_sampled_actions_differ_and_change_no_state():
    method, env = CASES["sac with choices"].method, Walk(Discrete(4))
    state = jax.jit(lambda: method.init(env.spec, KEY))()
    before = to_numpy(state)

    @jax.jit
    def play(state):
        view = jax.vmap(env.reset, in_axes=(None, 0))(env.spec.params, indexed_keys(KEY, 64))[1].view
        return {mode.value: method.act(method.policy(state, mode), (), view, KEY)[0] for mode in Mode}

    actions = {Mode(name): action for name, action in play(state).items()}
    assert not np.array_equal(actions[Mode.EXPLOIT], actions[Mode.SAMPLE])
    assert_same_bits(before, to_numpy(state), "acting changes no state")
