"""A linear system with Gaussian noise as an environment, and a model that knows it exactly."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from thespis.core.records import EnvSpec, TimeStep, Transition, View
from thespis.core.spaces import Box, scale_action
from thespis.learners.model_based.learned_env import DynamicsNetwork, model_spec
from thespis.nets.gaussian_ensemble import GaussianEnsemble


class LinearEnv(eqx.Module):
    """``x' = A x + b a + noise`` for canonical actions ``a``, reward ``c x + a / 2``; ends where ``x'[0] > bound``."""

    gain: float = eqx.field(static=True, default=0.5)
    noise: float = eqx.field(static=True, default=0.0)
    bound: float = eqx.field(static=True, default=float("inf"))

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("linear", Box((2,)), Box((1,), -2.0, 2.0), time_limit=50)

    @property
    def matrices(self) -> tuple[Array, Array]:
        return jnp.asarray([[0.9, 0.2], [-0.2, 0.9]]), jnp.asarray([[0.0, self.gain]])

    def mean_step(self, x: Float[Array, "2"], action: Float[Array, "1"]) -> Float[Array, "2"]:
        matrix, gain = self.matrices
        return x @ matrix.T + scale_action(self.spec.action_space, action) @ gain

    def reward(self, x: Float[Array, "2"], action: Float[Array, "1"]) -> Float[Array, ""]:
        return x[0] - 0.5 * x[1] + 0.5 * scale_action(self.spec.action_space, action)[0]

    def reset(self, params, key):
        x = jax.random.normal(key, (2,))
        false = jnp.zeros((), bool)
        return (x, jnp.int32(0)), TimeStep(x, jnp.zeros(()), false, false)

    def step(self, state, action, key):
        x, count = state
        after = self.mean_step(x, action) + self.noise * jax.random.normal(key, (2,))
        terminated = after[0] > self.bound
        step = TimeStep(after, self.reward(x, action), terminated, ~terminated & (count + 1 >= 50))
        return (after, count + 1), step


def linear_rollout(env: LinearEnv, num_steps: int, num_envs: int, seed: int = 0) -> Transition:
    """Steps ``[time, env]`` from random states with random actions, as numpy arrays: no episode goes on."""
    return jax.tree.map(np.asarray, _linear_rollout(env, (num_steps, num_envs), jax.random.key(seed)))


@eqx.filter_jit
def _linear_rollout(env: LinearEnv, shape: tuple[int, int], key) -> Transition:
    keys = jax.random.split(key, (3, *shape))
    x = 1.5 * jax.vmap(jax.vmap(lambda key: jax.random.normal(key, (2,))))(keys[0])
    action = jax.vmap(jax.vmap(lambda key: jax.random.uniform(key, (1,), minval=-1.0)))(keys[1])
    state = x, jnp.zeros(shape, "int32")
    _, step = jax.vmap(jax.vmap(env.step))(state, 2.0 * action, keys[2])
    first = jnp.ones_like(step.terminated)
    return Transition(View(x), action, step.reward, step.terminated, step.truncated, step.view, first)


def exact_model(envs: list[LinearEnv], elites: tuple[int, ...] = (0,)) -> DynamicsNetwork:
    """One linear member for each environment; its rewards have no noise to speak of."""
    net = GaussianEnsemble(len(envs), 3, (), 3, jax.random.key(0), lowest_log_variance=-90.0)
    weights, biases = [], []
    for env in envs:
        matrix, gain = env.matrices
        change = jnp.concatenate([(matrix - jnp.eye(2)).T, gain])
        weights.append(jnp.concatenate([jnp.asarray([[1.0], [-0.5], [0.5]]), change, jnp.zeros((3, 3))], axis=1))
        log_noise = 2 * jnp.log(jnp.full(2, max(env.noise, 1e-20)))
        biases.append(jnp.concatenate([jnp.zeros(3), jnp.full(1, -80.0), log_noise]))
    net = eqx.tree_at(
        lambda n: (n.layers[0].weight, n.layers[0].bias, n.min_log_variance, n.max_log_variance),
        net,
        (jnp.stack(weights), jnp.stack(biases), jnp.full(3, -90.0), jnp.full(3, 30.0)),
    )
    elites_array = jnp.asarray(elites, "int32")
    return DynamicsNetwork(net, jnp.zeros(3), jnp.ones(3), elites_array, model_spec(envs[0].spec))
