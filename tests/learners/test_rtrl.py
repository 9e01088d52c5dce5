"""Real-time recurrent actor-critic (R2AC): gradients of short rollouts, against those of whole episodes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import Mode
from thespis.core.records import Batch, EnvSpec, Transition, View
from thespis.core.spaces import Box, Discrete
from thespis.data.feeds import Rollouts
from thespis.learners.on_policy.actor_critic import RolloutWithAdvantages
from thespis.learners.on_policy.method import evaluate_rollout
from thespis.methods.online.a2c import A2C
from thespis.nets.elstm import ELSTM
from thespis.papers.rtrl_actor_critic.method import R2AC

TIME, ROWS, ROLLOUT = 12, 2, 3
SPEC = EnvSpec("made", Box((3,)), Discrete(4))
KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
OBS, FIRST = RNG.normal(size=(TIME, ROWS, 3)).astype("float32"), np.zeros((TIME, ROWS), bool)
FIRST[[0, 0, 4], [0, 1, 1]] = True  # row 0 is one episode, in row 1 an episode ends within a rollout
ACTION = jnp.asarray(RNG.integers(0, 4, (TIME, ROWS)), "int32")
ADVANTAGE, TARGET = jnp.asarray(RNG.normal(size=(2, TIME, ROWS)), "float32")


METHODS = [kind(hidden_sizes=(), memory=ELSTM(4), feed=Rollouts(ROLLOUT, num_envs=ROWS)) for kind in (A2C, R2AC)]


def cores_of(network):
    return network.body.core, network.critic.body.core


def init_state(method):
    """An initial state with larger cell weights, so that early steps matter."""
    state = jax.jit(lambda: method.init(SPEC, KEY))()
    return eqx.tree_at(lambda s: [c.gates for c in cores_of(s.network)], state, replace_fn=lambda gates: 8.0 * gates)


def without_sensitivities(memory):
    """The same cells with sensitivities of zero."""
    return jax.tree.map(lambda m: jnp.zeros_like(m) if m.ndim > 2 else m, memory)


def memories_by_step(method, state):
    """The memory before each step, as a training loop carries it."""
    policy = method.policy(state, Mode.EXPLORE)
    memory, memories = method.init_memory(policy, ROWS), []
    act = jax.jit(method.act)
    for obs, first in zip(OBS, FIRST, strict=True):
        memories.append(memory)
        clear = lambda m, first=first: jnp.where(first.reshape(-1, *[1] * (m.ndim - 1)), 0.0, m)  # noqa: E731
        memory = act(policy, jax.tree.map(clear, memory), View(jnp.asarray(obs)), KEY)[1]
    return memories


@pytest.mark.long
def test_short_rollouts_have_the_gradient_of_whole_episodes():
    learner = METHODS[0]
    state, zeros = init_state(learner), jnp.zeros((TIME, ROWS))
    data = RolloutWithAdvantages(View(jnp.asarray(OBS)), ACTION, zeros, zeros, ADVANTAGE, TARGET, jnp.asarray(FIRST))
    step_memories = memories_by_step(learner, state)

    @jax.jit
    @jax.grad
    def gradient(network, memory, data):
        evaluation = evaluate_rollout(network, memory, data)
        return jnp.sum(jnp.square(evaluation.value - data.target) - evaluation.log_prob * data.advantage)

    def total(length, memories_by_step):
        slices = [slice(t, t + length) for t in range(0, TIME, length)]
        gradients = [
            gradient(state.network, memories_by_step[p.start], jax.tree.map(lambda x, p=p: x[p], data)) for p in slices
        ]
        return [sum(core.gates for core in cores) for cores in zip(*map(cores_of, gradients), strict=True)]

    for whole, short, truncated in zip(
        total(TIME, step_memories),
        total(ROLLOUT, step_memories),
        total(ROLLOUT, list(map(without_sensitivities, step_memories))),
        strict=True,
    ):
        scale = jnp.abs(whole).max()
        np.testing.assert_allclose(short / scale, whole / scale, atol=1e-5)
        assert jnp.abs(truncated - whole).max() > 0.02 * scale


def rollout(memory, first):
    view = View(jnp.asarray(OBS[:ROLLOUT]))
    false, reward = jnp.zeros((ROLLOUT, ROWS), bool), ADVANTAGE[:ROLLOUT]
    extras = {"log_prob": jnp.full((ROLLOUT, ROWS), -jnp.log(4.0))}
    steps = Transition(view, ACTION[:ROLLOUT], reward, false, false, view, jnp.asarray(first), extras)
    return Batch(steps, ~false, memory, jnp.int32(0))


@pytest.mark.long
@pytest.mark.parametrize("learner", METHODS, ids=lambda m: m.name)
def test_updates_use_carried_sensitivities_unless_an_episode_begins(learner):
    state = init_state(learner)
    memory = memories_by_step(learner, state)[6]
    cleared = without_sensitivities(memory)
    update, no_first, with_first = jax.jit(learner.update), np.zeros((ROLLOUT, ROWS), bool), FIRST[:ROLLOUT]

    def gates(memory, first):
        return update(state, rollout(memory, first), KEY)[0].network.body.core.gates

    assert not np.array_equal(gates(memory, no_first), gates(cleared, no_first))
    np.testing.assert_array_equal(gates(memory, with_first), gates(cleared, with_first))


def test_r2ac_uses_rtrl_by_default():
    memory = R2AC().memory
    assert isinstance(memory, ELSTM) and memory.use_rtrl
