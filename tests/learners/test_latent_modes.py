"""Latent-mode PPO (MRA): the mutual-information bonus, its tuned weight, and the choice of the mode."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import Mode
from thespis.core.records import Batch, EnvSpec, Transition, View
from thespis.core.spaces import Box, Discrete
from thespis.data.feeds import Rollouts
from thespis.learners.off_policy.temperature import FixedTemperature, TunedTemperature
from thespis.methods.online.ppo import PPO
from thespis.papers.mra.method import LatentModePPO

TIME, ROWS, MODES = 4, 64, 2
SPEC = EnvSpec("nothing", Box((1,), -1.0, 1.0), Discrete(2))
BASE_PPO = PPO(
    hidden_sizes=(8,), num_epochs=4, minibatch_size=64, learning_rate=1e-2, discount=0.0, feed=Rollouts(TIME, ROWS)
)


def rollout(method, state, key):
    """A rollout in an environment with constant observations and zero reward."""
    policy, views = method.policy(state, Mode.EXPLORE), View(jnp.zeros((ROWS, 1)))

    def step(memory, key):
        action, memory, extras = method.act(policy, memory, views, key)
        return memory, (action, extras)

    init_memory = method.init_memory(policy, ROWS)
    _, (action, extras) = jax.lax.scan(step, init_memory, jax.random.split(key, TIME))
    false, views_over_time = jnp.zeros((TIME, ROWS), bool), View(jnp.zeros((TIME, ROWS, 1)))
    steps = Transition(
        views_over_time,
        action,
        jnp.zeros((TIME, ROWS)),
        false,
        false.at[-1].set(True),
        views_over_time,
        false.at[0].set(True),
        extras,
    )
    return Batch(steps, ~false, init_memory, jnp.int32(0))


def train(method, updates=40):
    def step(state, key):
        state, report = method.update(state, rollout(method, state, key), key)
        return state, report.metrics

    keys = jax.random.split(jax.random.key(1), updates)
    return jax.jit(lambda state: jax.lax.scan(step, state, keys))(method.init(SPEC, jax.random.key(0)))


@pytest.mark.long
def test_modes_become_distinguishable_by_the_bonus_alone():
    method = LatentModePPO(BASE_PPO, FixedTemperature(1.0), MODES)
    state, metrics = train(method)
    assert metrics["information"][0] < 0.05 and metrics["information"][-1] > 0.8 * np.log(2)
    probs = method.action_probs(
        method.policy(state, Mode.SAMPLE), (jnp.arange(2, dtype="int32"), ((), ())), View(jnp.zeros((2, 1)))
    )
    assert abs(probs[0, 0] - probs[1, 0]) > 0.8


@pytest.mark.long
def test_weight_rises_up_to_the_target_information_and_falls_after():
    method = LatentModePPO(BASE_PPO, TunedTemperature(init_value=0.01, learning_rate=0.2, target_entropy=0.2), MODES)
    _, metrics = train(method, 60)
    weight, information = np.asarray(metrics["information_weight"]), np.asarray(metrics["information"])
    assert weight[5] > weight[0] and information[-1] > 0.1
    above = information[:-1] > 0.2
    assert above.any() and weight[-1] < weight.max()


def test_mode_lasts_an_episode_and_all_modes_are_sampled():
    method = LatentModePPO(BASE_PPO, FixedTemperature(0.0), MODES)
    modes = rollout(method, method.init(SPEC, jax.random.key(0)), jax.random.key(2)).steps.extras["mode"]
    assert np.all(modes == modes[0]) and set(np.asarray(modes[0]).tolist()) == {0, 1}


@pytest.mark.long
def test_exploiting_uses_the_mode_of_highest_value():
    method = LatentModePPO(BASE_PPO, FixedTemperature(0.0), MODES)
    state = method.init(SPEC, jax.random.key(0))
    policy, view = method.policy(state, Mode.EXPLOIT), View(jnp.zeros((1, 1)))
    _, (mode, _), _ = method.act(policy, method.init_memory(policy, 1), view, jax.random.key(3))
    values = [float(policy.network.critic((), {"mode": jnp.int32(z), "own": jnp.zeros(1)})[0]) for z in range(MODES)]
    assert mode[0] == np.argmax(values) and values[0] != values[1]
