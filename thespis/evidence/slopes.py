"""Whether a critic knows in which direction an action gets better, which is all that an actor learns from it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.contracts import Environment, Method, Mode
from thespis.core.keys import key_of
from thespis.core.records import Transition, View
from thespis.core.spaces import Box, to_world
from thespis.envs import registry
from thespis.evidence.measures import Measure
from thespis.trained import Run

APART = 0.1
"""How far apart two actions are whose returns are compared, in canonical units."""


def slope_agreement(states: int = 200, horizon: int = 150) -> Measure:
    """Mean cosine, in [-1, 1], between a critic's slope along the action and that of the returns that follow.

    Both at the greedy action in ``states`` states of greedy play, the returns discounted, over ``horizon`` steps, by
    finite differences. For compiled worlds of one box of actions without terminations or chance, and actors without
    memory.
    """

    def of(run: Run) -> Float[np.ndarray, " seed"]:
        world: Any = registry.compiled(run.config["env"])
        one = lambda state: agreement(world, run.method, state, states, horizon, key_of(0))  # noqa: E731
        return np.asarray(jax.jit(jax.vmap(one))(run.states), np.float64)

    return Measure("agreement of the critic's slope with that of returns", of)


def agreement(
    world: Environment, method: Method, learnt: PyTree, states: int, horizon: int, key: Key[Array, ""]
) -> Float[Array, ""]:
    """That of one seed's critic."""
    policy, space = method.policy(learnt, Mode.EXPLOIT), world.spec.action
    assert isinstance(space, Box)
    example = world.reset(world.spec.params, key)[1].observation
    discount = jnp.asarray(_judged(method, learnt, example, jnp.zeros(space.shape)).discount)

    def act(seen: PyTree) -> Array:
        rows = View(jax.tree.map(lambda x: x[None], seen))
        return method.act(policy, method.begin(policy, 1), rows, key)[0][0]

    def step(state: PyTree, action: Array) -> tuple[PyTree, PyTree, Float[Array, ""]]:
        state, answer = world.step(state, to_world(space, action), key)
        return state, answer.observation, answer.reward

    def earned(state: PyTree, action: Array) -> Float[Array, ""]:
        def tick(carry, _):
            state, action, total, weight = carry
            state, seen, reward = step(state, action)
            return (state, act(seen), total + weight * reward, discount * weight), None

        begun = state, action, jnp.zeros(()), jnp.ones(())
        return jax.lax.scan(tick, begun, None, length=horizon)[0][2]

    def at(key: Key[Array, ""]) -> Float[Array, ""]:
        begin_key, when_key = jax.random.split(key)
        state, answer = world.reset(world.spec.params, begin_key)
        when = jax.random.randint(when_key, (), 0, 100)
        state, seen = jax.lax.fori_loop(
            0, when, lambda _, now: step(now[0], act(now[1]))[:2], (state, answer.observation)
        )
        action = jnp.clip(act(seen), APART / 2 - 1, 1 - APART / 2)
        nudges = APART / 2 * jnp.eye(action.size).reshape(-1, *action.shape)
        true = jax.vmap(lambda nudge: earned(state, action + nudge) - earned(state, action - nudge))(nudges)
        found = jax.grad(lambda a: _judged(method, learnt, seen, a).value[0])(action).ravel()
        return jnp.dot(true, found) / (jnp.linalg.norm(true) * jnp.linalg.norm(found) + 1e-12)

    return jnp.mean(jax.lax.map(at, jax.random.split(key, states), batch_size=50))


def _judged(method: Method, learnt: PyTree, seen: PyTree, action: Array) -> Any:
    seen, action, no = jax.tree.map(lambda x: x[None], (seen, action, jnp.zeros((), bool)))
    nothing = jnp.zeros(1)
    return method.judge(learnt, Transition(View(seen), action, nothing, no, no, View(seen), no))
