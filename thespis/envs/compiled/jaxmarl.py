"""Adapter for JaxMARL environments: several agents, grouped by name and spaces.

JaxMARL's own ``step`` resets automatically. This adapter calls ``step_env`` instead, so the training loop controls
where episodes end. The library says only that an episode is done; here a time limit is a truncation. Agents whose names
differ only by their number, and whose spaces are the same, are one group, named as the library names them.

The run reports the mean of all agents' rewards. Where the library provides shaped rewards (Overcooked),
``spec.params.shaping`` is the weight with which they are added to each agent's reward (``agent_outcomes``); the
reported reward excludes them. The weight is 0 unless the name (``overcooked/cramped_room?shaping=1``) or a curriculum
sets it.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import AgentOutcome, EnvSpec, TimeStep
from thespis.core.spaces import (
    AgentGroup,
    Box,
    Discrete,
    MultiDiscrete,
    Space,
    dict_space,
    map_space,
    space_dtype,
    space_shape,
)
from thespis.envs.agent_groups import group_agents
from thespis.envs.compiled.jaxmarl_metadata import JaxMarlMetadata, get_metadata, has_env, make_env, suppress_output
from thespis.envs.space_conversion import make_box


class ShapingParams(eqx.Module):
    """Parameters of one episode: the weight of the library's shaped rewards in each agent's reward."""

    shaping: Float[Array, ""]


class JaxMarlState(eqx.Module):
    """State of one episode: JaxMARL's state, the agents that have terminated, and the episode's parameters."""

    env_state: PyTree
    agent_terminated: Bool[Array, " agent"]
    params: PyTree


class JaxMarl(eqx.Module):
    """Adapter for the JaxMARL environment called ``name``.

    Examples of names are ``MPE_simple_spread_v3``, ``SMAX/3m`` and ``hanabi?num_agents=3``. A map follows a slash;
    options of the library's class follow a question mark.

    Raises:
        UserError: if JaxMARL is missing, has no such environment, or the environment does not take an option.
    """

    name: str = eqx.field(static=True)

    @property
    def spec(self) -> EnvSpec:
        """Groups, their spaces, the time limit, and ``shaping`` where there are shaped rewards."""
        return _load_env(self.name).spec

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[JaxMarlState, TimeStep]:
        """Start an episode and return its state and first time step."""
        loaded = _load_env(self.name)
        with suppress_output():
            observation, env_state = loaded.env.reset(key)
        state = JaxMarlState(_strip_weak_types(env_state), jnp.zeros(loaded.env.num_agents, bool), params)
        zeros = {name: jnp.zeros(()) for name in loaded.env.agents}
        return state, loaded.make_time_step(
            state, observation, zeros, zeros, jnp.zeros((2,), bool), state.agent_terminated
        )

    def step(self, state: JaxMarlState, action: dict[str, Array], key: Key[Array, ""]) -> tuple[JaxMarlState, TimeStep]:
        """One step of all agents; actions of agents that are not alive are ignored."""
        loaded = _load_env(self.name)
        env, metadata = loaded.env, loaded.metadata
        actions = {name: action[group][i] for group, names in loaded.group_members for i, name in enumerate(names)}
        with suppress_output():
            observation, env_state, rewards, done, info = env.step_env(key, state.env_state, actions)
        terminal = metadata.is_terminal(env, state.env_state, actions, env_state)
        flags = jnp.stack([done["__all__"] & terminal, done["__all__"] & ~terminal])
        terminated = state.agent_terminated | metadata.is_dead(env, env_state) | flags[0]
        next_state = JaxMarlState(_strip_weak_types(env_state), terminated, state.params)
        agent_rewards = rewards
        if metadata.has_shaping:
            agent_rewards = {
                name: rewards[name] + state.params.shaping * info["shaped_reward"][name] for name in env.agents
            }
        return next_state, loaded.make_time_step(
            next_state, observation, rewards, agent_rewards, flags, terminated & ~state.agent_terminated
        )


@dataclasses.dataclass(frozen=True)
class _LoadedEnv:
    """An environment of the library, its metadata and spec, and its agents by group."""

    env: Any
    metadata: JaxMarlMetadata
    spec: EnvSpec
    group_members: tuple[tuple[str, tuple[str, ...]], ...]

    def make_time_step(
        self,
        state: JaxMarlState,
        observation: dict,
        rewards: dict,
        agent_rewards: dict,
        flags: Array,
        newly_terminated: Array,
    ) -> TimeStep:
        """Converts the library's results; ``newly_terminated``, ``Bool[agent]``: agents that terminate in this step."""
        env, index = self.env, {name: i for i, name in enumerate(self.env.agents)}
        alive = self.metadata.is_turn(env, state.env_state) & ~state.agent_terminated
        masks = (
            self.metadata.action_masks(env, state.env_state)
            if self.spec.has_action_mask and self.metadata.action_masks
            else {}
        )
        observations, action_masks, alive_by_group, outcomes = {}, {}, {}, {}
        for group, names in self.group_members:
            indices = np.array([index[name] for name in names])
            observations[group] = self._group_observations(
                group, [observation[name] for name in names], state.agent_terminated[indices]
            )
            alive_by_group[group] = alive[indices]
            if masks:
                action_masks[group] = _action_masks(jnp.stack([masks[name] for name in names]), alive[indices])
            outcomes[group] = AgentOutcome(
                jnp.stack([_to_scalar(agent_rewards[name]) for name in names]), newly_terminated[indices]
            )
        return TimeStep(
            observations,
            jnp.mean(jnp.stack([_to_scalar(rewards[name]) for name in env.agents])),
            flags[0],
            flags[1],
            action_masks or None,
            None if self.metadata.state_key is None else jnp.asarray(observation[self.metadata.state_key], "float32"),
            alive_by_group,
            agent_outcomes=outcomes,
        )

    def _group_observations(self, group: str, rows: list[Any], gone: Bool[Array, " agent"]) -> PyTree:
        """Observations of a group's agents; zeros for agents that have terminated."""

        def leaf(part: Space, *values: Any) -> Array:
            stacked = jnp.stack([jnp.asarray(value, space_dtype(part)).reshape(space_shape(part)) for value in values])
            return jnp.where(gone.reshape(-1, *(1,) * (stacked.ndim - 1)), 0, stacked).astype(stacked.dtype)

        return map_space(leaf, dict(self.spec.observation_space.spaces)[group], *rows)  # pyright: ignore


def _action_masks(masks: Array, alive: Bool[Array, " agent"]) -> Bool[Array, "agent n"]:
    noop = jnp.arange(masks.shape[-1]) == 0
    return jnp.where(alive[:, None], masks.astype(bool), noop)


def _to_scalar(reward: Any) -> Float[Array, ""]:
    return jnp.asarray(reward, "float32").reshape(())


def _strip_weak_types(tree: PyTree) -> PyTree:
    # Python numbers in states are weakly typed at reset and not after a step; scan needs one type.
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), tree)


@functools.cache
def _load_env(name: str) -> _LoadedEnv:
    if not has_env(name):
        raise UserError(f"JaxMARL has no environment named {name!r}; see: thespis list envs")
    with jax.ensure_compile_time_eval(), suppress_output():  # the cache must not hold tracers
        env, own_options = make_env(name)
        metadata = get_metadata(name)
        observations = jax.eval_shape(env.reset, jax.random.key(0))[0]
        members = _group_members(env)
        observation_spaces = {
            g: _observation_space(env.observation_space(names[0]), observations[names[0]], metadata)
            for g, names in members
        }
        action_spaces = {g: _action_space(env.action_space(names[0])) for g, names in members}
        spec = EnvSpec(
            name=f"jaxmarl:{name}",
            observation_space=dict_space(**observation_spaces),
            action_space=dict_space(**action_spaces),
            has_action_mask=metadata.action_masks is not None
            and all(isinstance(space, Discrete) for space in action_spaces.values()),
            time_limit=metadata.time_limit(env),
            params=ShapingParams(jnp.asarray(own_options.get("shaping", 0.0), "float32"))
            if metadata.has_shaping
            else (),
            privileged_space=None if metadata.state_key is None else Box(observations[metadata.state_key].shape),
            groups=tuple(AgentGroup(group, len(names)) for group, names in members),
        )
    return _LoadedEnv(env, metadata, spec, members)


def _group_members(env: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Agents' names by group, in the library's order."""
    spaces = [(str(vars(env.observation_space(n))), str(vars(env.action_space(n)))) for n in env.agents]
    return tuple((group, tuple(env.agents[i] for i in indices)) for group, indices in group_agents(env.agents, spaces))


def _observation_space(space: Any, emitted: Any, told: JaxMarlMetadata) -> Space:
    """The space of the emitted observation, which is not always the declared one."""
    from jaxmarl.environments import spaces as library

    if isinstance(space, library.MultiDiscrete):
        return _action_space(space)
    low, high = (np.broadcast_to(bound, ()) if np.ndim(bound) == 0 else bound for bound in (space.low, space.high))
    shape = (int(np.prod(emitted.shape)),) if told.flatten_observation else emitted.shape
    return make_box(low, high, shape, emitted.dtype)


def _action_space(space: Any) -> Space:
    from jaxmarl.environments import spaces as library

    match space:
        case library.Discrete():
            return Discrete(int(space.n))
        case library.MultiDiscrete():
            return MultiDiscrete(tuple(int(n) for n in space.num_categories))
        case library.Box():
            return make_box(space.low, space.high, np.broadcast_shapes(np.shape(space.low), space.shape), space.dtype)
    raise UserError(f"the JaxMARL space {space} is not supported")
