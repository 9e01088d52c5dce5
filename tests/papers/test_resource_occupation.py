"""Resource occupation game, against a simulation in NumPy."""

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
