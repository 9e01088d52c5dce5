"""The worlds of JaxMARL behind our :class:`~thespis.core.contracts.Environment`: many agents, those alike in a group.

JaxMARL's own ``step`` resets by itself; here its inner ``step_env`` is used, so the loop owns the ends of episodes. The
library says of an episode only that it is done; here an end by time is a truncation. Agents whose names differ by their
number alone, and whose spaces are the same, are one group, named as the library names them.

The run reports the mean over all agents of their rewards. Where the library gives hints beside the reward (Overcooked),
``spec.params.shaping`` says how much of them is added to what each agent gets (``each``); the reported reward has none
of them. It is 0 unless a name says otherwise (``overcooked/cramped_room?shaping=1``) or a curriculum does.
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

from thespis.core.agents import Group
from thespis.core.errors import UserError
from thespis.core.records import Each, EnvSpec, TimeStep
from thespis.core.spaces import Box, Discrete, MultiDiscrete, Space, dict_space, dtype_of, map_space, shape_of
from thespis.envs.alike import alike
from thespis.envs.compiled.jaxmarl_worlds import Facts, facts, known, make, quiet
from thespis.envs.spaces import box


class Shaping(eqx.Module):
    """How much of the library's hints each agent is given beside its reward."""

    shaping: Float[Array, ""]


class Playing(eqx.Module):
    """One episode under way: JaxMARL's state, who has gone, and the parameters the episode was begun with."""

    inner: PyTree
    gone: Bool[Array, " agent"]
    params: PyTree


class JaxMarl(eqx.Module):
    """JaxMARL's world ``name``: ``MPE_simple_spread_v3``, ``SMAX/3m``, ``hanabi?num_agents=3``.

    What follows a slash is a map, what follows a question mark are options of the library's class.

    Raises:
        UserError: if JaxMARL is missing, has no such world, or the world does not take an option.
    """

    name: str = eqx.field(static=True)

    @property
    def spec(self) -> EnvSpec:
        """Groups, their spaces, the limit, and ``shaping`` where there are hints."""
        return _made(self.name).spec

    def reset(self, params: PyTree, key: Key[Array, ""]) -> tuple[Playing, TimeStep]:
        """The start of one episode."""
        made = _made(self.name)
        with quiet():
            observation, inner = made.world.reset(key)
        playing = Playing(_strong(inner), jnp.zeros(made.world.num_agents, bool), params)
        nothing = {name: jnp.zeros(()) for name in made.world.agents}
        return playing, made.answer(playing, observation, nothing, nothing, jnp.zeros((2,), bool), playing.gone)

    def step(self, state: Playing, action: dict[str, Array], key: Key[Array, ""]) -> tuple[Playing, TimeStep]:
        """One step of all agents; what those do that are not alive means nothing."""
        made = _made(self.name)
        world, told = made.world, made.facts
        actions = {name: action[group][i] for group, names in made.members for i, name in enumerate(names)}
        with quiet():
            observation, inner, rewards, done, info = world.step_env(key, state.inner, actions)
        own = told.natural(world, state.inner, actions, inner)
        flags = jnp.stack([done["__all__"] & own, done["__all__"] & ~own])
        gone = state.gone | told.dead(world, inner) | flags[0]
        playing = Playing(_strong(inner), gone, state.params)
        given = rewards
        if told.shaped:
            given = {name: rewards[name] + state.params.shaping * info["shaped_reward"][name] for name in world.agents}
        return playing, made.answer(playing, observation, rewards, given, flags, gone & ~state.gone)


@dataclasses.dataclass(frozen=True)
class _Made:
    """A world of the library, what is known of it, and its agents by group."""

    world: Any
    facts: Facts
    spec: EnvSpec
    members: tuple[tuple[str, tuple[str, ...]], ...]

    def answer(
        self, playing: Playing, observation: dict, rewards: dict, given: dict, flags: Array, going: Array
    ) -> TimeStep:
        """What the library has answered as a step of ours; ``going``, ``Bool[agent]``: who has gone with this step."""
        world, index = self.world, {name: i for i, name in enumerate(self.world.agents)}
        alive = self.facts.turn(world, playing.inner) & ~playing.gone
        masks = self.facts.legal(world, playing.inner) if self.spec.legal and self.facts.legal else {}
        seen, legal, deciding, each = {}, {}, {}, {}
        for group, names in self.members:
            mine = np.array([index[name] for name in names])
            seen[group] = self._seen(group, [observation[name] for name in names], playing.gone[mine])
            deciding[group] = alive[mine]
            if masks:
                legal[group] = _masks(jnp.stack([masks[name] for name in names]), alive[mine])
            each[group] = Each(jnp.stack([_number(given[name]) for name in names]), going[mine])
        return TimeStep(
            seen,
            jnp.mean(jnp.stack([_number(rewards[name]) for name in world.agents])),
            flags[0],
            flags[1],
            legal or None,
            None if self.facts.told is None else jnp.asarray(observation[self.facts.told], "float32"),
            deciding,
            each=each,
        )

    def _seen(self, group: str, rows: list[Any], gone: Bool[Array, " agent"]) -> PyTree:
        """What the agents of a group see, nothing if they have gone."""

        def leaf(part: Space, *values: Any) -> Array:
            stacked = jnp.stack([jnp.asarray(value, dtype_of(part)).reshape(shape_of(part)) for value in values])
            return jnp.where(gone.reshape(-1, *(1,) * (stacked.ndim - 1)), 0, stacked).astype(stacked.dtype)

        return map_space(leaf, dict(self.spec.observation.parts)[group], *rows)  # pyright: ignore


def _masks(masks: Array, alive: Bool[Array, " agent"]) -> Bool[Array, "agent n"]:
    waiting = jnp.arange(masks.shape[-1]) == 0
    return jnp.where(alive[:, None], masks.astype(bool), waiting)


def _number(reward: Any) -> Float[Array, ""]:
    return jnp.asarray(reward, "float32").reshape(())


def _strong(tree: PyTree) -> PyTree:
    # Python numbers in states are weakly typed at reset and not after a step; scan wants one type.
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), tree)


@functools.cache
def _made(name: str) -> _Made:
    if not known(name):
        raise UserError(f"JaxMARL has no world named {name!r}; see: thespis list envs")
    with jax.ensure_compile_time_eval(), quiet():  # the cache must not hold tracers if first asked under jit
        world, own = make(name)
        told = facts(name)
        emitted = jax.eval_shape(world.reset, jax.random.key(0))[0]
        members = _members(world)
        seen = {g: _observation(world.observation_space(names[0]), emitted[names[0]], told) for g, names in members}
        actions = {g: _action(world.action_space(names[0])) for g, names in members}
        spec = EnvSpec(
            name=f"jaxmarl:{name}",
            observation=dict_space(**seen),
            action=dict_space(**actions),
            legal=told.legal is not None and all(isinstance(space, Discrete) for space in actions.values()),
            time_limit=told.limit(world),
            params=Shaping(jnp.asarray(own.get("shaping", 0.0), "float32")) if told.shaped else (),
            privileged=None if told.told is None else Box(emitted[told.told].shape),
            groups=tuple(Group(group, len(names)) for group, names in members),
        )
    return _Made(world, told, spec, members)


def _members(world: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Names of agents by group, in the library's order."""
    kinds = [(str(vars(world.observation_space(n))), str(vars(world.action_space(n)))) for n in world.agents]
    return tuple((group, tuple(world.agents[i] for i in places)) for group, places in alike(world.agents, kinds))


def _observation(space: Any, emitted: Any, told: Facts) -> Space:
    """The space of what is emitted, which is not always what is declared."""
    from jaxmarl.environments import spaces as library

    if isinstance(space, library.MultiDiscrete):
        return _action(space)
    low, high = (np.broadcast_to(bound, ()) if np.ndim(bound) == 0 else bound for bound in (space.low, space.high))
    shape = (int(np.prod(emitted.shape)),) if told.flat else emitted.shape
    return box(low, high, shape, emitted.dtype)


def _action(space: Any) -> Space:
    from jaxmarl.environments import spaces as library

    match space:
        case library.Discrete():
            return Discrete(int(space.n))
        case library.MultiDiscrete():
            return MultiDiscrete(tuple(int(n) for n in space.num_categories))
        case library.Box():
            return box(space.low, space.high, np.broadcast_shapes(np.shape(space.low), space.shape), space.dtype)
    raise UserError(f"the JaxMARL space {space} is not supported")
