"""The nets of a team, and their values over windows of steps."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PyTree

from thespis.core.agents import Group
from thespis.core.records import Transition, View
from thespis.critics.central import joint
from thespis.critics.embedding import Embedding
from thespis.critics.matching import Matching
from thespis.critics.mixing import Scene, Utility
from thespis.nets.body import unroll

Values = dict[str, Array]
"""Values by group: ``[time, row, agent]``, or of every choice ``[time, row, agent, n]``; groups differ in both."""


class Team(eqx.Module):
    """A net for each group, and what mixes their values."""

    of: dict[str, Utility | Matching | Embedding]
    mixer: Any
    groups: tuple[Group, ...] = eqx.field(static=True)

    def values(self, name: str, memory: Any, seen: PyTree) -> tuple[Float[Array, " n"], Any]:
        """Of every choice of one agent of a group, and its memory after."""
        net: Any = self.of[name]
        features, memory = net.body(memory, net.look(seen))
        return net.values(features, seen), memory

    def begin(self, n: int) -> dict[str, PyTree]:
        """Memories of ``n`` fresh episodes, ``[n, agent, ...]``."""
        return {g.name: jax.tree.map(lambda x, g=g: _apart(x, g), self.of[g.name].body.begin(n * g.count))
                for g in self.groups}  # fmt: skip


class Valued(eqx.Module):
    """Values of every choice at all steps of a window, and what goes with them."""

    values: Values
    told: dict[str, dict[str, Array]]
    """What the agents' nets tell beside the values, by group, ``[time, row, agent, ...]``."""
    scene: PyTree
    """What the mixer goes by, ``[time, row, ...]``."""
    alive: dict[str, Bool[Array, "time row agent"]]


def valued(team: Team, steps: Transition) -> tuple[Valued, Valued]:
    """Values of every choice now and next, from fresh memories at the window's start."""
    begun, now, following = team.begin(steps.reward.shape[1]), {}, {}
    for group in team.groups:

        def seen(view: View, group: Group = group) -> PyTree:
            which = jnp.broadcast_to(jnp.arange(group.count, dtype="int32"), (*steps.reward.shape, group.count))
            return {"own": view.observation[group.name], "which": which}

        def one(memory: Any, seen: PyTree, following: PyTree, first: Bool[Array, "time row"], name: str = group.name):
            net: Any = team.of[name]
            features, memories = unroll(net.body, memory, net.look(seen), first)

            def after(memory: Any, seen: PyTree) -> tuple[Array, dict[str, Array]]:
                features, _ = net.body(memory, net.look(seen))
                return net.values(features, seen), net.tells(features)

            here = jax.vmap(jax.vmap(lambda f, o: (net.values(f, o), net.tells(f))))(features, seen)
            return here, jax.vmap(jax.vmap(after))(memories, following)

        given = begun[group.name], seen(steps.view), seen(steps.next_view), steps.first
        now[group.name], following[group.name] = jax.vmap(one, in_axes=(1, 2, 2, None), out_axes=2)(*given)
    scene = _scene(team, now, steps.view, steps.privileged)
    later = _scene(team, following, steps.next_view, steps.next_privileged)
    shown = team.mixer.scenes(steps.first, scene, later)
    found = zip((now, following), (scene, later), shown, strict=True)
    here, after = (Valued({k: v[0] for k, v in x.items()}, s.told, seen, s.alive) for x, s, seen in found)
    return here, after


def taken(values: Values, actions: dict[str, Array]) -> Values:
    """The values of what the agents do, ``actions`` being ``[time, row, agent]``."""
    return {name: jnp.take_along_axis(x, actions[name][..., None], axis=-1)[..., 0] for name, x in values.items()}


def mixed(team: Team, values: Values, by: Valued) -> Float[Array, "time row"]:
    """The team's value of ``values`` ``[time, row, agent]`` in the scene of ``by``; agents that do not decide add 0."""
    there = [jnp.where(by.alive[g.name], values[g.name], 0.0) for g in team.groups]
    return jax.vmap(jax.vmap(team.mixer))(jnp.concatenate(there, axis=-1), by.scene)


def _scene(team: Team, found: dict[str, tuple[Array, dict[str, Array]]], view: View, told: PyTree) -> Scene:
    said = {name: tells for name, (_, tells) in found.items()}
    return Scene(joint(team.groups, view, told), said, {g.name: view.alive[g.name] for g in team.groups})


def _apart(x: Array, group: Group) -> Array:
    return x.reshape(-1, group.count, *x.shape[1:])
