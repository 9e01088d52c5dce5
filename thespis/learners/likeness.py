"""What the nets of a team learn beside values: roles of agents that have gone through alike are alike."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.critics.embedding import as_role
from thespis.learners.gradient import Adam, Number, gradient_step, polyak
from thespis.nets.mlp import Linear
from thespis.objectives.clusters import k_means
from thespis.objectives.contrast import cluster_nce
from thespis.objectives.normalise import mean

Nets = dict[str, Any]
"""The agents' nets by group."""
Told = dict[str, dict[str, Array]]
"""What they tell, by group, ``[time, row, agent, ...]``."""


class NoContrast(eqx.Module):
    """Roles, if there are any, are learnt with the values alone."""

    def init(self, nets: Nets, roles: int, key: Key[Array, ""]) -> tuple[()]:
        """Nothing is learnt."""
        return ()

    def learn(
        self, nets: Nets, known: tuple[()], told: Told, there: dict[str, Array], updates: Int[Array, ""]
    ) -> tuple[Nets, tuple[()], dict[str, Array]]:
        """The nets as they are."""
        return nets, (), {}


class Likened(eqx.Module):
    """What is learnt beside the nets."""

    slow: dict[str, Linear]
    """Layers that make roles, which follow those of the nets slowly."""
    by: Float[Array, "role role"]
    """A role's likeness to one of the slow layers is a product with this between them."""
    opt: PyTree
    loss: Float[Array, ""]
    """Of the last step."""


class RoleContrast(eqx.Module):
    """Agents of a team, at one step, are clusters by their embeddings; a role should be like those of its cluster.

    Embeddings are not changed by it, only the layers that make roles of them.
    """

    learning_rate: Number = 8e-4
    """Step size."""
    follow: Number = 0.005
    """How far the slow layers go to the nets' at each update."""
    every: int = eqx.field(static=True, default=200)
    """Updates of the values for each step of the contrast."""
    clusters: int = eqx.field(static=True, default=3)
    """Clusters of agents."""

    def init(self, nets: Nets, roles: int, key: Key[Array, ""]) -> Likened:
        """Slow layers are copies. Raises ``UserError`` where agents have no roles."""
        if not roles:
            raise UserError("RoleContrast is between roles, and these agents have none: utility=Embedded() makes them")
        slow = {name: net.body.role for name, net in nets.items()}
        by = jax.random.uniform(key, (roles, roles))
        return Likened(slow, by, self._adam().init((slow, by)), jnp.zeros(()))

    def learn(
        self, nets: Nets, known: Likened, told: Told, there: dict[str, Bool[Array, "time row agent"]], updates: Array
    ) -> tuple[Nets, Likened, dict[str, Array]]:
        """A step at every ``every``-th update, from what the agents ``told`` wherever they are ``there``."""
        layers = {name: net.body.role for name, net in nets.items()}

        def step(given: tuple[Any, Any, Any, Array]) -> tuple[Any, Any, Any, Array]:
            def loss(nets: tuple[Any, Any]) -> tuple[Array, Array]:
                found = self.loss(*nets, known.slow, told, there)
                return found, found

            (layers, by), opt, found, _ = gradient_step(self._adam(), loss, given[:2], given[2])
            return layers, by, opt, found

        now = layers, known.by, known.opt, known.loss
        layers, by, opt, loss = jax.lax.cond(updates % self.every == 0, step, lambda given: given, now)
        nets = {name: eqx.tree_at(lambda n: n.body.role, net, layers[name]) for name, net in nets.items()}
        return nets, Likened(polyak(known.slow, layers, self.follow), by, opt, loss), {"contrast_loss": loss}

    def loss(
        self, layers: dict[str, Linear], by: Array, slow: dict[str, Linear], told: Told, there: dict[str, Array]
    ) -> Float[Array, ""]:
        """Mean over agents that are there."""
        points = {name: jax.lax.stop_gradient(said["embedding"]) for name, said in told.items()}

        def roles(of: dict[str, Linear]) -> Float[Array, "time row agent role"]:
            made = [jax.vmap(jax.vmap(jax.vmap(lambda e, n=n: as_role(of[n], e))))(x) for n, x in points.items()]
            return jnp.concatenate(made, axis=2)

        counts = jnp.concatenate([there[name] for name in points], axis=2)
        scores = jnp.einsum("trai,ij,trbj->trab", roles(layers), by, roles(slow))
        labels = jax.vmap(jax.vmap(self.sort))(jnp.concatenate(list(points.values()), axis=2), counts)
        return mean(jax.vmap(jax.vmap(cluster_nce))(scores, labels, counts), counts)

    def sort(self, points: Float[Array, "agent units"], counts: Bool[Array, " agent"]) -> Int[Array, " agent"]:
        """Clusters of one team's embeddings; those who do not count stand in the middle and leave it there."""
        weight = counts[:, None] / jnp.maximum(jnp.sum(counts), 1)
        middle = jnp.sum(jnp.where(counts[:, None], points, 0.0) * weight, axis=0)
        return k_means(jnp.where(counts[:, None], points, middle), self.clusters)

    def _adam(self) -> Adam:
        return Adam(self.learning_rate)
