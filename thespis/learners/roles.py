"""Roles as sets of actions that do alike: found once, after a while of foretelling what actions do.

The upper level of :class:`~thespis.learners.levels.Levels` chooses a role for every agent; the lower one may do what
belongs to its role, and no other thing. Both value what they choose by vectors: an action's own, a role's mean.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.agents import Group
from thespis.core.errors import UserError
from thespis.core.keys import fold
from thespis.core.records import Batch, EnvSpec, Transition, View
from thespis.core.spaces import Discrete, dict_space, legal_size
from thespis.critics.effects import Effects
from thespis.critics.matching import matched_space
from thespis.learners.crowd import one_of
from thespis.learners.gradient import Adam, Number, gradient_step
from thespis.objectives.clusters import k_means
from thespis.objectives.normalise import mean


class ByEffect(eqx.Module):
    """Clusters of actions whose vectors are near each other."""

    def sort(self, vectors: Float[Array, "n latent"], count: int, key: Key[Array, ""]) -> Int[Array, " n"]:
        """Which of ``count`` roles each action belongs to."""
        return k_means(vectors, count)


class ByChance(eqx.Module):
    """As many actions for every role, drawn by lot: what roles are worth that know nothing of effects."""

    def sort(self, vectors: Float[Array, "n latent"], count: int, key: Key[Array, ""]) -> Int[Array, " n"]:
        """Which of ``count`` roles each action belongs to."""
        return jax.random.permutation(key, jnp.arange(vectors.shape[0], dtype="int32") % count)


class Sorted(eqx.Module):
    """Of one group: vectors of its actions, and which of them each role may take."""

    vectors: Float[Array, "n latent"]
    allows: Bool[Array, "role n"]

    def means(self) -> Float[Array, "role latent"]:
        """The mean of each role's vectors."""
        return self.allows @ self.vectors / jnp.maximum(self.allows.sum(axis=1, keepdims=True), 1)


class Learning(eqx.Module):
    """Nets that foretell, and what has been made of their vectors, by group."""

    nets: dict[str, Effects]
    opt: PyTree
    sorted: dict[str, Sorted]


class ActionRoles(eqx.Module):
    """Until ``settled`` updates every role allows everything. Then roles and vectors are made, and stay."""

    count: int = eqx.field(static=True, default=3)
    """Roles at most: clusters of actions."""
    sorting: ByEffect | ByChance = ByEffect()
    """Which actions make a role: ByEffect or ByChance."""
    settled: Number = 500.0
    """Updates for which what actions do is learnt before roles are made."""
    learning_rate: Number = 5e-4
    """Step size of the nets that foretell."""
    reward_weight: Number = 10.0
    """Weight of a foretold reward's squared error beside that of what is seen."""
    latent: int = eqx.field(static=True, default=20)
    """Numbers in an action's vector."""
    units: int = eqx.field(static=True, default=32)
    """Units of the hidden layers of the nets that foretell."""

    def specs(self, spec: EnvSpec) -> tuple[EnvSpec, EnvSpec]:
        """Above, roles to choose from; below, actions under a role. Raises ``UserError`` unless actions are choices."""
        levels: list[dict[str, Any]] = [{}, {}]
        for group in spec.groups:
            one = one_of(spec, group)
            if not isinstance(one.action, Discrete):
                raise UserError(f"roles are sets of discrete choices, and {one.name} has {one.action}: use mappo")
            levels[0][group.name] = matched_space(one.observation, self.count, self.latent, 1)
            levels[1][group.name] = matched_space(one.observation, one.action.n, self.latent, self.count)
        roles = dict_space(**{group.name: Discrete(self.count) for group in spec.groups})
        above, below = (dataclasses.replace(spec, observation=dict_space(**seen), legal=True) for seen in levels)
        return dataclasses.replace(above, action=roles), below

    def init(self, spec: EnvSpec, key: Key[Array, ""]) -> Learning:
        """Fresh nets; every role allows every action."""
        others = sum(group.count * legal_size(one_of(spec, group).action) for group in spec.groups)

        def net(group: Group) -> Effects:
            return Effects(one_of(spec, group), others, self.latent, self.units, fold(key, group.name))

        nets = {group.name: net(group) for group in spec.groups}
        free = {name: Sorted(net.vectors(), jnp.ones((self.count, net.actions), bool)) for name, net in nets.items()}
        return Learning(nets, Adam(self.learning_rate).init(nets), free)

    def told(self, known: Learning) -> dict[str, Sorted]:
        """Vectors and roles."""
        return known.sorted

    def above(self, told: dict[str, Sorted], view: View) -> View:
        """Roles by their mean vectors; one that allows nothing cannot be chosen."""

        def one(name: str) -> tuple[PyTree, Array]:
            alive, kind = view.alive[name], told[name]
            role = jnp.zeros(alive.shape, "int32")
            legal = jnp.broadcast_to(kind.allows.any(axis=1), (*alive.shape, self.count))
            return _seen(view, name, role, kind.means()), legal

        return _looked(view, {name: one(name) for name in told})

    def below(self, told: dict[str, Sorted], view: View, chosen: dict[str, Array]) -> View:
        """What the role allows and the world does; the world's word alone where these have nothing in common."""

        def one(name: str) -> tuple[PyTree, Array]:
            allowed = jnp.take(told[name].allows, chosen[name], axis=0)
            legal = jnp.ones_like(allowed) if view.legal is None else view.legal[name]
            both = allowed & legal
            return _seen(view, name, chosen[name], told[name].vectors), jnp.where(
                both.any(-1, keepdims=True), both, legal
            )

        return _looked(view, {name: one(name) for name in told})

    def over(self, told: dict[str, Sorted], view: View, chosen: dict[str, Array]) -> Bool[Array, "..."]:
        """Never: a role is held for its time."""
        return jnp.zeros(next(iter(chosen.values())).shape[:-1], bool)

    def lower(
        self, told: dict[str, Sorted], steps: Transition, chosen: dict[str, Array], following: dict[str, Array]
    ) -> Transition:
        """The world's rewards; at the next step under the role that is chosen then."""
        views = self.below(told, steps.view, chosen), self.below(told, steps.next_view, following)
        return dataclasses.replace(steps, view=views[0], next_view=views[1])

    def update(self, known: Learning, batch: Batch, key: Key[Array, ""]) -> tuple[Learning, dict[str, Array]]:
        """Foretell better until it is settled, and with the last such update make the roles."""
        optimiser = Adam(self.learning_rate)

        def learn(known: Learning) -> Learning:
            nets, opt, _, _ = gradient_step(
                optimiser, lambda nets: (self._error(nets, batch), ()), known.nets, known.opt
            )
            return Learning(nets, opt, known.sorted)

        def settle(known: Learning) -> Learning:
            def one(name: str, net: Effects) -> Sorted:
                belongs = self.sorting.sort(net.vectors(), self.count, fold(key, name))
                return Sorted(net.vectors(), belongs == jnp.arange(self.count, dtype="int32")[:, None])

            return Learning(known.nets, known.opt, {name: one(name, net) for name, net in known.nets.items()})

        left = jnp.asarray(self.settled) - batch.index
        known = jax.lax.cond(left > 0, learn, lambda known: known, known)
        known = jax.lax.cond((left > 0) & (left <= 1), settle, lambda known: known, known)
        roles = jnp.mean(jnp.stack([kind.allows.any(axis=1).sum() for kind in known.sorted.values()]).astype("float32"))
        return known, {"roles": roles}

    def _error(self, nets: dict[str, Effects], batch: Batch) -> Float[Array, ""]:
        """Mean over the agents that decide."""

        def error(net: Effects, seen: PyTree, others: Array, action: Array, came: PyTree, paid: Array) -> Array:
            return net.error(seen, others, action, came, paid, self.reward_weight)

        steps, total = batch.steps, jnp.zeros(())
        for name, net in nets.items():
            there = steps.view.alive[name] & batch.mask[..., None]
            given = steps.view.observation[name], _others(nets, steps, name), steps.action[name]
            paid = jnp.broadcast_to(steps.reward[..., None], there.shape)
            each = jax.vmap(jax.vmap(jax.vmap(functools.partial(error, net))))
            found = each(*given, steps.next_view.observation[name], paid)
            total = total + mean(found, there)
        return total


def _looked(view: View, found: dict[str, tuple[PyTree, Array]]) -> View:
    """The view with other observations and other legal choices, by group."""
    seen, legal = ({name: pair[i] for name, pair in found.items()} for i in range(2))
    return dataclasses.replace(view, observation=seen, legal=legal)


def _seen(view: View, name: str, role: Int[Array, "*axes agent"], vectors: Float[Array, "n latent"]) -> PyTree:
    said = jnp.broadcast_to(vectors, (*role.shape, *vectors.shape))
    return {"own": view.observation[name], "role": role, "said": said}


def _others(nets: dict[str, Effects], steps: Transition, name: str) -> Float[Array, "time row agent others"]:
    """What all do, one-hot, zeros for those who do not decide and for the agent itself."""
    done = []
    for other, net in nets.items():
        acts = jnp.where(steps.view.alive[other][..., None], jax.nn.one_hot(steps.action[other], net.actions), 0.0)
        count = acts.shape[2]
        mine = jnp.eye(count) if other == name else jnp.zeros((steps.action[name].shape[2], count))
        shown = jnp.where(mine[None, None, :, :, None] > 0, 0.0, acts[:, :, None])
        done.append(shown.reshape(*shown.shape[:3], -1))
    return jnp.concatenate(done, axis=-1)
