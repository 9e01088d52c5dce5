"""Learned environment: a model of dynamics behind the contract of compiled environments.

The rollout function, evaluation and every method run in it as in any other environment.
"""

from __future__ import annotations

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete, MultiDiscrete, Space, scale_action
from thespis.learners.model_based.termination import Termination
from thespis.nets.body import flatten
from thespis.nets.gaussian_ensemble import GaussianEnsemble


class DynamicsNetwork(eqx.Module):
    """Ensemble of Gaussian networks from observation and action to reward and change of the observation.

    Inputs are standardized by ``input_mean`` and ``input_std``. ``elites`` are the members that predict.
    """

    ensemble: GaussianEnsemble
    input_mean: Float[Array, " in"]
    input_std: Float[Array, " in"]
    elites: Int[Array, " elite"]
    spec: EnvSpec = eqx.field(static=True)
    """Spaces of the environment that is modelled."""

    def standardize(self, inputs: Float[Array, "*row in"]) -> Float[Array, "*row in"]:
        """Inputs as the networks see them."""
        return (inputs - self.input_mean) / self.input_std


def dynamics_input(action_space: Space, observation: Array, action: Array) -> Float[Array, " in"]:
    """Input of the model for one observation and one canonical action: flat, a choice as one-hot."""
    return jnp.concatenate([jnp.ravel(observation), flatten(action_space, action)])


def dynamics_target(observation: Array, reward: Array, next_observation: Array) -> Float[Array, " out"]:
    """Target of the model for one step: the reward, then the change of the observation."""
    return jnp.concatenate([reward[None], jnp.ravel(next_observation - observation)])


def check_dynamics_spec(name: str, spec: EnvSpec) -> None:
    """Check that the dynamics can be modelled. Raises ``UserError`` if not."""
    space = spec.observation_space
    flat = isinstance(space, Box) and space.dtype.startswith("float")
    if not flat or spec.groups or not isinstance(spec.action_space, Box | Discrete | MultiDiscrete):
        raise UserError(
            f"{name} models the dynamics of one agent with observations in one box of floats, and actions that are "
            f"a box or choices; {spec.name} has others: use a method without a model"
        )
    if spec.has_action_mask or spec.privileged_space is not None:
        raise UserError(
            f"{name} does not model which actions are legal, nor what only critics see, and {spec.name} has "
            "such: use a method without a model"
        )


class LearnedEnvState(eqx.Module):
    """State of one episode in the model: the observation, and the number of steps."""

    observation: Float[Array, "*shape"]
    num_steps: Int[Array, ""]


class LearnedEnv(eqx.Module):
    """Environment whose step is predicted by a random elite member of a learned ensemble, with its Gaussian noise.

    Every step draws a member of its own (Janner et al., 2019, algorithm 2).
    """

    network: DynamicsNetwork
    termination: Termination | None
    """Termination: LearnedTermination, HealthyRange or your own; None: no episode terminates."""
    initial_observations: Float[Array, "start *shape"]
    """Observations with which episodes begin, each as likely as the others."""
    time_limit: int | None = eqx.field(static=True, default=None)
    """Number of steps after which an episode is truncated; None: none is."""

    @property
    def spec(self) -> EnvSpec:
        """Spaces of the environment that is modelled, with this time limit."""
        return dataclasses.replace(self.network.spec, time_limit=self.time_limit)

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[LearnedEnvState, TimeStep]:
        """Start an episode at one of the initial observations."""
        start = jax.random.randint(key, (), 0, self.initial_observations.shape[0])
        return self.start_at(self.initial_observations[start])

    def start_at(self, observation: Float[Array, "*shape"]) -> tuple[LearnedEnvState, TimeStep]:
        """Start an episode at a given observation."""
        state = LearnedEnvState(observation, jnp.zeros((), "int32"))
        return state, _time_step(state, jnp.zeros(()), jnp.zeros((), bool), None)

    def step(self, state: LearnedEnvState, action: PyTree, key: Key[Array, ""]) -> tuple[LearnedEnvState, TimeStep]:
        """The next observation, reward and termination, as one elite member predicts them, with its noise."""
        member_key, noise_key = jax.random.split(key)
        space = self.network.spec.action_space
        inputs = dynamics_input(space, state.observation, scale_action(space, action))
        members = self.network.ensemble.select(self.network.elites)
        prediction = members.predict(self.network.standardize(inputs))
        member = jax.random.randint(member_key, (), 0, members.num_members)
        mean, log_variance, logits = (leaf[member] for leaf in prediction)
        outputs = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(noise_key, mean.shape)
        observation = state.observation + outputs[1:].reshape(state.observation.shape)
        terminated = jnp.zeros((), bool)
        if self.termination is not None:
            terminated = self.termination(jnp.ravel(state.observation), jnp.ravel(observation), logits)
        after = LearnedEnvState(observation, state.num_steps + 1)
        return after, _time_step(after, outputs[0], terminated, self.time_limit)


def _time_step(state: LearnedEnvState, reward: Array, terminated: Array, time_limit: int | None) -> TimeStep:
    truncated = jnp.zeros((), bool) if time_limit is None else ~terminated & (state.num_steps >= time_limit)
    return TimeStep(state.observation, reward, terminated, truncated)


def model_spec(spec: EnvSpec) -> EnvSpec:
    """The spec of a model of an environment: its spaces, without limits, parameters, channels and goals."""
    return EnvSpec(f"model of {spec.name}", spec.observation_space, spec.action_space)
