"""What the critic of one agent among many sees in training: what the agent sees, what all see, or what all see and do.

What is seen takes the place of the observation, as whatever is privileged does; actors never see it. Of agents that do
not decide nothing is seen: zeros.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PyTree

from thespis.core.agents import Group
from thespis.core.records import Batch, EnvSpec, View
from thespis.core.spaces import Discrete, Space, Tree, dict_space, tuple_space

Follow = Callable[[], dict[str, PyTree]]
"""What all agents are taken to do at the next views, by group, ``[time, row, agent, ...]``."""
Shown = dict[str, tuple[PyTree, PyTree]]
"""What critics see now and next, by group, ``[time, row, agent, ...]``; ``None``: what the agent sees."""


class Own(eqx.Module):
    """What the agent sees: the others are part of the world."""

    def space(self, spec: EnvSpec, group: Group) -> Space | None:
        """What the critics of a group see beside the agent's own observation, or in its place."""
        return None

    def shown(self, groups: tuple[Group, ...], batch: Batch, follow: Follow) -> Shown:
        """Nothing but that."""
        return {group.name: (None, None) for group in groups}


class Everyone(eqx.Module):
    """The state where the world shows one, beside the agent's own observation; else what all agents see.

    And which of its group the agent is, as its critic may be that of all.
    """

    def space(self, spec: EnvSpec, group: Group) -> Space:
        """What the critics of a group see."""
        own = _part(spec.observation, group.name)
        whole = {"all": joint_space(spec)} if spec.privileged is None else {"all": spec.privileged, "own": own}
        return dict_space(**whole, which=Discrete(group.count))

    def shown(self, groups: tuple[Group, ...], batch: Batch, follow: Follow) -> Shown:
        """The same for all agents but for who they are and what they see."""
        steps = batch.steps
        pairs = (steps.view, steps.privileged), (steps.next_view, steps.next_privileged)

        def one(group: Group, view: View, told: PyTree) -> PyTree:
            seen = {"all": _for_all(joint(groups, view, told), group.count), "which": _numbered(group, batch)}
            return seen if told is None else seen | {"own": view.observation[group.name]}

        now, following = ({g.name: one(g, *pair) for g in groups} for pair in pairs)
        return {name: (now[name], following[name]) for name in now}


class EveryoneAndActions(eqx.Module):
    """As :class:`Everyone`, and what all others do: what they did now, what they are taken to do next."""

    def space(self, spec: EnvSpec, group: Group) -> Space:
        """What the critics of a group see."""
        return tuple_space(Everyone().space(spec, group), _copies(spec.action, spec.groups))

    def shown(self, groups: tuple[Group, ...], batch: Batch, follow: Follow) -> Shown:
        """What all see, and what the others do; the agent's own action is left out, as critics are given it apart."""
        steps, seen = batch.steps, Everyone().shown(groups, batch, follow)
        done, next_done = (_split(groups, *x) for x in ((steps.action, steps.view), (follow(), steps.next_view)))
        return {g.name: ((seen[g.name][0], _others(g, done)), (seen[g.name][1], _others(g, next_done))) for g in groups}


Sight = Own | Everyone | EveryoneAndActions


def joint_space(spec: EnvSpec) -> Space:
    """The state where the world shows one, else what every agent sees."""
    return _copies(spec.observation, spec.groups) if spec.privileged is None else spec.privileged


def joint(groups: tuple[Group, ...], view: View, told: PyTree) -> PyTree:
    """A value of :func:`joint_space` for views with axes in front of ``[agent]``; zeros for those who do not decide."""
    return _split(groups, view.observation, view) if told is None else told


def numbered(spec: EnvSpec, group: Group) -> EnvSpec:
    """The world as one agent of a group sees it that knows which one it is."""
    seen = dict_space(own=_part(spec.observation, group.name), which=Discrete(group.count))
    action = _part(spec.action, group.name)
    return EnvSpec(f"{spec.name}/{group.name}", seen, action, spec.legal, spec.time_limit)


def _part(space: Space, name: str) -> Space:
    assert isinstance(space, Tree)
    return dict(space.parts)[name]


def _copies(space: Space, groups: tuple[Group, ...]) -> Space:
    """A space for each agent, in a tuple by group."""
    return dict_space(**{g.name: tuple_space(*[_part(space, g.name)] * g.count) for g in groups})


def _split(groups: tuple[Group, ...], values: dict[str, PyTree], view: View) -> dict[str, tuple[PyTree, ...]]:
    """Values ``[..., agent, ...]`` as one for each agent, zeros for those who do not decide."""

    def agents(group: Group) -> tuple[PyTree, ...]:
        alive = view.alive[group.name]

        def one(x: Array, i: int) -> Array:
            there = alive[..., i].reshape(alive.shape[:-1] + (1,) * (x.ndim - alive.ndim))
            value = jnp.take(x, i, axis=alive.ndim - 1)
            return jnp.where(there, value, jnp.zeros((), x.dtype))

        return tuple(jax.tree.map(lambda x, i=i: one(x, i), values[group.name]) for i in range(group.count))

    return {group.name: agents(group) for group in groups}


def _for_all(tree: PyTree, count: int) -> PyTree:
    """Values ``[time, row, ...]`` for every agent of a group."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x[:, :, None], (*x.shape[:2], count, *x.shape[2:])), tree)


def _numbered(group: Group, batch: Batch) -> Array:
    return jnp.broadcast_to(jnp.arange(group.count, dtype="int32"), (*batch.mask.shape, group.count))


def _others(group: Group, done: dict[str, tuple[PyTree, ...]]) -> PyTree:
    """What all do, as each agent of a group is shown it: its own action is zeros."""
    shown: dict[str, Any] = {name: _for_all(actions, group.count) for name, actions in done.items()}

    def without(i: int, x: Array) -> Array:
        return x.at[:, :, i].set(jnp.zeros((), x.dtype))

    mine = enumerate(shown[group.name])
    shown[group.name] = tuple(jax.tree.map(lambda x, i=i: without(i, x), action) for i, action in mine)
    return shown
