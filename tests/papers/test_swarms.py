"""Swarms against a plain simulation in numpy, and the mean field of one against counts of its members."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.conformance import check_environment
from thespis.envs.compiled.mean_field import STEADY, Histogram, Kernels, MeanField
from thespis.envs.compiled.swarms import KURAMOTO, VICSEK, Flock, Swarm, order
from thespis.envs.registry import compiled

QUIET = {"noise": 0.0, "count": 12}


def looked(flock, reach):
    """What every agent sees, agent by agent."""
    place, heading = np.asarray(flock.place, float), np.asarray(flock.heading, float)
    found = []
    for i in range(len(heading)):
        near = []
        for j in range(len(heading)):
            gaps = [min(abs(a - b), 1 - abs(a - b)) for a, b in zip(place[i], place[j], strict=True)]
            if np.hypot(*gaps) <= reach:
                near.append(np.exp(1j * (heading[j] - heading[i])))
        found.append([np.mean(near).real, np.mean(near).imag])
    return np.array(found)


@pytest.mark.parametrize("world", [KURAMOTO, VICSEK], ids=["kuramoto", "vicsek"])
@pytest.mark.slow
def test_a_swarm_is_what_a_plain_simulation_says(world):
    world = dataclasses.replace(world, **QUIET)
    check_environment(world)
    flock, answer = world.reset((), jax.random.key(1))
    place, heading, drift = (np.asarray(x, float) for x in (flock.place, flock.heading, flock.drift))
    assert (np.abs(drift).max() > 0) == (world.spread > 0)
    step, turns = jax.jit(world.step), np.random.default_rng(0).uniform(-1.5, 1.5, (6, world.count))
    for now, turn in enumerate(turns):
        seen = answer.observation["agent"]
        np.testing.assert_allclose(seen[:, :2], looked(flock, world.reach), atol=1e-5)
        np.testing.assert_allclose(seen[:, 2], now / world.limit, atol=1e-6)
        heading = heading + drift + 0.5 * np.clip(turn, -1, 1)
        place = (place + world.speed * np.stack([np.cos(heading), np.sin(heading)], axis=1)) % 1
        flock, answer = step(flock, {"agent": jnp.asarray(turn[:, None], "float32")}, jax.random.key(2))
        np.testing.assert_allclose(flock.heading, heading, atol=1e-5)
        np.testing.assert_allclose(flock.place, place, atol=1e-5)
        assert answer.reward == pytest.approx(abs(np.exp(1j * heading).mean()), abs=1e-5)
        np.testing.assert_allclose(answer.each["agent"].reward, answer.reward)


def test_noise_has_its_size_and_everybody_its_own():
    world = Swarm(noise=0.3, count=4000)
    flock = Flock(jnp.zeros((4000, 2)), jnp.zeros(4000), jnp.zeros(4000), jnp.int32(0))
    turned = world.move(flock, jnp.zeros(4000), jax.random.key(3)).heading
    assert np.std(turned) == pytest.approx(0.3, rel=0.05) and np.mean(turned) == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize("world", [KURAMOTO, VICSEK], ids=["kuramoto", "vicsek"])
def test_turning_to_what_is_near_brings_order(world):
    def played(gain):
        def step(flock, key):
            turns = gain * world.seen(flock)[:, 1]
            return world.move(flock, turns, key), order(flock)

        begun = jax.vmap(world.begin)(jax.random.split(jax.random.key(0), 10))
        keys = jax.random.split(jax.random.key(1), (10, world.limit))
        return jax.vmap(lambda flock, keys: jax.lax.scan(step, flock, keys)[1])(begun, keys)[:, -1].mean()

    assert played(0.0) < 0.3 and played(3.0) > 0.9


@pytest.mark.parametrize(
    "by", [Kernels(), pytest.param(Histogram(), marks=pytest.mark.slow)], ids=["kernels", "histogram"]
)
def test_the_contract(by):
    check_environment(MeanField(dataclasses.replace(KURAMOTO, count=6), by))


def test_kernels_are_normal_densities():
    x, points = np.array([0.2, -0.7]), np.random.default_rng(0).uniform(-1, 1, (7, 2))
    density = np.exp(-((points - x) ** 2).sum(1) / (2 * 0.4**2))
    found = Kernels(0.4).weights(jnp.asarray(x, "float32"), jnp.asarray(points, "float32"))
    np.testing.assert_allclose(found, density / density.sum(), rtol=1e-4)


def test_a_histogram_counts_members():
    world = MeanField(dataclasses.replace(VICSEK, count=200), Histogram())
    flock = world.swarm.begin(jax.random.key(5))
    eighth = 2 * np.pi / 8
    turned = (np.asarray(flock.heading) + eighth / 2) % (2 * np.pi)
    members = np.column_stack([turned, flock.place])
    counts, _ = np.histogramdd(members, bins=(8, 2, 2), range=((0, 2 * np.pi), (0, 1), (0, 1)))
    np.testing.assert_allclose(world.field(flock), counts.ravel() / 200, atol=1e-6)


@pytest.mark.parametrize("by", [Kernels(), Histogram()], ids=["kernels", "histogram"])
def test_members_act_by_the_rule_and_what_they_see(by):
    world = MeanField(VICSEK, by)
    flock = world.swarm.begin(jax.random.key(7))
    across = np.tile(np.linspace(-1, 1, 5), 5)  # the second number that is seen varies fastest
    steady, loose = -np.ones(25), np.ones(25)
    turn = jax.jit(world.turns)
    asked = np.concatenate([across, steady])
    found = np.stack([turn(flock, jnp.asarray(asked, "float32"), jax.random.key(i)) for i in range(50)])
    seen = looked(flock, VICSEK.reach)[:, 1]
    wanted = {Kernels: seen, Histogram: np.round(seen * 2) / 2}[type(by)]
    np.testing.assert_allclose(found.mean(0), wanted, atol=0.08)  # kernels round off at the rim
    assert found.std(0).mean() == pytest.approx(np.exp(STEADY), rel=0.1)
    asked = np.concatenate([across, loose])
    found = np.stack([turn(flock, jnp.asarray(asked, "float32"), jax.random.key(i)) for i in range(50)])
    assert found.std(0).mean() == pytest.approx(1.0, rel=0.1)


def test_critics_see_the_field_and_actors_the_clock():
    world = compiled("thespis.envs.compiled.mean_field:VICSEK_BY_HISTOGRAM")
    flock, answer = world.reset((), jax.random.key(0))
    assert answer.observation.tolist() == [0.0] and answer.privileged.shape == (32,)
    assert float(answer.privileged.sum()) == pytest.approx(1.0)
    flock, answer = world.step(flock, jnp.zeros(50), jax.random.key(1))
    assert answer.observation.tolist() == [pytest.approx(1 / 50)] and answer.reward == pytest.approx(
        float(order(flock))
    )
