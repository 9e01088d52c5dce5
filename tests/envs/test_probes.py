"""The answers that probes claim to know, against returns added up one step at a time."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from play import actions, play

from thespis.core.spaces import map_space, to_world
from thespis.envs.host.compiled import AsHost
from thespis.envs.probes.registry import PROBES

DISCOUNT = 0.9
WORLDS = 16


@functools.cache
def hosted(name):
    """Side by side; compiled once for all tests."""
    return AsHost(PROBES[name].environment, WORLDS)


def act(probe, histories, tick):
    """The best actions for the episodes so far in the world's units; random where any will do."""
    spec = probe.environment.spec
    chosen = [probe.act(history) for history in histories]
    if any(action is None for action in chosen):
        return actions(spec, len(histories), tick)
    stacked = map_space(lambda part, *leaves: np.stack(leaves), spec.action, *chosen)
    return jax.tree.map(np.asarray, to_world(spec.action, stacked))


def episodes(probe, ticks):
    """Finished episodes as ``(observations, rewards, terminated)``; observations include the last."""
    worlds = hosted(probe.name)

    def at(value, i):
        return jax.tree.map(lambda leaf: leaf[i], value)

    first = worlds.start(list(range(WORLDS))).observation
    open_ones = [([at(first, i)], []) for i in range(WORLDS)]
    for tick in range(ticks):
        step, view = worlds.step(act(probe, [seen for seen, _ in open_ones], tick))
        for i, (seen, rewards) in enumerate(open_ones):
            seen.append(at(step.observation, i))
            rewards.append(float(step.reward[i]))
            if step.terminated[i] or step.truncated[i]:
                yield seen, rewards, bool(step.terminated[i])
                open_ones[i] = ([at(view.observation, i)], [])


def returns(probe, ticks):
    """``{index of a known observation: discounted returns from it}``, truncated ones bootstrapped."""
    table = probe.known(DISCOUNT)
    found = {i: [] for i in range(len(table))}
    for seen, rewards, terminated in episodes(probe, ticks):
        last = probe.find(seen[-1], DISCOUNT)
        value = 0.0 if terminated else last.value
        for observation, reward in zip(seen[-2::-1], rewards[::-1], strict=True):
            value = reward + DISCOUNT * value
            for i, known in enumerate(table):
                if same(known.observation, observation):
                    found[i].append(value)
    return table, found


def same(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def alike(name):
    """Whether a probe differs from another in actions that mean nothing, and in nothing else."""
    return name.endswith("-continuous") and PROBES[name].policy == "any"


KNOWN = [name for name, probe in PROBES.items() if probe.known(0.5) and "1000" not in name]


@pytest.mark.parametrize("name", [pytest.param(x, marks=[pytest.mark.slow] if alike(x) else []) for x in KNOWN])
def test_the_known_values_are_the_returns(name):
    probe = PROBES[name]
    table, found = returns(probe, 60)
    for i, known in enumerate(table):
        samples = np.array(found[i])
        if name == "late" and not len(samples):
            assert known.observation[-1] < 0  # the best choice never comes here
            continue
        assert len(samples) > 5, (name, known.observation)
        error = 4 * samples.std() / np.sqrt(len(samples)) + 1e-5
        assert abs(samples.mean() - known.value) < error, (name, known, samples.mean())


def test_the_wrong_first_choice_is_worth_nothing():
    table = PROBES["late"].known(DISCOUNT)
    assert [known.value for known in table if known.observation[-1] < 0] == [0.0] * 4


def test_a_thousand_steps_change_no_value():
    probe = PROBES["constant-1000"]
    assert probe.environment.spec.time_limit == 1000
    assert probe.known(0.99)[0].value == pytest.approx(100)
    key, world = jax.random.key(0), probe.environment

    def step(state, _):
        return world.step(state, jnp.int32(0), key)

    _, steps = jax.jit(lambda: jax.lax.scan(step, world.reset((), key)[0], length=1000))()
    assert np.flatnonzero(steps.truncated).tolist() == [999] and not steps.terminated.any()


@pytest.mark.parametrize(
    "name", ["choice", "match", "pair", "picture", "amount", "match-continuous", "bound", "hybrid"]
)
def test_any_other_action_is_worse(name):
    """With the known action the reward is the value; with a random one it is less on average."""
    probe = PROBES[name]
    worlds = hosted(name)
    told = play(worlds, 20, worlds.start(list(range(WORLDS))).view)
    assert np.mean([step.reward for _, step, _ in told]) < probe.known(DISCOUNT)[0].value - 0.1


def test_without_memory_the_maze_pays_nothing():
    worlds = hosted("maze")
    told = play(worlds, 160, worlds.start(list(range(WORLDS))).view)
    paid = np.concatenate([step.reward[step.terminated] for _, step, _ in told])
    assert abs(paid.mean()) < 4 / np.sqrt(len(paid))


def test_an_illegal_action_shows():
    environment, key = PROBES["masked"].environment, jax.random.key(0)

    @jax.jit
    def every_choice():
        state, first = environment.reset((), key)
        return first.legal, jax.vmap(lambda action: environment.step(state, action, key)[1].reward)(jnp.arange(4))

    legal, rewards = every_choice()
    assert sorted(rewards.tolist()) == [0.0, 1.0, 10.0, 10.0]
    assert [reward < 10 for reward in rewards.tolist()] == legal.tolist()


@pytest.mark.parametrize("name", list(PROBES))
def test_probes_have_names_and_say_what_they_catch(name):
    probe = PROBES[name]
    assert probe.environment.spec.name == f"probe:{name}" and len(probe.catches) > 20


def test_there_are_enough_and_of_both_kinds_of_action():
    assert len(PROBES) >= 10
    assert sum(name.endswith("-continuous") for name in PROBES) >= 6
