"""Measure of the action gradient of a critic, from which deterministic policy gradients learn."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key, PyTree

from thespis.core.contracts import Environment, Method, Mode
from thespis.core.records import Transition, View
from thespis.core.spaces import Box, unscale_action
from thespis.envs import registry
from thespis.evaluation.run import Run
from thespis.evidence.measures import Measure
from thespis.runtime.keys import seed_key

FINITE_DIFFERENCE_STEP = 0.1
"""Distance of two actions whose returns are compared, in canonical units."""
MAX_WARMUP_STEPS = 100
"""Gradients are compared in states of the first so many steps of an episode, or of all if it has fewer."""


def action_gradient_cosine(num_states: int = 200, horizon: int = 150) -> Measure:
    """Mean cosine similarity, in [-1, 1], of the critic's action gradient and that of the true returns.

    Both are taken at the greedy action in ``num_states`` states of greedy play; the gradient of discounted returns over
    ``horizon`` steps is estimated by finite differences. For compiled deterministic environments with a box of actions
    and without terminations, and for policies without memory.
    """

    def cosines(run: Run) -> Float[np.ndarray, " seed"]:
        env: Any = registry.make_compiled(run.config["env"])
        cosine = lambda state: seed_gradient_cosine(env, run.method, state, num_states, horizon, seed_key(0))  # noqa: E731
        return np.asarray(jax.jit(jax.vmap(cosine))(run.states), np.float64)

    return Measure("agreement of the critic's slope with that of returns", cosines)


def seed_gradient_cosine(
    env: Environment, method: Method, method_state: PyTree, num_states: int, horizon: int, key: Key[Array, ""]
) -> Float[Array, ""]:
    """Mean cosine similarity for one seed's critic; see :func:`action_gradient_cosine`."""
    policy, space = method.policy(method_state, Mode.EXPLOIT), env.spec.action_space
    assert isinstance(space, Box)
    example = env.reset(env.spec.params, key)[1].observation
    max_warmup_steps = min(MAX_WARMUP_STEPS, env.spec.time_limit or MAX_WARMUP_STEPS)
    discount = jnp.asarray(_critique_at(method, method_state, example, jnp.zeros(space.shape)).discount)

    def act(seen: PyTree) -> Array:
        view = View(jax.tree.map(lambda x: x[None], seen))
        return method.act(policy, method.init_memory(policy, 1), view, key)[0][0]

    def step(state: PyTree, action: Array) -> tuple[PyTree, PyTree, Float[Array, ""]]:
        state, time_step = env.step(state, unscale_action(space, action), key)
        return state, time_step.observation, time_step.reward

    def discounted_return(state: PyTree, action: Array) -> Float[Array, ""]:
        def tick(carry, _):
            state, action, total, weight = carry
            state, observation, reward = step(state, action)
            return (state, act(observation), total + weight * reward, discount * weight), None

        start = state, action, jnp.zeros(()), jnp.ones(())
        return jax.lax.scan(tick, start, None, length=horizon)[0][2]

    def cosine_at(key: Key[Array, ""]) -> Float[Array, ""]:
        reset_key, step_key = jax.random.split(key)
        state, time_step = env.reset(env.spec.params, reset_key)
        num_warmup_steps = jax.random.randint(step_key, (), 0, max_warmup_steps)
        state, observation = jax.lax.fori_loop(
            0, num_warmup_steps, lambda _, carry: step(carry[0], act(carry[1]))[:2], (state, time_step.observation)
        )
        action = jnp.clip(act(observation), FINITE_DIFFERENCE_STEP / 2 - 1, 1 - FINITE_DIFFERENCE_STEP / 2)
        offsets = FINITE_DIFFERENCE_STEP / 2 * jnp.eye(action.size).reshape(-1, *action.shape)
        return_gradient = jax.vmap(
            lambda offset: discounted_return(state, action + offset) - discounted_return(state, action - offset)
        )(offsets)
        critic_gradient = jax.grad(lambda a: _critique_at(method, method_state, observation, a).value[0])(
            action
        ).ravel()
        return jnp.dot(return_gradient, critic_gradient) / (
            jnp.linalg.norm(return_gradient) * jnp.linalg.norm(critic_gradient) + 1e-12
        )

    return jnp.mean(jax.lax.map(cosine_at, jax.random.split(key, num_states), batch_size=50))


def _critique_at(method: Method, state: PyTree, observation: PyTree, action: Array) -> Any:
    observation, action, false = jax.tree.map(lambda x: x[None], (observation, action, jnp.zeros((), bool)))
    zero = jnp.zeros(1)
    return method.judge(state, Transition(View(observation), action, zero, false, false, View(observation), false))
