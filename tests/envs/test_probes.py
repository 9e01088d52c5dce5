"""Probe environments: known values and optimal actions against returns summed step by step."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from random_play import play, random_actions

from thespis.core.spaces import map_space, unscale_action
from thespis.envs.host.wrapper import HostWrapper
from thespis.envs.probes.registry import PROBES

DISCOUNT = 0.9
NUM_ENVS = 16


@functools.cache
def make_vector_env(name):
    """A vector environment of the probe, compiled once for all tests."""
    return HostWrapper(PROBES[name].environment, NUM_ENVS)


def act(probe, histories, tick):
    """Optimal actions for the observations so far, in environment units; random where the probe accepts any."""
    spec = probe.environment.spec
    optimal = [probe.optimal_action(history) for history in histories]
    if any(action is None for action in optimal):
        return random_actions(spec, len(histories), tick)
    stacked = map_space(lambda part, *leaves: np.stack(leaves), spec.action_space, *optimal)
    return jax.tree.map(np.asarray, unscale_action(spec.action_space, stacked))


def episodes(probe, ticks):
    """Finished episodes as ``(observations, rewards, terminated)``; observations include the last one."""
    vector_env = make_vector_env(probe.name)

    def index(value, i):
        return jax.tree.map(lambda leaf: leaf[i], value)

    first = vector_env.reset(list(range(NUM_ENVS))).observation
    unfinished = [([index(first, i)], []) for i in range(NUM_ENVS)]
    for tick in range(ticks):
        step, view = vector_env.step(act(probe, [obs for obs, _ in unfinished], tick))
        for i, (obs, rewards) in enumerate(unfinished):
            obs.append(index(step.observation, i))
            rewards.append(float(step.reward[i]))
            if step.terminated[i] or step.truncated[i]:
                yield obs, rewards, bool(step.terminated[i])
                unfinished[i] = ([index(view.observation, i)], [])


def returns(probe, ticks):
    """``{index of a known observation: discounted returns from it}``, truncated ones bootstrapped."""
    table = probe.known_values(DISCOUNT)
    returns_by_index = {i: [] for i in range(len(table))}
    for obs, rewards, terminated in episodes(probe, ticks):
        last = probe.lookup(obs[-1], DISCOUNT)
        value = 0.0 if terminated else last.value
        for observation, reward in zip(obs[-2::-1], rewards[::-1], strict=True):
            value = reward + DISCOUNT * value
            for i, known in enumerate(table):
                if trees_equal(known.observation, observation):
                    returns_by_index[i].append(value)
    return table, returns_by_index


def trees_equal(left, right):
    pairs = zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def is_variant(name):
    """Whether a probe differs from another one only in actions without effect."""
    return name.endswith("-continuous") and PROBES[name].policy == "any"


KNOWN = [name for name, probe in PROBES.items() if probe.known_values(0.5) and "1000" not in name]


@pytest.mark.parametrize("name", [pytest.param(x, marks=[pytest.mark.slow] if is_variant(x) else []) for x in KNOWN])
def test_known_values_match_mean_returns(name):
    probe = PROBES[name]
    table, returns_by_index = returns(probe, 60)
    for i, known in enumerate(table):
        samples = np.array(returns_by_index[i])
        if name == "late" and not len(samples):
            assert known.observation[-1] < 0  # the best action never leads there
            continue
        assert len(samples) > 5, (name, known.observation)
        error = 4 * samples.std() / np.sqrt(len(samples)) + 1e-5
        assert abs(samples.mean() - known.value) < error, (name, known, samples.mean())


def test_wrong_first_action_has_value_zero():
    table = PROBES["late"].known_values(DISCOUNT)
    assert [known.value for known in table if known.observation[-1] < 0] == [0.0] * 4


def test_long_episodes_do_not_change_values():
    probe = PROBES["constant-1000"]
    assert probe.environment.spec.time_limit == 1000
    assert probe.known_values(0.99)[0].value == pytest.approx(100)
    key, env = jax.random.key(0), probe.environment

    def step(state, _):
        return env.step(state, jnp.int32(0), key)

    _, steps = jax.jit(lambda: jax.lax.scan(step, env.reset((), key)[0], length=1000))()
    assert np.flatnonzero(steps.truncated).tolist() == [999] and not steps.terminated.any()


@pytest.mark.parametrize(
    "name", ["choice", "match", "pair", "picture", "amount", "match-continuous", "bound", "hybrid"]
)
def test_random_actions_earn_less_than_the_known_value(name):
    """The known action earns the value; random actions earn less on average."""
    probe = PROBES[name]
    vector_env = make_vector_env(name)
    transitions = play(vector_env, 20, vector_env.reset(list(range(NUM_ENVS))).view)
    assert np.mean([step.reward for _, step, _ in transitions]) < probe.known_values(DISCOUNT)[0].value - 0.1


def test_maze_without_memory_earns_zero_on_average():
    vector_env = make_vector_env("maze")
    transitions = play(vector_env, 160, vector_env.reset(list(range(NUM_ENVS))).view)
    rewards = np.concatenate([step.reward[step.terminated] for _, step, _ in transitions])
    assert abs(rewards.mean()) < 4 / np.sqrt(len(rewards))


def test_illegal_actions_are_visible_in_the_reward():
    environment, key = PROBES["masked"].environment, jax.random.key(0)

    @jax.jit
    def reward_of_every_action():
        state, first = environment.reset((), key)
        return first.action_mask, jax.vmap(lambda action: environment.step(state, action, key)[1].reward)(jnp.arange(4))

    legal, rewards = reward_of_every_action()
    assert sorted(rewards.tolist()) == [0.0, 1.0, 10.0, 10.0]
    assert [reward < 10 for reward in rewards.tolist()] == legal.tolist()


@pytest.mark.parametrize("name", list(PROBES))
def test_probes_have_names_and_descriptions(name):
    probe = PROBES[name]
    assert probe.environment.spec.name == f"probe:{name}" and len(probe.detects) > 20


def test_number_of_probes_with_discrete_and_continuous_actions():
    assert len(PROBES) >= 10
    assert sum(name.endswith("-continuous") for name in PROBES) >= 6
