"""What a learner of several modes is paid, and in which mode it plays."""

import jax
import jax.numpy as jnp
import numpy as np

from thespis.core.contracts import Mode
from thespis.core.feeds import Rollouts
from thespis.core.records import Batch, EnvSpec, Transition, View
from thespis.core.spaces import Box, Discrete
from thespis.learners.temperature import FixedTemperature, TunedTemperature
from thespis.methods.online.ppo import PPO
from thespis.methods.teams.mra import Modes

TIME, ROWS, MODES = 4, 64, 2
SPEC = EnvSpec("nothing", Box((1,), -1.0, 1.0), Discrete(2))
ALONE = PPO(hidden=(8,), epochs=4, minibatch=64, learning_rate=1e-2, discount=0.0, feed=Rollouts(TIME, ROWS))


def rollout(method, state, key):
    """Steps in a world that shows nothing and pays nothing."""
    policy, views = method.policy(state, Mode.EXPLORE), View(jnp.zeros((ROWS, 1)))

    def step(memory, key):
        action, memory, extras = method.act(policy, memory, views, key)
        return memory, (action, extras)

    begun = method.begin(policy, ROWS)
    _, (action, extras) = jax.lax.scan(step, begun, jax.random.split(key, TIME))
    no, seen = jnp.zeros((TIME, ROWS), bool), View(jnp.zeros((TIME, ROWS, 1)))
    steps = Transition(seen, action, jnp.zeros((TIME, ROWS)), no, no.at[-1].set(True), seen, no.at[0].set(True), extras)
    return Batch(steps, ~no, begun, jnp.int32(0))


def learnt(method, updates=40):
    def step(state, key):
        state, report = method.update(state, rollout(method, state, key), key)
        return state, report.metrics

    keys = jax.random.split(jax.random.key(1), updates)
    return jax.jit(lambda state: jax.lax.scan(step, state, keys))(method.init(SPEC, jax.random.key(0)))


def test_modes_come_to_be_told_apart_where_that_is_paid_alone():
    method = Modes(ALONE, FixedTemperature(1.0), MODES)
    state, metrics = learnt(method)
    assert metrics["information"][0] < 0.05 and metrics["information"][-1] > 0.8 * np.log(2)
    chances = method.probabilities(
        method.policy(state, Mode.SAMPLE), (jnp.arange(2, dtype="int32"), ((), ())), View(jnp.zeros((2, 1)))
    )
    assert abs(chances[0, 0] - chances[1, 0]) > 0.8


def test_the_weight_rises_until_the_floor_is_reached_and_then_falls():
    method = Modes(ALONE, TunedTemperature(initial=0.01, learning_rate=0.2, target=0.2), MODES)
    _, metrics = learnt(method, 60)
    weight, information = np.asarray(metrics["information_weight"]), np.asarray(metrics["information"])
    assert weight[5] > weight[0] and information[-1] > 0.1
    above = information[:-1] > 0.2
    assert above.any() and weight[-1] < weight.max()


def test_a_mode_lasts_an_episode_and_all_are_drawn():
    method = Modes(ALONE, FixedTemperature(0.0), MODES)
    modes = rollout(method, method.init(SPEC, jax.random.key(0)), jax.random.key(2)).steps.extras["mode"]
    assert np.all(modes == modes[0]) and set(np.asarray(modes[0]).tolist()) == {0, 1}


def test_who_exploits_plays_the_mode_that_the_critic_values_most():
    method = Modes(ALONE, FixedTemperature(0.0), MODES)
    state = method.init(SPEC, jax.random.key(0))
    policy, view = method.policy(state, Mode.EXPLOIT), View(jnp.zeros((1, 1)))
    _, (mode, _), _ = method.act(policy, method.begin(policy, 1), view, jax.random.key(3))
    values = [float(policy.network.critic((), {"mode": jnp.int32(z), "own": jnp.zeros(1)})[0]) for z in range(MODES)]
    assert mode[0] == np.argmax(values) and values[0] != values[1]
