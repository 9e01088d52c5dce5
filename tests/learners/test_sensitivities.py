"""An actor-critic that carries sensitivities learns from short rollouts what it would from whole episodes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thespis.core.contracts import Mode
from thespis.core.feeds import Rollouts
from thespis.core.records import Batch, EnvSpec, Transition, View
from thespis.core.spaces import Box, Discrete
from thespis.learners.actor_critic import Evaluated
from thespis.learners.on_policy import replay
from thespis.methods.online.a2c import A2C
from thespis.methods.online.r2ac import R2AC
from thespis.nets.elstm import ELSTM

TIME, ROWS, PART = 12, 2, 3
SPEC = EnvSpec("made", Box((3,)), Discrete(4))
KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
SEEN, FIRST = RNG.normal(size=(TIME, ROWS, 3)).astype("float32"), np.zeros((TIME, ROWS), bool)
FIRST[[0, 0, 4], [0, 1, 1]] = True  # one episode throughout, and one that ends within a rollout
ACTION = jnp.asarray(RNG.integers(0, 4, (TIME, ROWS)), "int32")
ADVANTAGE, TARGET = jnp.asarray(RNG.normal(size=(2, TIME, ROWS)), "float32")


METHODS = [kind(hidden=(), memory=ELSTM(4), feed=Rollouts(PART, envs=ROWS)) for kind in (A2C, R2AC)]


def cores_of(network):
    return network.body.core, network.critic.body.core


def begun(method):
    """A fresh state with larger weights of the cells, so that what is far back matters."""
    state = jax.jit(lambda: method.init(SPEC, KEY))()
    return eqx.tree_at(lambda s: [c.gates for c in cores_of(s.network)], state, replace_fn=lambda gates: 8.0 * gates)


def forgotten(memory):
    """The same cells, of whose past nothing is known."""
    return jax.tree.map(lambda m: jnp.zeros_like(m) if m.ndim > 2 else m, memory)


def memories(method, state):
    """The memory before each step, as a loop carries it along."""
    policy = method.policy(state, Mode.EXPLORE)
    memory, found = method.begin(policy, ROWS), []
    act = jax.jit(method.act)
    for seen, first in zip(SEEN, FIRST, strict=True):
        found.append(memory)
        clear = lambda m, first=first: jnp.where(first.reshape(-1, *[1] * (m.ndim - 1)), 0.0, m)  # noqa: E731
        memory = act(policy, jax.tree.map(clear, memory), View(jnp.asarray(seen)), KEY)[1]
    return found


def test_actor_and_critic_have_the_gradient_of_whole_episodes():
    learner = METHODS[0]
    state, nothing = begun(learner), jnp.zeros((TIME, ROWS))
    data = Evaluated(View(jnp.asarray(SEEN)), ACTION, nothing, nothing, ADVANTAGE, TARGET, jnp.asarray(FIRST))
    at = memories(learner, state)

    @jax.jit
    @jax.grad
    def gradient(network, memory, data):
        now = replay(network, memory, data)
        return jnp.sum(jnp.square(now.value - data.target) - now.log_prob * data.advantage)

    def total(length, memories):
        parts = [slice(t, t + length) for t in range(0, TIME, length)]
        found = [gradient(state.network, memories[p.start], jax.tree.map(lambda x, p=p: x[p], data)) for p in parts]
        return [sum(core.gates for core in cores) for cores in zip(*map(cores_of, found), strict=True)]

    for whole, short, cut in zip(total(TIME, at), total(PART, at), total(PART, list(map(forgotten, at))), strict=True):
        scale = jnp.abs(whole).max()
        np.testing.assert_allclose(short / scale, whole / scale, atol=1e-5)
        assert jnp.abs(cut - whole).max() > 0.02 * scale


def rollout(memory, first):
    view = View(jnp.asarray(SEEN[:PART]))
    no, reward = jnp.zeros((PART, ROWS), bool), ADVANTAGE[:PART]
    extras = {"log_prob": jnp.full((PART, ROWS), -jnp.log(4.0))}
    steps = Transition(view, ACTION[:PART], reward, no, no, view, jnp.asarray(first), extras)
    return Batch(steps, ~no, memory, jnp.int32(0))


@pytest.mark.parametrize("learner", METHODS, ids=lambda m: m.name)
def test_an_update_uses_what_memory_carries_unless_an_episode_begins(learner):
    state = begun(learner)
    memory = memories(learner, state)[6]
    without = forgotten(memory)
    update, went_on, began = jax.jit(learner.update), np.zeros((PART, ROWS), bool), FIRST[:PART]

    def gates(memory, first):
        return update(state, rollout(memory, first), KEY)[0].network.body.core.gates

    assert not np.array_equal(gates(memory, went_on), gates(without, went_on))
    np.testing.assert_array_equal(gates(memory, began), gates(without, began))


def test_the_paper_recalls():
    memory = R2AC().memory
    assert isinstance(memory, ELSTM) and memory.sensitivities
