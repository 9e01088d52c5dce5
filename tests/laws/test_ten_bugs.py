"""Ten bugs that recur across libraries, by number. The seventh, KL estimators, is tested with the objectives."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases import CASES
from worlds import AsHost, Walk

from thespis.actors.distributions import SquashedNormal
from thespis.core.contracts import Mode
from thespis.core.feeds import Replay, Rollouts
from thespis.core.keys import fold, per_index, roots, world_seed
from thespis.core.laws import as_numpy, same_bits
from thespis.core.records import Batch, Critique, Report
from thespis.core.samples import random_steps, until_end, with_other_padding
from thespis.core.spaces import Box, Discrete
from thespis.curricula.fixed import Fixed
from thespis.envs.probes.streams import Coded, follows
from thespis.envs.probes.values import Constant, Corridor
from thespis.feedback.environment import EnvironmentReward
from thespis.learners.advantages import WholeBatch
from thespis.learners.minibatches import columns
from thespis.learners.on_policy import replay
from thespis.loops.compiled import CompiledLoop
from thespis.loops.host import HostLoop
from thespis.loops.parts import Parts, example_transition
from thespis.methods.online.dqn import DQN
from thespis.methods.online.ppo import PPO

KEY = jax.random.key(0)


def parts(method) -> Parts:
    return Parts(method, EnvironmentReward(), Fixed())


class Recorder(eqx.Module):
    """A method whose only state is the last batch that reached its update."""

    feed: Rollouts | Replay = eqx.field(static=True)
    rows: int = eqx.field(static=True)
    name: ClassVar[str] = "recorder"
    citations: ClassVar[tuple] = ()
    details: ClassVar[tuple] = ()

    def init(self, spec, key):
        example = example_transition(parts(Actor(self.feed, self.rows)), spec, ())
        shape = (self.feed.length, self.rows)
        steps = jax.tree.map(lambda x: jnp.zeros((*shape, *x.shape), x.dtype), example)
        return steps, jnp.zeros(shape, bool)

    def policy(self, state, mode):
        return ()

    def begin(self, policy, n):
        return ()

    def act(self, policy, memory, view, key):
        return jnp.zeros(view.observation.shape[0], "int32"), memory, ()

    def judge(self, state, episode):
        return Critique()

    def update(self, state, batch, key):
        return (batch.steps, batch.mask), Report({})


class Actor(Recorder):
    """The recorder before it has anything to record."""

    def init(self, spec, key):
        return ()


def recorded(feed, rows, blocks, host=False):
    method, envs, seeds = Recorder(feed, rows), 3, [0, 1]
    if host:
        loop: Any = HostLoop(parts(method), AsHost(Coded(), envs, seeds), envs, seeds, 1000)
    else:
        loop = CompiledLoop(parts(method), Coded(), envs, seeds, 1000)
    carry = loop.init()
    for _ in range(blocks):
        carry = loop.advance(carry, 1)
        yield as_numpy(loop.learner(carry).method)


DQN_QUICK = DQN(
    learning_rate=1e-2, discount=0.9, hidden=(8,), target_every=10, epsilon_updates=200.0,
    feed=Replay(capacity=400, batch=32, warmup=40, envs=4),
)  # fmt: skip


def learnt_values(world, blocks=600):
    loop = CompiledLoop(parts(DQN_QUICK), world, 4, [0], 10_000)
    carry = loop.advance(loop.init(), blocks)
    state = jax.tree.map(lambda x: np.asarray(x)[0], loop.learner(carry).method)
    known = world.known(0.9)
    episode = random_steps(world.spec, np.random.default_rng(0), len(known), 1)
    episode = jax.tree.map(lambda x: np.asarray(x)[:, 0], episode)
    shown = np.stack([np.asarray(k.observation) for k in known])
    episode = eqx.tree_at(lambda e: e.view.observation, episode, shown)
    return np.asarray(jax.jit(DQN_QUICK.judge)(state, episode).value), np.array([k.value for k in known])


@pytest.mark.parametrize("limit", [10, 1000])
def test_1_a_time_limit_is_not_an_end(limit):
    learnt, known = learnt_values(Constant(limit))
    assert known == pytest.approx([10.0])
    np.testing.assert_allclose(learnt, known, rtol=0.02)


def test_1_a_true_end_is_one():
    learnt, known = learnt_values(Corridor())
    np.testing.assert_allclose(known, [2.71, 1.9, 1.0])
    np.testing.assert_allclose(learnt, known, rtol=0.02)


@pytest.mark.parametrize("host", [False, True], ids=["compiled", "host"])
def test_2_every_transition_leads_to_its_true_next_observation(host):
    """Of all steps of a rollout, those that end episodes included; and each reaches the loss exactly once."""
    seen, ends = [], 0
    for steps, mask in recorded(Rollouts(8), 3, 4, host):
        assert mask.all()
        assert np.all(follows(steps.view.observation, steps.next_view.observation))
        length, step = steps.view.observation[..., 2], steps.next_view.observation[..., 1]
        np.testing.assert_array_equal(steps.terminated | steps.truncated, step == length)
        np.testing.assert_array_equal(steps.reward, step)
        np.testing.assert_array_equal(steps.first, steps.view.observation[..., 1] == 0)
        seen.append(steps.view.observation[..., :2].reshape(-1, 2))
        ends += int((step == length).sum())
    seen = np.concatenate(seen)
    assert len(np.unique(seen, axis=0)) == len(seen) == 2 * 3 * 8 * 4
    assert ends > 30


def quadratic_gae(reward, value, following, terminated, ended, discount, trace):
    """Schulman et al., 2016, equation 11 with 16, summed anew from every step to its episode's end."""
    error = reward + discount * np.where(terminated, 0.0, following) - value
    result = np.zeros(len(reward))
    for t in range(len(reward)):
        for k in range(t, len(reward)):
            result[t] += (discount * trace) ** (k - t) * error[k]
            if ended[k]:
                break
    return result


@pytest.fixture(scope="module")
def assessed():
    """What PPO finds of made-up steps, and the values of all next observations, as one program for all seeds."""
    method, spec = PPO(hidden=(6,), discount=0.97, trace=0.9), Walk().spec

    @jax.jit
    def both(steps):
        network = method.init(spec, KEY).network
        batch = Batch(steps, jnp.ones((20, 3), bool), network.begin(3), jnp.int32(0))
        following = jax.vmap(jax.vmap(lambda o: network.critic((), o)[0]))(steps.next_view.observation)
        return method.assessor().assess(network, ((), (), ()), batch), following

    return both


@pytest.mark.parametrize("seed", range(5))
def test_3_advantages_stop_at_the_end_of_an_episode(seed, assessed):
    steps = as_numpy(random_steps(Walk().spec, np.random.default_rng(seed), 20, 3))
    steps = dataclasses.replace(steps, extras={"log_prob": np.zeros((20, 3), "float32")})
    verdict, following = as_numpy(assessed(steps))
    for row in range(3):
        columns = (steps.reward, verdict.value, following, steps.terminated, steps.ended)
        wanted = quadratic_gae(*(np.asarray(x, "float64")[:, row] for x in columns[:3]),
                               *(np.asarray(x)[:, row] for x in columns[3:]), 0.97, 0.9)  # fmt: skip
        np.testing.assert_allclose(verdict.advantage[:, row], wanted, atol=2e-5)
    last = np.asarray(steps.ended)
    later = np.cumsum(last, axis=0) - last > 0  # every step but those of each row's first episode
    reward = np.where(later, steps.reward + 3.0, steps.reward).astype("float32")
    changed = as_numpy(assessed(dataclasses.replace(steps, reward=reward)))[0]
    same_bits(verdict.advantage[~later], changed.advantage[~later], "the first episodes")
    assert later.any() and not np.array_equal(verdict.advantage, changed.advantage)


def rollout(method, world, envs=3):
    """A method's state, and the second of two rollouts of its own actor, so that it does not begin with fresh memory.

    The world takes actions in their canonical units here.
    """
    spec = world.spec
    state = jax.jit(lambda: method.init(spec, KEY))()
    if isinstance(spec.action, Box):  # wide enough that many draws lie outside the bounds
        state = eqx.tree_at(lambda s: s.network.head.free, state, (jnp.full(2, 1.0),))
    policy = method.policy(state, Mode.EXPLORE)

    @jax.jit
    def play(memory, world_state, view, first, begin):
        def tick(carry, t):
            memory, world_state, view, first = carry
            fresh = method.begin(policy, envs)
            memory = jax.tree.map(lambda f, m: jnp.where(first[:, None], f, m), fresh, memory)
            action, memory, extras = method.act(policy, memory, view, fold(KEY, "act", t))
            keys = per_index(fold(KEY, "step", t), envs)
            new_state, step = jax.vmap(world.step)(world_state, action, keys)
            again, start = jax.vmap(world.reset, in_axes=(None, 0))(spec.params, keys)
            ended = step.terminated | step.truncated

            def choose(a, b):
                return jnp.where(ended.reshape(-1, *[1] * (a.ndim - 1)), a, b)

            following = jax.tree.map(choose, (again, start.view), (new_state, step.view))
            row = (view, action, step, first, extras)
            return (memory, *following, ended), row

        return jax.lax.scan(tick, (memory, world_state, view, first), begin + jnp.arange(12))

    world_state, step = jax.vmap(world.reset, in_axes=(None, 0))(spec.params, per_index(KEY, envs))
    carry = (method.begin(policy, envs), world_state, step.view, jnp.ones(envs, bool))
    carry, _ = play(*carry, 0)
    _, (view, action, step, first, extras) = play(*carry, 12)
    steps = random_steps(spec, np.random.default_rng(0), 12, envs)
    steps = dataclasses.replace(
        steps, view=view, action=action, reward=step.reward, terminated=step.terminated, truncated=step.truncated,
        next_view=step.view, first=first, extras=extras,
    )  # fmt: skip
    return state, Batch(steps, jnp.ones((12, envs), bool), carry[0], jnp.int32(0))


@pytest.mark.parametrize("name", ["ppo", "ppo with memory"])
def test_4_ratios_are_one_before_the_first_update(name):
    """For every stored action, also outside the bounds; with memory, also where episodes begin and where none does."""
    method, world = CASES[name].method, CASES[name].world
    state, batch = rollout(method, world)
    verdict = jax.jit(method.assessor().assess)(state.network, state.scales, batch)
    now = jax.jit(replay)(state.network, batch.memory, verdict)
    ratio = np.exp(np.asarray(now.log_prob - batch.steps.extras["log_prob"], "float64"))
    np.testing.assert_allclose(ratio, 1.0, atol=1e-5)
    assert batch.steps.first.any() and not batch.steps.first.all()
    if name == "ppo":
        outside = np.abs(np.asarray(batch.steps.action)) > 1
        assert outside.mean() > 0.3  # what the world clips is stored unclipped
    else:
        assert np.abs(np.asarray(batch.memory[0])).max() > 0.01  # the rollout begins with memory of its own


def test_4_a_squashed_policy_is_a_density_on_the_box():
    policy = SquashedNormal(jnp.array([0.9]), jnp.array([0.4]))
    edges = np.linspace(-1, 1, 200_001)
    middle = jnp.asarray((edges[1:] + edges[:-1]) / 2, "float32")[:, None]
    density = np.exp(np.asarray(jax.vmap(policy.log_prob)(middle), "float64"))
    assert (density * np.diff(edges)).sum() == pytest.approx(1.0, abs=2e-3)


def test_5_advantages_are_the_same_for_every_minibatch_size():
    """What each step's loss is given, gathered from minibatches of 1, 7 and all 24 steps."""
    raw = jnp.asarray(np.random.default_rng(0).normal(2.0, 3.0, (8, 3)).astype("float32"))
    scale, given = WholeBatch(), []
    for size in (1, 7, 24):
        data = columns((scale.whole(raw), ()), joined=False).steps
        order = np.random.default_rng(size).permutation(24)
        found = np.full(24, np.nan)
        for i in range(0, 24, size):
            found[order[i : i + size]] = scale.part(data[0, order[i : i + size]])
        given.append(found)
    np.testing.assert_array_equal(given[0], given[1])
    np.testing.assert_array_equal(given[0], given[2])
    assert np.all(np.isfinite(scale.whole(jnp.full((8, 3), 7.0))))


@pytest.mark.parametrize("name", ["dqn", "td3", "sac", "bc"])
def test_6_steps_past_the_end_of_a_window_are_not_counted(name):
    """Neither in the losses nor in their divisors: the update has the same bits, its metrics too."""
    method, spec, rng = CASES[name].method, CASES[name].world.spec, np.random.default_rng(0)
    steps = random_steps(spec, rng, 3, 6)
    mask = jnp.asarray(until_end(steps.ended))
    update, state = jax.jit(method.update), jax.jit(lambda: method.init(spec, KEY))()
    batch = Batch(steps, mask, (), jnp.int32(0))
    one = update(state, batch, KEY)
    other = dataclasses.replace(batch, steps=with_other_padding(spec, steps, mask, rng))
    same_bits(one, update(state, other, KEY), "padding")
    assert not mask.all()
    shorter = dataclasses.replace(batch, mask=mask.at[1:].set(False))
    with pytest.raises(Exception, match="differs"):
        same_bits(one, update(state, shorter, KEY), "the mask is looked at")


def test_8_replayed_windows_stay_within_an_episode_and_off_the_write_head():
    """In a running loop, at every position of the head, after the ring of 10 ticks has been overwritten."""
    feed, short = Replay(capacity=30, batch=16, warmup=9, every=1, length=4), 0
    for steps, mask in recorded(feed, 16, 25):
        if not mask.any():  # nothing is recorded before the warm-up ends
            continue
        assert mask[:, 0].all()
        now, after, ended = steps.view.observation, steps.next_view.observation, steps.terminated | steps.truncated
        assert np.all(follows(now, after)[mask])
        both = mask[:, 1:]  # step k is kept only if step k - 1 did not end the episode
        np.testing.assert_array_equal(both, mask[:, :-1] & ~ended[:, :-1])
        assert np.all(follows(now[:, :-1], now[:, 1:])[both])
        short += int((~mask).sum())
    assert short > 100


def test_9_seeds_control_worlds_and_share_none():
    def observations(*seeds):
        loop = CompiledLoop(parts(Recorder(Rollouts(8), 3)), Coded(), 3, list(seeds), 1000)
        carry, seen = loop.init(), []
        for _ in range(3):
            carry = loop.advance(carry, 1)
            seen.append(as_numpy(loop.learner(carry).method)[0].view.observation)
        return np.stack(seen, axis=1)  # [seed, block, ...]

    both, again = observations(5, 6), observations(5)
    same_bits(both[0], again[0], "one seed, one world")
    tags = [set(seen[..., 0].ravel().tolist()) for seen in both]
    assert not tags[0] & tags[1]

    @jax.jit
    def seeds_of_worlds(keys):
        def one(root):
            starts = jax.vmap(lambda world: fold(fold(root, "worlds", 0), "world", world))(jnp.arange(16))
            return jax.vmap(lambda key: jax.random.bits(key, dtype="uint32") >> 1)(starts)

        return jax.vmap(one)(keys)

    keys = roots(list(range(32)))
    host = np.asarray(seeds_of_worlds(keys))
    assert len(np.unique(host)) == 512
    for seed, world in ((0, 0), (3, 7), (31, 15)):
        assert world_seed(fold(keys[seed], "worlds", 0), world) == host[seed, world]


@pytest.mark.parametrize("name", ["ppo", pytest.param("ppo with memory", marks=pytest.mark.slow)])
def test_10_nothing_but_learning_moves_the_policy(name):
    """With learning rate 0 every ratio stays 1 and every KL 0, over all epochs of several rollouts.

    The scale of observations learns between rollouts, and only there: it would show as a ratio.
    """
    method = dataclasses.replace(CASES[name].method, learning_rate=0.0, epochs=3)
    loop = CompiledLoop(parts(method), CASES[name].world, 3, [0, 1], 1000)
    carry = loop.init()
    before = as_numpy(loop.learner(carry).method.network)
    for _ in range(4):
        carry, tally = loop.take_tally(loop.advance(carry, 1))
        assert np.all(np.abs(tally.metrics["kl"]) <= 1e-6)
        assert np.all(tally.metrics["clipped"] == 0)
        assert np.all(tally.metrics["gradient"] > 1e-4)  # there was something to learn
    same_bits(before, as_numpy(loop.learner(carry).method.network), "parameters")


def test_10_greedy_and_sampled_play_differ_and_change_nothing():
    method, world = CASES["sac with choices"].method, Walk(Discrete(4))
    state = jax.jit(lambda: method.init(world.spec, KEY))()
    held = as_numpy(state)

    @jax.jit
    def play(state):
        view = jax.vmap(world.reset, in_axes=(None, 0))(world.spec.params, per_index(KEY, 64))[1].view
        return {mode.value: method.act(method.policy(state, mode), (), view, KEY)[0] for mode in Mode}

    chosen = {Mode(name): action for name, action in play(state).items()}
    assert not np.array_equal(chosen[Mode.EXPLOIT], chosen[Mode.SAMPLE])
    same_bits(held, as_numpy(state), "acting writes nothing")
