"""The game of resources against a plain simulation in numpy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.conformance import check_curriculum, check_environment
from thespis.curricula.domain_randomisation import DomainRandomisation
from thespis.envs.compiled.resources import PAY, RADII, Population, Resources

WORLD, MOVES = Resources(), np.array([[0, 0], [1, 0], [-1, 0], [0, 1], [0, -1]])


def test_the_contract():
    check_environment(WORLD)
    check_curriculum(DomainRandomisation((("population", 2, 4),)), WORLD.spec)


@pytest.mark.parametrize("population", [2, 4, 6])
def test_an_episode_is_what_a_plain_simulation_says(population):
    ground, answer = WORLD.reset(Population(jnp.int32(population)), jax.random.key(population))
    agents, places = np.array(ground.agents, float)[:population], np.array(ground.places, float)
    step, choices = jax.jit(WORLD.step), np.random.default_rng(0).integers(0, 5, (WORLD.limit, WORLD.most))
    for time, choice in enumerate(choices):
        there = np.arange(WORLD.most) < population
        assert answer.alive["agent"].tolist() == there.tolist()
        seen = answer.observation["agent"]
        assert not np.any(seen["others"][~there]) and not np.any(seen["own"][~there])
        stood = [
            [np.hypot(*(agents[i] - p)) <= r for p, r in zip(places, RADII, strict=True)] for i in range(population)
        ]
        for i in range(population):
            np.testing.assert_allclose(seen["own"][i], [*agents[i], *(places - agents[i]).ravel()], atol=1e-5)
            rows = [[1, *(agents[j] - agents[i]), *stood[j]] for j in range(population) if j != i]
            rows += [[0] * 7] * (WORLD.most - population)
            np.testing.assert_allclose(seen["others"][i], rows, atol=1e-5)
        agents = np.clip(agents + WORLD.stride * MOVES[choice[:population]], -1, 1)
        on = np.array([[np.hypot(*(a - p)) <= r for p, r in zip(places, RADII, strict=True)] for a in agents])
        paid = [sum(PAY * r / on[:, k].sum() for k, r in enumerate(RADII) if on[i, k]) for i in range(population)]
        ground, answer = step(ground, {"agent": jnp.asarray(choice, "int32")}, jax.random.key(0))
        np.testing.assert_allclose(answer.each["agent"].reward[:population], paid, atol=1e-5)
        assert not np.any(answer.each["agent"].reward[population:])
        assert answer.reward == pytest.approx(np.mean(paid), abs=1e-5)
        assert bool(answer.truncated) == (time == WORLD.limit - 1)
