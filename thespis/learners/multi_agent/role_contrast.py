"""Auxiliary losses of agents' networks: role contrast makes roles of agents with similar histories similar."""

from __future__ import annotations

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from thespis.core.errors import UserError
from thespis.core.records import Number
from thespis.critics.role_encoding import role_from_embedding
from thespis.learners.optim.optimizers import Adam, gradient_step, polyak_update
from thespis.nets.mlp import Linear
from thespis.objectives.clustering import k_means
from thespis.objectives.contrastive import cluster_nce
from thespis.objectives.statistics import masked_mean

AgentNetworks = dict[str, Any]
"""Agents' networks by group."""
AuxOutputs = dict[str, dict[str, Array]]
"""Auxiliary outputs of the agents' networks by group, ``[time, row, agent, ...]``."""


class AuxiliaryLoss(eqx.Module):
    """Slot: a loss of the agents' networks besides that of their values, in value decomposition."""

    @abc.abstractmethod
    def init(self, networks: AgentNetworks, role_size: int, key: Key[Array, ""]) -> PyTree:
        """The state of the loss, such as that of an optimizer; ``role_size``: 0 where agents have no roles."""

    @abc.abstractmethod
    def update(
        self,
        networks: AgentNetworks,
        state: PyTree,
        aux_outputs: AuxOutputs,
        alive: dict[str, Bool[Array, "time row agent"]],
        num_updates: Int[Array, ""],
    ) -> tuple[AgentNetworks, PyTree, dict[str, Array]]:
        """Networks, state and metrics after the ``num_updates``-th update of the values.

        ``aux_outputs`` are those of the networks before that update; only agents that are ``alive`` count.
        """


class _NoLoss(eqx.Module):
    """No auxiliary loss: roles, if there are any, are learned from the values alone."""

    def init(self, networks: AgentNetworks, role_size: int, key: Key[Array, ""]) -> tuple[()]:
        """An empty state: nothing has to be kept."""
        return ()

    def update(
        self,
        networks: AgentNetworks,
        state: tuple[()],
        aux_outputs: AuxOutputs,
        alive: dict[str, Array],
        num_updates: Int[Array, ""],
    ) -> tuple[AgentNetworks, tuple[()], dict[str, Array]]:
        """Return the networks unchanged: there is no auxiliary loss."""
        return networks, (), {}


NO_LOSS = _NoLoss()
"""What ``auxiliary_loss=None`` does."""


class RoleContrastState(eqx.Module):
    """State of the contrastive loss, besides the agents' networks."""

    target_layers: dict[str, Linear]
    """Polyak-averaged copies of the networks' role layers."""
    bilinear_weights: Float[Array, "role role"]
    """The similarity of a role to a target role is their bilinear product with these weights."""
    opt_state: PyTree
    loss: Float[Array, ""]
    """Loss of the last step."""


class RoleContrast(AuxiliaryLoss):
    """Contrastive loss on roles: agents of a team are clustered at each step by their embeddings.

    A role should be more similar to those of its cluster than to others. Only the role layers are trained by it, not
    the embeddings.
    """

    learning_rate: Number = 8e-4
    """Step size."""
    tau: Number = 0.005
    """Polyak rate of the target layers, at each update."""
    update_interval: int = eqx.field(static=True, default=200)
    """Updates of the values for each gradient step of the contrast."""
    num_clusters: int = eqx.field(static=True, default=3)
    """Number of clusters of agents."""

    def init(self, networks: AgentNetworks, role_size: int, key: Key[Array, ""]) -> RoleContrastState:
        """Target layers as copies, random bilinear weights, and the optimizer state.

        Raises ``UserError`` where agents have no roles.
        """
        if not role_size:
            raise UserError("RoleContrast needs agents with roles: set utility_network=RoleUtility")
        target_layers = {name: network.body.role_layer for name, network in networks.items()}
        bilinear_weights = jax.random.uniform(key, (role_size, role_size))
        return RoleContrastState(
            target_layers,
            bilinear_weights,
            self._make_optimizer().init((target_layers, bilinear_weights)),
            jnp.zeros(()),
        )

    def update(
        self,
        networks: AgentNetworks,
        state: RoleContrastState,
        aux_outputs: AuxOutputs,
        alive: dict[str, Bool[Array, "time row agent"]],
        num_updates: Array,
    ) -> tuple[AgentNetworks, RoleContrastState, dict[str, Array]]:
        """One gradient step at every ``update_interval``-th update, on the embeddings of agents that are ``alive``."""
        layers = {name: network.body.role_layer for name, network in networks.items()}

        def step(given: tuple[Any, Any, Any, Array]) -> tuple[Any, Any, Any, Array]:
            def loss(nets: tuple[Any, Any]) -> tuple[Array, Array]:
                value = self.loss(*nets, state.target_layers, aux_outputs, alive)
                return value, value

            (layers, bilinear_weights), opt_state, value, _ = gradient_step(
                self._make_optimizer(), loss, given[:2], given[2]
            )
            return layers, bilinear_weights, opt_state, value

        current = layers, state.bilinear_weights, state.opt_state, state.loss
        layers, bilinear_weights, opt_state, loss = jax.lax.cond(
            num_updates % self.update_interval == 0, step, lambda operand: operand, current
        )
        networks = {
            name: eqx.tree_at(lambda n: n.body.role_layer, network, layers[name]) for name, network in networks.items()
        }
        return (
            networks,
            RoleContrastState(polyak_update(state.target_layers, layers, self.tau), bilinear_weights, opt_state, loss),
            {"contrast_loss": loss},
        )

    def loss(
        self,
        layers: dict[str, Linear],
        bilinear_weights: Array,
        target_layers: dict[str, Linear],
        aux_outputs: AuxOutputs,
        alive: dict[str, Array],
    ) -> Float[Array, ""]:
        """Mean loss over the agents that are ``alive``."""
        points = {name: jax.lax.stop_gradient(outputs["embedding"]) for name, outputs in aux_outputs.items()}

        def roles(of: dict[str, Linear]) -> Float[Array, "time row agent role"]:
            group_roles = [
                jax.vmap(jax.vmap(jax.vmap(lambda e, n=n: role_from_embedding(of[n], e))))(x) for n, x in points.items()
            ]
            return jnp.concatenate(group_roles, axis=2)

        mask = jnp.concatenate([alive[name] for name in points], axis=2)
        scores = jnp.einsum("trai,ij,trbj->trab", roles(layers), bilinear_weights, roles(target_layers))
        labels = jax.vmap(jax.vmap(self.cluster_agents))(jnp.concatenate(list(points.values()), axis=2), mask)
        return masked_mean(jax.vmap(jax.vmap(cluster_nce))(scores, labels, mask), mask)

    def cluster_agents(
        self, embeddings: Float[Array, "agent units"], mask: Bool[Array, " agent"]
    ) -> Int[Array, " agent"]:
        """Cluster labels of one team's embeddings.

        Agents outside ``mask`` are placed at the mean of the others, which they do not change.
        """
        weight = mask[:, None] / jnp.maximum(jnp.sum(mask), 1)
        mean = jnp.sum(jnp.where(mask[:, None], embeddings, 0.0) * weight, axis=0)
        return k_means(jnp.where(mask[:, None], embeddings, mean), self.num_clusters)

    def _make_optimizer(self) -> Adam:
        return Adam(self.learning_rate)
