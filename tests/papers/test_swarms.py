"""Swarms: dynamics against a simulation in NumPy, mean fields against densities and counts of members."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_environment
from thespis.envs.registry import make_compiled
from thespis.papers.dec_pomfc.envs import (
    KURAMOTO,
    MIN_LOG_STD,
    VICSEK,
    HistogramBins,
    MeanFieldEnv,
    RBFKernels,
    Swarm,
    SwarmState,
    order_parameter,
)

NOISE_FREE = {"noise_std": 0.0, "num_agents": 12}


def reference_observations(swarm_state, radius):
    """Observations, agent by agent, in NumPy."""
    position, heading = np.asarray(swarm_state.positions, float), np.asarray(swarm_state.headings, float)
    observations = []
    for i in range(len(heading)):
        neighbors = []
        for j in range(len(heading)):
            gaps = [min(abs(a - b), 1 - abs(a - b)) for a, b in zip(position[i], position[j], strict=True)]
            if np.hypot(*gaps) <= radius:
                neighbors.append(np.exp(1j * (heading[j] - heading[i])))
        observations.append([np.mean(neighbors).real, np.mean(neighbors).imag])
    return np.array(observations)


@pytest.mark.parametrize("env", [KURAMOTO, VICSEK], ids=["kuramoto", "vicsek"])
@pytest.mark.slow
def test_swarm_matches_numpy_simulation(env):
    env = dataclasses.replace(env, **NOISE_FREE)
    check_environment(env)
    swarm_state, timestep = env.reset((), jax.random.key(1))
    position, heading, drift = (
        np.asarray(x, float) for x in (swarm_state.positions, swarm_state.headings, swarm_state.drifts)
    )
    assert (np.abs(drift).max() > 0) == (env.drift_std > 0)
    step, turns = jax.jit(env.step), np.random.default_rng(0).uniform(-1.5, 1.5, (6, env.num_agents))
    for time, turn in enumerate(turns):
        obs = timestep.observation["agent"]
        np.testing.assert_allclose(obs[:, :2], reference_observations(swarm_state, env.neighbor_radius), atol=1e-5)
        np.testing.assert_allclose(obs[:, 2], time / env.time_limit, atol=1e-6)
        heading = heading + drift + 0.5 * np.clip(turn, -1, 1)
        position = (position + env.speed * np.stack([np.cos(heading), np.sin(heading)], axis=1)) % 1
        swarm_state, timestep = step(swarm_state, {"agent": jnp.asarray(turn[:, None], "float32")}, jax.random.key(2))
        np.testing.assert_allclose(swarm_state.headings, heading, atol=1e-5)
        np.testing.assert_allclose(swarm_state.positions, position, atol=1e-5)
        assert timestep.reward == pytest.approx(abs(np.exp(1j * heading).mean()), abs=1e-5)
        np.testing.assert_allclose(timestep.agent_outcomes["agent"].reward, timestep.reward)


def test_noise_is_independent_with_the_stated_std():
    env = Swarm(noise_std=0.3, num_agents=4000)
    swarm_state = SwarmState(jnp.zeros((4000, 2)), jnp.zeros(4000), jnp.zeros(4000), jnp.int32(0))
    headings = env.move(swarm_state, jnp.zeros(4000), jax.random.key(3)).headings
    assert np.std(headings) == pytest.approx(0.3, rel=0.05) and np.mean(headings) == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize("env", [KURAMOTO, VICSEK], ids=["kuramoto", "vicsek"])
def test_alignment_with_neighbors_increases_the_order_parameter(env):
    def final_order(gain):
        def step(swarm_state, key):
            turns = gain * env.local_observations(swarm_state)[:, 1]
            return env.move(swarm_state, turns, key), order_parameter(swarm_state)

        init_states = jax.vmap(env.init_swarm)(jax.random.split(jax.random.key(0), 10))
        keys = jax.random.split(jax.random.key(1), (10, env.time_limit))
        return jax.vmap(lambda swarm_state, keys: jax.lax.scan(step, swarm_state, keys)[1])(init_states, keys)[
            :, -1
        ].mean()

    assert final_order(0.0) < 0.3 and final_order(3.0) > 0.9


@pytest.mark.parametrize(
    "aggregation", [RBFKernels(), pytest.param(HistogramBins(), marks=pytest.mark.slow)], ids=["kernels", "histogram"]
)
def test_contract(aggregation):
    check_environment(MeanFieldEnv(dataclasses.replace(KURAMOTO, num_agents=6), aggregation))


def test_rbf_weights_are_normalized_gaussian_densities():
    x, points = np.array([0.2, -0.7]), np.random.default_rng(0).uniform(-1, 1, (7, 2))
    density = np.exp(-((points - x) ** 2).sum(1) / (2 * 0.4**2))
    weights = RBFKernels(0.4).weights(jnp.asarray(x, "float32"), jnp.asarray(points, "float32"))
    np.testing.assert_allclose(weights, density / density.sum(), rtol=1e-4)


def test_histogram_mean_field_counts_members():
    env = MeanFieldEnv(dataclasses.replace(VICSEK, num_agents=200), HistogramBins())
    swarm_state = env.swarm.init_swarm(jax.random.key(5))
    eighth = 2 * np.pi / 8
    headings = (np.asarray(swarm_state.headings) + eighth / 2) % (2 * np.pi)
    members = np.column_stack([headings, swarm_state.positions])
    counts, _ = np.histogramdd(members, bins=(8, 2, 2), range=((0, 2 * np.pi), (0, 1), (0, 1)))
    np.testing.assert_allclose(env.mean_field(swarm_state), counts.ravel() / 200, atol=1e-6)


@pytest.mark.parametrize("aggregation", [RBFKernels(), HistogramBins()], ids=["kernels", "histogram"])
def test_members_act_by_the_decision_rule_and_their_observations(aggregation):
    env = MeanFieldEnv(VICSEK, aggregation)
    swarm_state = env.swarm.init_swarm(jax.random.key(7))
    means = np.tile(np.linspace(-1, 1, 5), 5)  # the second component of an observation varies fastest
    low_log_stds, high_log_stds = -np.ones(25), np.ones(25)
    turn = jax.jit(env.sample_turns)
    rule = np.concatenate([means, low_log_stds])
    turns = np.stack([turn(swarm_state, jnp.asarray(rule, "float32"), jax.random.key(i)) for i in range(50)])
    obs = reference_observations(swarm_state, VICSEK.neighbor_radius)[:, 1]
    expected = {RBFKernels: obs, HistogramBins: np.round(obs * 2) / 2}[type(aggregation)]
    np.testing.assert_allclose(turns.mean(0), expected, atol=0.08)  # kernels are smooth at the boundary
    assert turns.std(0).mean() == pytest.approx(np.exp(MIN_LOG_STD), rel=0.1)
    rule = np.concatenate([means, high_log_stds])
    turns = np.stack([turn(swarm_state, jnp.asarray(rule, "float32"), jax.random.key(i)) for i in range(50)])
    assert turns.std(0).mean() == pytest.approx(1.0, rel=0.1)


def test_critics_observe_the_mean_field_and_actors_the_time():
    env = make_compiled("thespis.papers.dec_pomfc.envs:VICSEK_BY_HISTOGRAM")
    swarm_state, timestep = env.reset((), jax.random.key(0))
    assert timestep.observation.tolist() == [0.0] and timestep.privileged.shape == (32,)
    assert float(timestep.privileged.sum()) == pytest.approx(1.0)
    swarm_state, timestep = env.step(swarm_state, jnp.zeros(50), jax.random.key(1))
    assert timestep.observation.tolist() == [pytest.approx(1 / 50)] and timestep.reward == pytest.approx(
        float(order_parameter(swarm_state))
    )
