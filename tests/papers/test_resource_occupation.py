"""Resource occupation game, against a simulation in NumPy."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.laws.components import check_curriculum, check_environment
from thespis.curricula.domain_randomization import DomainRandomization
from thespis.papers.mra.envs import PLACE_RADII, REWARD_SCALE, ResourceOccupation, ResourceOccupationParams

ENV, MOVES = ResourceOccupation(), np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])


def test_contract():
    check_environment(ENV)
    check_curriculum(DomainRandomization((("population", 2, 4),)), ENV.spec)


@pytest.mark.parametrize("population", [2, 4, 6])
def test_episode_matches_numpy_simulation(population):
    state, timestep = ENV.reset(ResourceOccupationParams(jnp.int32(population)), jax.random.key(population))
    agents, place_positions = (
        np.array(state.agent_positions, float)[:population],
        np.array(state.place_positions, float),
    )
    step, all_actions = jax.jit(ENV.step), np.random.default_rng(0).integers(0, 5, (ENV.time_limit, ENV.max_agents))
    for time, actions in enumerate(all_actions):
        present = np.arange(ENV.max_agents) < population
        assert timestep.alive["agent"].tolist() == present.tolist()
        obs = timestep.observation["agent"]
        assert not np.any(obs["others"][~present]) and not np.any(obs["own"][~present])
        occupied = [
            [np.hypot(*(agents[i] - p)) <= r for p, r in zip(place_positions, PLACE_RADII, strict=True)]
            for i in range(population)
        ]
        for i in range(population):
            np.testing.assert_allclose(obs["own"][i], [*agents[i], *(place_positions - agents[i]).ravel()], atol=1e-5)
            rows = [[1, *(agents[j] - agents[i]), *occupied[j]] for j in range(population) if j != i]
            rows += [[0] * 7] * (ENV.max_agents - population)
            np.testing.assert_allclose(obs["others"][i], rows, atol=1e-5)
        agents = np.clip(agents + ENV.step_size * MOVES[actions[:population]], -1, 1)
        occupied_after = np.array(
            [[np.hypot(*(a - p)) <= r for p, r in zip(place_positions, PLACE_RADII, strict=True)] for a in agents]
        )
        rewards = [
            sum(
                REWARD_SCALE * r / occupied_after[:, k].sum() for k, r in enumerate(PLACE_RADII) if occupied_after[i, k]
            )
            for i in range(population)
        ]
        state, timestep = step(state, {"agent": jnp.asarray(actions, "int32")}, jax.random.key(0))
        np.testing.assert_allclose(timestep.agent_outcomes["agent"].reward[:population], rewards, atol=1e-5)
        assert not np.any(timestep.agent_outcomes["agent"].reward[population:])
        assert timestep.reward == pytest.approx(np.mean(rewards), abs=1e-5)
        assert bool(timestep.truncated) == (time == ENV.time_limit - 1)


def test_agents_can_start_together():
    env = ResourceOccupation(start_together=True)
    check_environment(env)
    state, timestep = env.reset(ResourceOccupationParams(jnp.int32(3)), jax.random.key(1))
    apart, _ = ENV.reset(ResourceOccupationParams(jnp.int32(3)), jax.random.key(1))
    assert not np.any(state.agent_positions)
    np.testing.assert_array_equal(state.place_positions, apart.place_positions)
    own = np.asarray(timestep.observation["agent"]["own"])
    assert own[0].tolist() == own[1].tolist() == own[2].tolist()


def test_a_place_pays_its_capacity_in_full():
    """Three agents at the first place and one at the second, with a capacity of two, against the sums by hand."""
    env = ResourceOccupation(
        4, 4, start_together=True, place_radii=(0.19, 0.15), place_positions=((0.2, 0.0), (0.0, -0.2)), capacity=2
    )
    check_environment(env)
    state, _ = env.reset(ResourceOccupationParams(jnp.int32(4)), jax.random.key(0))
    np.testing.assert_allclose(state.place_positions, [[0.2, 0.0], [0.0, -0.2]])
    _, timestep = env.step(state, {"agent": jnp.asarray([1, 1, 1, 4], "int32")}, jax.random.key(1))
    first, second = REWARD_SCALE * 0.19, REWARD_SCALE * 0.15
    assert timestep.agent_outcomes is not None
    rewards = timestep.agent_outcomes["agent"].reward
    np.testing.assert_allclose(rewards, [2 * first / 3] * 3 + [second], rtol=1e-5)


@pytest.mark.parametrize("population", [1, 2, 3])
def test_best_return_is_that_of_all_plans(population):
    """Plans of all agents are enumerated: each goes to one of the places by a shortest way, or stays in the middle."""
    env = ResourceOccupation(
        population,
        population,
        time_limit=5,
        start_together=True,
        place_radii=(0.19, 0.12),
        place_positions=((0.4, 0.0), (0.0, -0.2)),
    )
    plans = [[1, 1, 0, 0, 0], [4, 0, 0, 0, 0], [0] * 5]

    def play(choice):
        state, _ = env.reset(ResourceOccupationParams(jnp.int32(population)), jax.random.key(0))
        total = 0.0
        for actions in zip(*(plans[c] for c in choice), strict=True):
            state, timestep = env.step(state, {"agent": jnp.asarray(actions, "int32")}, jax.random.key(0))
            total += float(timestep.reward)
        return total

    best = max(play(choice) for choice in itertools.product(range(3), repeat=population))
    assert env.optimal_return() == pytest.approx(best, rel=1e-5)
